"""The table of a comparison on screen: utilities by task, then what they cost; in two parts where it is too wide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan, nan

from rich.table import Table

from unmask.lab.compare_failed import LeftOut
from unmask.lab.compare_speed import SpeedLine, SpeedSummary
from unmask.lab.compare_summary import MACRO, NEAR_ZERO, CompareSummary, PolicyLine
from unmask.methods import RECONSTRUCTION
from unmask.report.formats import counted

ABOVE, BELOW, RECONSTRUCTED, SURE, UNSURE = "↑", "↓", "†", "●", "○"
LEGEND = f"{ABOVE} better than the reference on the same prompts, {BELOW} worse: the 95 % interval leaves out zero."
FRONT_LEGEND = (
    f"front: {UNSURE} no other policy has at least this utility for no more forwards; {SURE} beyond noise: better than "
    "each that needs no more forwards (so is the cheapest, however bad), the paired interval leaves out zero."
)
LABEL_LEGEND = f"{RECONSTRUCTED} reconstruction: parts are ours, or untested against its authors' files."
TIME_LEGEND = "Wall time is to be compared within one run on one machine only; no other number depends on it."
_WIDEST_NAME, _NARROWEST_NAME, _TASK = 32, 10, 6
_ESSENTIAL = 4
"""Columns of cost that every table has."""


@dataclass(frozen=True)
class CostCells:
    """What a policy costs, over the tasks that are averaged or, where it did not decode all of these, over its own."""

    forwards: float
    forwards_ratio: float
    answer_tokens_per_forward: float
    extra_forwards: float
    planner_forwards: float
    remasks: float
    processed_tokens: float
    seconds: float
    seconds_ratio: float
    answer_tokens_per_second: float
    front: str
    own: bool
    """Not over the tasks of the others."""


@dataclass(frozen=True)
class _CostColumn:
    head: str
    width: int
    show: Callable[[CostCells], str]


_COSTS = (
    _CostColumn("for wards", 6, lambda c: _decimals(c.forwards) + ("~" if c.own else "")),
    _CostColumn("tokens /fwd", 6, lambda c: _decimals(c.answer_tokens_per_forward, 2)),
    _CostColumn("ms/ prompt", 6, lambda c: _decimals(1000 * c.seconds)),
    _CostColumn("front", 5, lambda c: c.front),
    _CostColumn("x fwd", 5, lambda c: _decimals(c.forwards_ratio, 2)),
    _CostColumn("x time", 5, lambda c: _decimals(c.seconds_ratio, 2)),
    _CostColumn("re- masks", 6, lambda c: _decimals(c.remasks)),
    _CostColumn("extra fwd", 6, lambda c: _decimals(c.extra_forwards)),
    _CostColumn("tokens read", 7, lambda c: f"{c.processed_tokens:.0f}"),
    _CostColumn("tokens /s", 7, lambda c: _decimals(c.answer_tokens_per_second, 0)),
    _CostColumn("planner fwd", 7, lambda c: _decimals(c.planner_forwards)),
)
"""The most wanted first; a wide terminal shows more of them."""


def screens(summary: CompareSummary, speed: SpeedSummary | None = None, width: int = 100) -> list[Table]:
    """Policies by tasks and costs, within so many characters where that is possible."""
    policies = list(dict.fromkeys(line.policy for line in summary.lines))
    tasks = [task for task in summary.shown if task != MACRO]
    columns = [*tasks, *([MACRO] if summary.macro and len(tasks) > 1 else [])]
    labels = {line.policy: shown_name(line) for line in summary.lines}
    longest = max([_NARROWEST_NAME, *(len(label) for label in labels.values())])
    name = min(longest, max(_WIDEST_NAME, width // 3))
    utilities = (name + 1) + (_TASK + 1) * len(columns)
    essential = sum(column.width + 1 for column in _COSTS[:_ESSENTIAL])
    together = utilities + essential <= max(width, 60)
    table = _table(name)
    for task in columns:
        table.add_column(_head(task), justify="right", overflow="fold", width=_TASK)
    cells = {policy: costs_of(summary, speed, policy) for policy in policies}
    wanted = _COSTS if any(cell.planner_forwards for cell in cells.values()) else _COSTS[:-1]
    costs = _fitting(wanted, width - (utilities if together else name + 1))
    second = table if together else _table(name)
    for column in costs:
        second.add_column(column.head, justify="right", overflow="fold", width=column.width)
    lines = {(line.task, line.policy): line for line in (*summary.lines, *summary.macro)}
    for policy in policies:
        worth = [_utility(lines.get((task, policy))) for task in columns]
        spent = [column.show(cells[policy]) for column in costs]
        style = "bold" if policy == summary.reference else ""
        table.add_row(labels[policy], *worth, *(spent if together else ()), style=style)
        if not together:
            second.add_row(labels[policy], *spent, style=style)
    return [table] if together else [table, second]


def costs_of(summary: CompareSummary, speed: SpeedSummary | None, policy: str) -> CostCells:
    """Of the mean over tasks, or the mean of the policy's own lines."""
    macro = [line for line in summary.macro if line.policy == policy]
    lines = macro or [line for line in summary.lines if line.policy == policy]
    tasks = {line.task for line in lines}
    timed = [] if speed is None else [x for task in tasks for x in speed.of(task) if x.policy == policy]

    def counted_mean(get: Callable[[PolicyLine], float]) -> float:
        return sum(map(get, lines)) / len(lines)

    def timed_mean(get: Callable[[SpeedLine], float]) -> float:
        return sum(map(get, timed)) / len(timed) if timed else nan

    return CostCells(
        forwards=counted_mean(lambda x: x.forwards.value),
        forwards_ratio=counted_mean(lambda x: x.forwards_ratio.value),
        answer_tokens_per_forward=counted_mean(lambda x: x.answer_tokens_per_forward.value),
        extra_forwards=counted_mean(lambda x: x.extra_forwards),
        planner_forwards=counted_mean(lambda x: x.planner_forwards),
        remasks=counted_mean(lambda x: x.remasks),
        processed_tokens=counted_mean(lambda x: x.processed_tokens),
        seconds=timed_mean(lambda x: x.seconds.value),
        seconds_ratio=timed_mean(lambda x: x.ratio.value),
        answer_tokens_per_second=timed_mean(lambda x: x.answer_tokens_per_second.value),
        front=front_mark(macro[0]) if macro else "",
        own=not macro and len(summary.shown) > 1,
    )


