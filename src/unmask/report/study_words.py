"""A study's answer in plain sentences: how much opportunity, where, how concentrated, and how sure that is."""

from collections.abc import Iterator, Sequence

from unmask.lab.e1 import E1, Cell, Mean
from unmask.report.study_tables import STAGE_NAMES, number, share
from unmask.report.suite import count
from unmask.stats import Estimate
from unmask.stats.opportunity import FEWEST


def answer(found: E1) -> tuple[str, ...]:
    """Sentences with numbers and 95 % intervals; a claim only where a reliable interval lies above zero."""
    return (*warnings(found), *(_of_model(found, model) for model in found.models), *_caveats(found))


def warnings(found: E1) -> tuple[str, ...]:
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


def name(found: E1, model: str) -> str:
    """A model by its name here and, where that differs, by what was loaded: a name is not the model."""
    spec = next(spec for spec in found.manifest["study"]["models"] if spec["name"] == model)
    source = str(spec["model"])
    last = source.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    return model if last.lower() == model.lower() else f"{model} ({source})"


def _of_model(found: E1, model: str) -> str:
    cells = found.of(model)
    sure = [c for c in cells if c.overall.delta.positive and not c.overall.unreliable]
    hints = [c for c in cells if c.overall.delta.positive and c.overall.unreliable]
    tasks = tuple(dict.fromkeys(c.task for c in cells))
    prompts = sum(max(c.overall.prompts for c in cells if c.task == task) for task in tasks)
    head = f"{name(found, model)}, {count(len(tasks), 'task')}, {count(prompts, 'evaluation prompt')}: "
    sentences = [_how_much(cells, sure, hints), *_by_axis(found, model), *_concentrated(sure or hints, bool(sure))]
    return head + " ".join(sentences)


def _how_much(cells: Sequence[Cell], sure: Sequence[Cell], hints: Sequence[Cell]) -> str:
    pairs = f"{len(cells)} task-axis {'pair' if len(cells) == 1 else 'pairs'}"
    few = f"fewer than {FEWEST} prompts with a gain"
    if sure:
        best = _largest(sure)
        first = "The largest" if len(cells) > 1 else "It"
        flatters = f"; the largest of {len(cells)} looks better than it is" if len(cells) > 1 else ""
        more = f" {len(hints)} more {_lie(hints)} above zero, on {few}." if hints else ""
        return (
            f"choosing by state could gain on {len(sure)} of {pairs}: there the 95 % interval of Δ_adapt lies above "
            f"zero. {first} is {_where(best)}, on top of a utility of {best.base:.3f}{flatters}.{more}"
        )
    if hints:
        return (
            f"no opportunity was shown reliably on any of {pairs}. {len(hints)} {_lie(hints)} above zero, at most "
            f"{_where(_largest(hints))}, but on {few}: a hint, no more."
        )
    gained = [c for c in cells if c.overall.delta.value > 0]
    if not gained:
        return f"no opportunity was shown: on none of {pairs} does choosing by state gain anything on these prompts."
    return (
        f"no opportunity was shown: on none of {pairs} does the 95 % interval of Δ_adapt lie above zero. The largest "
        f"estimate is {_where(_largest(gained))}."
    )


def _lie(cells: Sequence[Cell]) -> str:
    return "interval lies" if len(cells) == 1 else "intervals lie"


def _largest(cells: Sequence[Cell]) -> Cell:
    return max(cells, key=lambda c: c.overall.delta.value)


def _where(cell: Cell) -> str:
    return f"{number(cell.overall.delta)} ({cell.axis} on {cell.task}, over the fixed action {cell.fixed_name})"


def _by_axis(found: E1, model: str) -> Iterator[str]:
    means = [m for m in found.means if m.model == model]
    told = ", ".join(f"{m.axis} {number(m.overall.delta)}" for m in means)
    tasks = {m.tasks for m in means}
    over = f"over {count(len(means[0].tasks), 'task')}" if len(tasks) == 1 else "over the tasks that have it"
    yield f"Mean Δ_adapt {over}: {told}."
    weak = [m.axis for m in means if m.overall.unreliable]
    if weak:
        which = "any of these means" if len(weak) == len(means) else "the means of " + ", ".join(weak)
        yield f"Fewer than {FEWEST} prompts have a gain in {which}, so do not rely on their intervals."
    best = max(means, key=lambda m: m.overall.delta.value)
    if best.overall.delta.positive and not best.overall.unreliable:
        yield _by_stage(best)


def _by_stage(mean: Mean) -> str:
    parts = [f"{number(part.delta.value)} ({STAGE_NAMES[k]})" for k, part in mean.found.stages.items()]
    return f"By stage, {mean.axis}: {', '.join(parts)}."


def _concentrated(cells: Sequence[Cell], sure: bool) -> Iterator[str]:
    if not cells:
        return
    rates, tops = ([read(c) for c in cells] for read in (_rate, _top))
    where = "there" if sure else "where those hints are"
    gain, held = _range(rates), _range(tops)
    yield f"Concentration {where}: {gain} of states gain, and the best 10 % of states hold {held} of it."


def _rate(cell: Cell) -> Estimate:
    return cell.overall.positive_rate


def _top(cell: Cell) -> Estimate:
    return cell.overall.concentration[0.1]


def _range(values: Sequence[Estimate]) -> str:
    """One number with its interval, or from the least to the most."""
    if len(values) == 1:
        return share(values[0])
    least, most = (share(pick(v.value for v in values)) for pick in (min, max))
    return least if least == most else f"{least} to {most}"


def _caveats(found: E1) -> Iterator[str]:
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
