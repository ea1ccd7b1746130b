"""A study's first two answers in plain sentences: how much opportunity there is, and how concentrated it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings, OpportunityMean
from unmask.report.compare import count
from unmask.report.tables.opportunity import STAGE_NAMES, number, share
from unmask.stats import Estimate
from unmask.stats.opportunity import FEWEST

FEW = f"fewer than {FEWEST} prompts with a gain"


@dataclass(frozen=True)
class Answer:
    """A question that every study is asked, and one to three sentences."""

    question: str
    text: str
    """A paragraph to a line."""


class Setting(Protocol):
    """Anything that is about one model."""

    @property
    def model(self) -> str: ...


S = TypeVar("S", bound=Setting)


def by_model(cells: Sequence[S]) -> dict[str, list[S]]:
    """In the order in which models come."""
    return {model: [c for c in cells if c.model == model] for model in dict.fromkeys(c.model for c in cells)}


def tally(
    found: OpportunityFindings, cells: Sequence[Setting], hits: Sequence[Setting], noun: str = "task-axis pair"
) -> str:
    """`2 of 6 task-axis pairs of mini and none of 4 of other`: a count never stands without what was looked at."""
    told: list[str] = []
    for model, mine in by_model(cells).items():
        hit = sum(c.model == model for c in hits)
        nouns = "" if told else f" {noun}{'s' * (len(mine) != 1)}"
        told.append(f"{hit or 'none'} of {len(mine)}{nouns} of {name(found, model)}")
    return listed(told)


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(parts[:-1])] * (len(parts) > 1) + list(parts[-1:]))


def flatters(looks: int) -> str:
    """The winner's curse, where there was more than one to choose from."""
    return f"; the best of {looks} looks better than it is" if looks > 1 else ""


def chance(looks: int, where: str = "above zero", most: str = "about", what: str = "settings") -> str:
    """What many looks do, where there were many: a clause to be put behind a count."""
    if looks < 2:
        return ""
    return f"; of {looks} {what}, {most} 2.5 % each would show such an interval {where} by chance"


# What is not there, and what was looked at


def warnings(found: OpportunityFindings) -> tuple[str, ...]:
    """What is not there."""
    told = []
    if not found.complete:
        there = sum(extent.shards for extent in found.extents)
        planned = [extent.planned for extent in found.extents]
        known = sum(number for number in planned if number is not None)
        total = f"{there} of {known} shards are" if None not in planned else f"{there} shards are"
        waiting = sorted({f"{m.task} of {m.model}" for m in found.missing if m.task not in found.unavailable})
        rest = f" There are no numbers yet for {', '.join(waiting)}." if waiting else ""
        told.append(f"This study is not complete: {total} finished. What follows is about those alone.{rest}")
    told += [f"Left out: {task}: {reason}" for task, reason in found.unavailable.items()]
    if not found.cells:
        why = sorted({f"{m.model}, {m.task}, {m.axis}: {m.reason}" for m in found.missing})
        told.append(f"Nothing could be measured. {'; '.join(why)}.")
    return tuple(told)


def name(found: OpportunityFindings, model: str) -> str:
    """A model by its name here and, where that differs, by what was loaded: a name is not the model."""
    spec = next(spec for spec in found.manifest["study"]["models"] if spec["name"] == model)
    source = str(spec["model"])
    last = source.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    return model if last.lower() == model.lower() else f"{model} ({source})"


def notes(found: OpportunityFindings) -> Iterator[str]:
    """How far the numbers can be trusted, and whose they are."""
    if not found.cells:
        return
    audit = found.audit
    if audit.noisy:
        yield (
            f"Rollouts differ at {audit.noisy:,} of {audit.states:,} state-axis comparisons; without cross-fitting the "
            f"mean gap would be {audit.naive:.4f} instead of {audit.crossfitted:.4f}. Where many differ, the truth "
            "lies between the two, and the audit's brackets are the numbers to report."
        )
    else:
        yield f"Rollouts never differ in {audit.states:,} state-axis comparisons, so there was no noise to correct for."
    lost = sum(u.branches for u in found.unjudged)
    if lost:
        yield f"{lost:,} of {found.branches:,} branches could not be judged; they are missing, not 0."
    which = ", ".join(name(found, model) for model in found.models)
    yield (
        "Δ_adapt is what hindsight could gain with these candidates in one step, not what a policy gains. These are "
        f"numbers of {which} on these tasks and of no other model."
    )


# How much?


