"""What is said of a comparison: conclusions, what is missing and why, marks and their legends, numbers as text."""

from collections.abc import Mapping, Sequence
from math import isfinite, isnan
from typing import Any

from unmask.lab.compare import CompareSummary, SpeedSummary
from unmask.lab.compare.run import LeftOut
from unmask.lab.compare.summary import MACRO, NEAR_ZERO
from unmask.methods import RECONSTRUCTION
from unmask.report.table import count_noun

OWN = "own"
"""Label of a policy of the user's own."""
ABOVE, BELOW, RECONSTRUCTED, OWN_MARK, SURE, UNSURE = "↑", "↓", "†", "*", "●", "○"
LEGEND = f"{ABOVE} better than the reference on the same prompts, {BELOW} worse: the 95 % interval leaves out zero."
FRONT_LEGEND = (
    f"front: {UNSURE} no other policy has at least this utility for no more forwards; {SURE} beyond noise: better than "
    "each that needs no more forwards (so is the cheapest, however bad), the paired interval leaves out zero."
)
LABEL_LEGENDS = {
    RECONSTRUCTION: f"{RECONSTRUCTED} reconstruction: parts are ours, or untested against its authors' files.",
    OWN: f"{OWN_MARK} a method of your own.",
}
TIME_LEGEND = "Wall time is to be compared within one run on one machine only; no other number depends on it."

Line = Mapping[str, Any]
"""A line of a summary: columns by name."""


def conclusions(summary: CompareSummary) -> list[str]:
    """Say what is cheapest without a loss, and what is best, in a sentence each; nothing where nothing is compared."""
    task = MACRO if MACRO in summary.line_tasks else next(iter(summary.line_tasks), "")
    lines = summary.of(task)
    if len(lines) < 2 or summary.reference not in set(lines["policy"]):
        return []
    reference, cheap, best = summary.line(task, summary.reference), summary.cheapest(task), summary.best(task)
    if cheap is None:
        words = ["No policy saves forwards without losing utility beyond noise."]
    else:
        words = [
            f"Cheapest without a loss beyond noise: {cheap['policy']}, {cheap['forwards']:.1f} forwards per answer "
            f"instead of {reference['forwards']:.1f}, {_gain(cheap)}."
        ]
    if best is not None and best["difference_low"] > 0:
        words.append(f"Best: {best['policy']}, {_gain(best)}, for {best['forwards']:.1f} forwards.")
    return words


def _gain(line: Line) -> str:
    return f"utility {line['utility']:.3f} ({format_measure(line, 'difference', 3)} on {line['difference_n']} prompts)"


def remarks(summary: CompareSummary) -> list[str]:
    """Say what is missing from the tables, and why."""
    lines = [f"{run.task}: not available ({run.unavailable})" for run in summary.tasks if run.unavailable]
    lines += [
        f"{run.task}: {count_noun(run.skipped, 'prompt')} skipped, longer with the answer than the model's limit"
        for run in summary.tasks
        if run.skipped
    ]
    near = f"no policy's mean utility reaches {NEAR_ZERO:g}"
    lines += [f"{task}: near 0, shown and not averaged ({near})" for task in summary.near_zero]
    lines += [f"{task}: shown and not averaged" for task in summary.without]
    lines += _left_out(summary.left_out)
    of_tasks = summary.lines[summary.lines["task"] != MACRO]
    for policy, made_for in dict(zip(of_tasks["policy"], of_tasks["made_for"], strict=True)).items():
        if made_for:
            lines.append(f"{policy} is made for {made_for}: at other settings it is not what its authors run")
    for line in of_tasks[of_tasks["unscored"] > 0].to_dict("records"):
        lines.append(
            f"{line['task']}: {count_noun(line['unscored'], 'answer')} of {line['policy']} could not be judged"
        )
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
    """Say where seconds came from, and what is in them."""
    lines = []
    if speed.earlier:
        where = f", {speed.elsewhere} of them on another machine or device" if speed.elsewhere else ""
        lines.append(
            f"seconds of {count_noun(speed.earlier, 'batch')} are of an earlier run{where}"
            + (f"; those of {count_noun(speed.measured, 'batch')} are of this one" if speed.measured else "")
        )
    if speed.unknown:
        lines.append(f"seconds of {count_noun(speed.unknown, 'batch')} are lost: the answers count, the time does not")
    if speed.lines["cold"].any():
        lines.append(
            "seconds are those of first batches: compiling and recording is in them; warm_up=True in Python keeps it out"
        )
    return lines


def label_legends(summary: CompareSummary) -> list[str]:
    """Explain the marks of the labels that are there."""
    return [text for label, text in LABEL_LEGENDS.items() if label in set(summary.lines["label"])]


def panel_title(summary: CompareSummary, task: str) -> str:
    """Name a task with its size, or the mean with how many tasks it is of."""
    if task == MACRO:
        return f"Mean over {count_noun(len(summary.macro_tasks), 'task')}"
    run = next(run for run in summary.tasks if run.task == task)
    return f"{task} (horizon {run.horizon}, {count_noun(run.steps, 'step')})"


def shown_name(line: Line) -> str:
    """Return a policy's name with the mark of its label; of a class in a file of one's own, without the folder."""
    name = str(line["policy"])
    if line["label"] == OWN:
        return name.rpartition("/")[2] + OWN_MARK
    return name + (RECONSTRUCTED if line["label"] == RECONSTRUCTION else "")


def front_mark(line: Line) -> str:
    """Return the mark of the Pareto front's members."""
    return SURE if line["sure"] else UNSURE if line["front"] else ""


def gain_mark(line: Line) -> str:
    """Return an arrow where the difference to the reference is beyond noise."""
    return ABOVE if line["difference_low"] > 0 else BELOW if line["difference_high"] < 0 else ""


def format_measure(line: Line, name: str, places: int, none: str = "none") -> str:
    """Format a measure with its interval; differences have signs."""
    value, low, high = line[name], line[f"{name}_low"], line[f"{name}_high"]
    if not isfinite(value):
        return none
    spec = f"+.{places}f" if name == "difference" else f".{places}f"
    return f"{value:{spec}}" + (f" [{low:{spec}}, {high:{spec}}]" if isfinite(low) else "")


def format_number(value: float, places: int = 1) -> str:
    """Format a number without an interval."""
    return "–" if isnan(value) else f"{value:.{places}f}"


def sign_legends(summary: CompareSummary, speed: SpeedSummary | None = None) -> list[str]:
    """Explain the signs that stand in the tables."""
    averaged = set(summary.of(MACRO)["policy"])
    own = len(summary.line_tasks) > 1 and not set(summary.lines["policy"]) <= averaged
    return [
        LEGEND,
        FRONT_LEGEND,
        "x fwd, x time: how many times the reference's. tokens /fwd, /s: of the answer, without what fills it up.",
        *label_legends(summary),
        *(["~ over the tasks that it decoded, not those of the mean."] if own else []),
        *([TIME_LEGEND] if speed is not None else []),
    ]
