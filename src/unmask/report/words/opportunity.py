"""A study's first two answers in plain sentences: how much opportunity there is, and how concentrated it is."""

from collections.abc import Iterator, Sequence

from unmask.lab.analysis.opportunity import OpportunityCell, OpportunityFindings, OpportunityMean
from unmask.report.formats import counted, number, share
from unmask.report.tables.shared import FEW, STAGE_NAMES
from unmask.report.words.phrases import by_model, flatters, intervals_lie, listed, model_name, place, tally
from unmask.stats import Estimate

# What is not there, and what was looked at


def warnings(findings: OpportunityFindings) -> tuple[str, ...]:
    """What is not there."""
    lines = []
    if not findings.complete:
        there = sum(extent.shards for extent in findings.extents)
        planned = [extent.planned for extent in findings.extents]
        wanted = sum(number for number in planned if number is not None)
        total = f"{there} of {wanted} shards are" if None not in planned else f"{there} shards are"
        waiting = sorted({f"{m.task} of {m.model}" for m in findings.missing if m.task not in findings.unavailable})
        rest = f" There are no numbers yet for {', '.join(waiting)}." if waiting else ""
        lines.append(f"This study is not complete: {total} finished. What follows is about those alone.{rest}")
    lines += [f"Left out: {task}: {reason}" for task, reason in findings.unavailable.items()]
    if not findings.cells:
        why = sorted({f"{m.model}, {m.task}, {m.axis}: {m.reason}" for m in findings.missing})
        lines.append(f"Nothing could be measured. {'; '.join(why)}.")
    return tuple(lines)


def notes(findings: OpportunityFindings) -> Iterator[str]:
    """How far the numbers can be trusted, and whose they are."""
    if not findings.cells:
        return
    audit = findings.audit
    if audit.noisy:
        yield (
            f"Rollouts differ at {audit.noisy:,} of {audit.states:,} state-axis comparisons; without cross-fitting the "
            f"mean gap would be {audit.naive:.4f} instead of {audit.crossfitted:.4f}. Where many differ, the truth "
            "lies between the two, and the audit's brackets are the numbers to report."
        )
    else:
        yield f"Rollouts never differ in {audit.states:,} state-axis comparisons, so there was no noise to correct for."
    lost = sum(u.branches for u in findings.unjudged)
    if lost:
        yield f"{lost:,} of {findings.branches:,} branches could not be judged; they are missing, not 0."
    which = ", ".join(model_name(findings, model) for model in findings.models)
    yield (
        "Δ_adapt is what hindsight could gain with these candidates in one step, not what a policy gains. These are "
        f"numbers of {which} on these tasks and of no other model."
    )


# How much?


def how_much(findings: OpportunityFindings) -> str:
    """A claim only where a reliable interval lies above zero."""
    cells = findings.cells
    if not cells:
        return "Not known: nothing could be measured."
    sure, hints = _shown(cells)
    what = "the 95 % interval of Δ_adapt, what hindsight gains in one step over the fixed action,"
    if sure:
        best = _largest(sure)
        more = f"; {len(hints)} more {intervals_lie(hints)} above zero, on {FEW}" if hints else ""
        sentences = [
            f"Choosing by state could gain on {tally(findings, cells, sure)}: there {what} lies above zero.",
            f"The largest is {_where(findings, best)}, on top of a utility of {best.base:.3f}"
            f"{flatters(len(cells))}{more}.",
        ]
    elif hints:
        sentences = [
            f"No opportunity was shown reliably: on {tally(findings, cells, [])} does {what} lie above zero reliably.",
            f"{len(hints)} {intervals_lie(hints)} above zero, at most {_where(findings, _largest(hints))}, but on "
            f"{FEW}: a hint, no more.",
        ]
    else:
        sentences = [f"No opportunity was shown: on {tally(findings, cells, [])} does {what} lie above zero."]
        gained = [c for c in cells if c.overall["delta"].value > 0]
        sentences += [f"The largest estimate is {_where(findings, _largest(gained))}."] if gained else []
    return " ".join([*sentences, _by_axis(findings)])


def much_in_short(findings: OpportunityFindings) -> str:
    """The same in one sentence that needs no definition."""
    cells = findings.cells
    if not cells:
        return "Not known: nothing could be measured."
    sure, hints = _shown(cells)
    most = f"{number(_largest(sure or hints or cells).overall['delta'].value)} of a utility from 0 to 1"
    if sure:
        return (
            f"Yes, there is something to gain: on {len(sure)} of {counted(len(cells), 'task-axis pair')}, in one step "
            f"{most} at most."
        )
    if hints:
        return f"Perhaps: {len(hints)} of {counted(len(cells), 'task-axis pair')} hint at a gain, on too few prompts."
    return f"No gain was shown on any of {counted(len(cells), 'task-axis pair')}."