def how_much(found: OpportunityFindings) -> str:
    """A claim only where a reliable interval lies above zero."""
    cells = found.cells
    if not cells:
        return "Not known: nothing could be measured."
    sure, hints = _shown(cells)
    what = "the 95 % interval of Δ_adapt, what hindsight gains in one step over the fixed action,"
    if sure:
        best = _largest(sure)
        more = f"; {len(hints)} more {_lie(hints)} above zero, on {FEW}" if hints else ""
        told = [
            f"Choosing by state could gain on {tally(found, cells, sure)}: there {what} lies above zero.",
            f"The largest is {_where(found, best)}, on top of a utility of {best.base:.3f}"
            f"{flatters(len(cells))}{more}.",
        ]
    elif hints:
        told = [
            f"No opportunity was shown reliably: on {tally(found, cells, [])} does {what} lie above zero reliably.",
            f"{len(hints)} {_lie(hints)} above zero, at most {_where(found, _largest(hints))}, but on {FEW}: a hint, "
            "no more.",
        ]
    else:
        told = [f"No opportunity was shown: on {tally(found, cells, [])} does {what} lie above zero."]
        gained = [c for c in cells if c.overall.delta.value > 0]
        told += [f"The largest estimate is {_where(found, _largest(gained))}."] if gained else []
    return " ".join([*told, _by_axis(found)])


def _shown(cells: Sequence[OpportunityCell]) -> tuple[list[OpportunityCell], list[OpportunityCell]]:
    """Cells whose interval lies above zero: those to rely on, and those on too few prompts."""
    above = [c for c in cells if c.overall.delta.positive]
    return [c for c in above if not c.overall.unreliable], [c for c in above if c.overall.unreliable]


def _lie(cells: Sequence[OpportunityCell]) -> str:
    return "interval lies" if len(cells) == 1 else "intervals lie"


def _largest(cells: Sequence[OpportunityCell]) -> OpportunityCell:
    return max(cells, key=lambda c: c.overall.delta.value)


def place(found: OpportunityFindings, model: str, task: str, axis: str) -> str:
    """One setting; the model only where there are several."""
    return f"{name(found, model)}, {axis} on {task}" if len(found.models) > 1 else f"{axis} on {task}"


def _where(found: OpportunityFindings, cell: OpportunityCell) -> str:
    where = place(found, cell.model, cell.task, cell.axis)
    return f"{number(cell.overall.delta)} ({where}, over the fixed action {cell.fixed_name})"


def _by_axis(found: OpportunityFindings) -> str:
    told = []
    for model, means in by_model(found.means).items():
        cells = found.of(model)
        tasks = tuple(dict.fromkeys(c.task for c in cells))
        prompts = sum(max(c.overall.prompts for c in cells if c.task == task) for task in tasks)
        looked = f"{count(len(tasks), 'task')}, {count(prompts, 'evaluation prompt')}"
        each = ", ".join(f"{m.axis} {number(m.overall.delta)}" for m in means)
        told.append(f"{name(found, model)} ({looked}): {each}{_weak(means)}")
    return f"Mean Δ_adapt over tasks, {'; '.join(told)}."


def _weak(means: Sequence[OpportunityMean]) -> str:
    weak = [m.axis for m in means if m.overall.unreliable]
    if not weak:
        return ""
    which = "all of these" if len(weak) == len(means) else listed(weak)
    return f" (on {FEW}, so do not rely on the intervals: {which})"


# How concentrated?


def how_concentrated(found: OpportunityFindings) -> str:
    """Of what was shown; of hints where there is nothing more."""
    sure, hints = _shown(found.cells)
    cells = sure or hints
    if not cells:
        return "Not known: where no opportunity was shown, there is none that could be concentrated."
    told = []
    for model, mine in by_model(cells).items():
        gain, held = _range([c.overall.positive_rate for c in mine]), _range([_top(c) for c in mine])
        told.append(
            f"{name(found, model)}, {gain} of states gain, and the best 10 % of states hold {held} of the opportunity"
        )
    where = "On the pairs where opportunity was shown" if sure else "On the pairs where there is a hint"
    return " ".join([f"{where}: {'; '.join(told)} (10 % if it were spread evenly).", *_by_stage(found)])


def _by_stage(found: OpportunityFindings) -> Iterator[str]:
    told = []
    for model, means in by_model(found.means).items():
        best = max(means, key=lambda m: m.overall.delta.value)
        if best.overall.delta.positive and not best.overall.unreliable:
            parts = [f"{number(part.delta.value)} ({STAGE_NAMES[k]})" for k, part in best.found.stages.items()]
            told.append(f"{name(found, model)}, {best.axis}: {', '.join(parts)}")
    if told:
        yield f"Mean Δ_adapt of the largest axis by stage, {'; '.join(told)}."


def _top(cell: OpportunityCell) -> Estimate:
    return cell.overall.concentration[0.1]


def _range(values: Sequence[Estimate]) -> str:
    """One number with its interval, or from the least to the most."""
    if len(values) == 1:
        return share(values[0])
    least, most = (share(pick(v.value for v in values)) for pick in (min, max))
    return least if least == most else f"{least} to {most}"