def shown_name(line: PolicyLine) -> str:
    """A policy's name, with a mark where the method is a reconstruction."""
    return line.policy + (RECONSTRUCTED if line.label == RECONSTRUCTION else "")


def front_mark(line: PolicyLine) -> str:
    return SURE if line.sure else UNSURE if line.front else ""


def mark(line: PolicyLine) -> str:
    """An arrow where the difference to the reference is beyond noise."""
    return ABOVE if line.difference.low > 0 else BELOW if line.difference.high < 0 else ""


def verdict(summary: CompareSummary) -> list[str]:
    """What is cheapest without a loss, and what is best, in a sentence each; nothing where nothing is compared."""
    task = MACRO if summary.macro else next(iter(summary.shown), "")
    lines = {line.policy: line for line in summary.of(task)}
    if len(lines) < 2 or summary.reference not in lines:
        return []
    reference, cheap, best = lines[summary.reference], summary.cheapest(task), summary.best(task)
    if cheap is None:
        said = ["No policy saves forwards without losing utility beyond noise."]
    else:
        said = [
            f"Cheapest without a loss beyond noise: {cheap.policy}, {cheap.forwards.value:.1f} forwards per answer "
            f"instead of {reference.forwards.value:.1f}, {_against(cheap)}."
        ]
    if best is not None and best.difference.low > 0:
        said.append(f"Best: {best.policy}, {_against(best)}, for {best.forwards.value:.1f} forwards.")
    return said


def _against(line: PolicyLine) -> str:
    gain = line.difference
    return (
        f"utility {line.utility.value:.3f} ({gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] on {gain.n} prompts)"
    )