def _shown(cells: Sequence[OpportunityCell]) -> tuple[list[OpportunityCell], list[OpportunityCell]]:
    """Cells whose interval lies above zero: those to rely on, and those on too few prompts."""
    above = [c for c in cells if c.overall["delta"].positive]
    return [c for c in above if not c.overall.unreliable], [c for c in above if c.overall.unreliable]


def _largest(cells: Sequence[OpportunityCell]) -> OpportunityCell:
    return max(cells, key=lambda c: c.overall["delta"].value)


def _where(findings: OpportunityFindings, cell: OpportunityCell) -> str:
    where = place(findings, cell.model, cell.task, cell.axis)
    return f"{number(cell.overall['delta'])} ({where}, over the fixed action {cell.fixed_name})"


def _by_axis(findings: OpportunityFindings) -> str:
    clauses = []
    for model, means in by_model(findings.means).items():
        cells = findings.of(model)
        tasks = tuple(dict.fromkeys(c.task for c in cells))
        prompts = sum(max(c.overall.prompts for c in cells if c.task == task) for task in tasks)
        looked = f"{counted(len(tasks), 'task')}, {counted(prompts, 'evaluation prompt')}"
        each = ", ".join(f"{m.axis} {number(m.overall['delta'])}" for m in means)
        clauses.append(f"{model_name(findings, model)} ({looked}): {each}{_weak(means)}")
    return f"Mean Δ_adapt over tasks, {'; '.join(clauses)}."


def _weak(means: Sequence[OpportunityMean]) -> str:
    weak = [m.axis for m in means if m.overall.unreliable]
    if not weak:
        return ""
    which = "all of these" if len(weak) == len(means) else listed(weak)
    return f" (on {FEW}, so do not rely on the intervals: {which})"


# How concentrated?

_MOST, _MORE = 0.5, 0.2
"""Of the opportunity, held by a tenth of states: from where on it is concentrated, or in part (spread evenly: 0.1)."""


def how_concentrated(findings: OpportunityFindings) -> str:
    """Of what was shown; of hints where there is nothing more."""
    sure, hints = _shown(findings.cells)
    cells = sure or hints
    if not cells:
        return "Not known: where no opportunity was shown, there is none that could be concentrated."
    clauses = []
    for model, of_model in by_model(cells).items():
        gain, held = _range([c.overall["positive_rate"] for c in of_model]), _range([_top(c) for c in of_model])
        clauses.append(
            f"{model_name(findings, model)}, {gain} of states gain, and the best 10 % of states hold {held} of the "
            "opportunity"
        )
    where = "On the pairs where opportunity was shown" if sure else "On the pairs where there is a hint"
    return " ".join([f"{where}: {'; '.join(clauses)} (10 % if it were spread evenly).", *_by_stage(findings)])


def concentrated_in_short(findings: OpportunityFindings) -> str:
    """The same in one sentence that needs no definition."""
    sure, hints = _shown(findings.cells)
    cells = sure or hints
    if not cells:
        return "Not known: there is no gain that could be concentrated."
    held = [_top(c).value for c in cells]
    least, most = (f"{100 * end:.0f} %" for end in (min(held), max(held)))
    parts = least if least == most else f"{least} to {most}"
    said = "In few states" if min(held) >= _MOST else "In part" if min(held) >= _MORE else "Hardly"
    hint = "" if sure else ", as far as hints go"
    return f"{said}: the best tenth of states holds {parts} of the gain{hint}."


def _by_stage(findings: OpportunityFindings) -> Iterator[str]:
    clauses = []
    for model, means in by_model(findings.means).items():
        best = max(means, key=lambda m: m.overall["delta"].value)
        if best.overall["delta"].positive and not best.overall.unreliable:
            parts = [f"{number(part['delta'].value)} ({STAGE_NAMES[k]})" for k, part in best.stages.items()]
            clauses.append(f"{model_name(findings, model)}, {best.axis}: {', '.join(parts)}")
    if clauses:
        yield f"Mean Δ_adapt of the largest axis by stage, {'; '.join(clauses)}."


def _top(cell: OpportunityCell) -> Estimate:
    return cell.overall["concentration", 0.1]


def _range(values: Sequence[Estimate]) -> str:
    """One number with its interval, or from the least to the most."""
    if len(values) == 1:
        return share(values[0])
    least, most = (share(pick(v.value for v in values)) for pick in (min, max))
    return least if least == most else f"{least} to {most}"