def legends(summary: CompareSummary, speed: SpeedSummary | None = None) -> list[str]:
    """What the signs mean, those that are there."""
    reconstructed = any(line.label == RECONSTRUCTION for line in summary.lines)
    own = any(costs_of(summary, None, line.policy).own for line in summary.lines)
    return [
        LEGEND,
        FRONT_LEGEND,
        "x fwd, x time: how many times the reference's. tokens /fwd, /s: of the answer, without what fills it up.",
        *([LABEL_LEGEND] if reconstructed else []),
        *(["~ over the tasks that it decoded, not those of the mean."] if own else []),
        *([TIME_LEGEND] if speed is not None else []),
    ]


def remarks(summary: CompareSummary) -> list[str]:
    """What is missing from the table, in words."""
    lines = [f"{run.task}: not available ({run.unavailable})" for run in summary.tasks if run.unavailable]
    lines += [
        f"{run.task}: {counted(run.skipped, 'prompt')} skipped, longer with the answer than the model's limit"
        for run in summary.tasks
        if run.skipped
    ]
    near = f"no policy's mean utility reaches {NEAR_ZERO:g}"
    lines += [f"{task}: near 0, shown and not averaged ({near})" for task in summary.near_zero]
    lines += [f"{task}: shown and not averaged (--macro-without)" for task in summary.without]
    lines += _left_out(summary.left_out)
    made_for = {line.policy: line.made_for for line in summary.lines if line.made_for}
    lines += [
        f"{policy} is made for {what}: at other settings it is not what its authors run"
        for policy, what in made_for.items()
    ]
    for line in summary.lines:
        if line.unscored:
            lines.append(f"{line.task}: {counted(line.unscored, 'answer')} of {line.policy} could not be judged")
    return lines


def _left_out(left_out: Sequence[LeftOut]) -> list[str]:
    """Each reason once, with the policies that share it on the same tasks."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for left in left_out:
        tasks.setdefault((left.policy, left.reason), []).append(left.task)
    policies: dict[tuple[str, str], list[str]] = {}
    for (policy, reason), where in tasks.items():
        policies.setdefault((", ".join(where), reason), []).append(policy)
    return [f"{where}: without {', '.join(names)} ({reason})" for (where, reason), names in policies.items()]


def time_remarks(speed: SpeedSummary) -> list[str]:
    """Where seconds came from, and what is in them."""
    lines = []
    if speed.earlier:
        where = f", {speed.elsewhere} of them on another machine or device" if speed.elsewhere else ""
        lines.append(
            f"seconds of {counted(speed.earlier, 'batch')} are of an earlier run{where}"
            + (f"; those of {counted(speed.measured, 'batch')} are of this one" if speed.measured else "")
        )
    if speed.unknown:
        lines.append(f"seconds of {counted(speed.unknown, 'batch')} are lost: the answers count, the time does not")
    if any(line.cold for line in speed.lines):
        lines.append("seconds are those of first batches: compiling and recording is in them; --warm-up keeps it out")
    return lines


def _fitting(wanted: Sequence[_CostColumn], room: int) -> list[_CostColumn]:
    """The columns that there is room for, and those that nobody can do without."""
    chosen = list(wanted[:_ESSENTIAL])
    room -= sum(column.width + 1 for column in chosen)
    for column in wanted[_ESSENTIAL:]:
        room -= column.width + 1
        if room < 0:
            break
        chosen.append(column)
    return chosen


def _table(name: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("policy", overflow="fold", min_width=_NARROWEST_NAME, max_width=name)
    return table


def _head(task: str) -> str:
    return "mean" if task == MACRO else task.replace("-", " ")


def _utility(line: PolicyLine | None) -> str:
    if line is None:
        return ""
    return ("none" if isnan(line.utility.value) else f"{line.utility.value:.3f}") + (mark(line) or " ")


def _decimals(value: float, places: int = 1) -> str:
    return "–" if isnan(value) else f"{value:.{places}f}"


def panel_title(summary: CompareSummary, task: str) -> str:
    """A task with its size, or the mean with how many tasks it is of."""
    if task == MACRO:
        return f"Mean over {counted(len(summary.macro_tasks), 'task')}"
    run = next(run for run in summary.tasks if run.task == task)
    return f"{task} (horizon {run.horizon}, {counted(run.steps, 'step')})"
