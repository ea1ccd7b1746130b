"""What intervals allow to say, and which results a sentence or a table is about."""

from enum import StrEnum
from math import isnan

from unmask.lab.analysis.detection import SettingOutcome
from unmask.lab.analysis.end_to_end import CHOSEN, EndToEndCell, EndToEndFindings, EndToEndMean
from unmask.stats import FEWEST, Estimate

GAIN = ("selective", "fixed")
"""The difference that end-to-end verdicts are about."""

# One step at a time


class DetectionVerdict(StrEnum):
    """What the interval of the selective policy's lift allows to say."""

    LIFT = "lift"
    HINT = "hint: too few prompts"
    NOTHING = "no significant lift"
    LOSS = "loss"
    NEVER = "never deviates"


def lift_verdict(outcome: SettingOutcome) -> DetectionVerdict:
    lift = outcome.measures["lift", "selective"]
    if outcome.calibration.tau.value is None:
        return DetectionVerdict.NEVER
    if lift.positive:
        return DetectionVerdict.HINT if outcome.measures.unreliable else DetectionVerdict.LIFT
    return DetectionVerdict.LOSS if lift.high < 0 else DetectionVerdict.NOTHING


# Two detectors


class RivalVerdict(StrEnum):
    """What the interval of learned less bins allows to say."""

    BETTER = "better"
    HINT_BETTER = "hint of better: too few prompts"
    NOTHING = "not significant"
    HINT_WORSE = "hint of worse: too few prompts"
    WORSE = "worse"


def rival_verdict(difference: Estimate, unreliable: str) -> RivalVerdict:
    if difference.positive:
        return RivalVerdict.HINT_BETTER if unreliable else RivalVerdict.BETTER
    if difference.high < 0:
        return RivalVerdict.HINT_WORSE if unreliable else RivalVerdict.WORSE
    return RivalVerdict.NOTHING


# Whole answers


class EndToEndVerdict(StrEnum):
    """What the interval of a paired difference allows to say."""

    BETTER = "better"
    WORSE = "worse"
    HINT_BETTER = "hint of better: too few prompts differ"
    HINT_WORSE = "hint of worse: too few prompts differ"
    NOTHING = "not significant"
    NEVER = "never deviates"
    UNKNOWN = "not known: no prompt was judged"


def paired_verdict(difference: Estimate, differ: int, never: str = "") -> EndToEndVerdict:
    """`differ`: prompts on which the two differ; an interval over few of them is too short to rely on."""
    if isnan(difference.value):
        return EndToEndVerdict.UNKNOWN
    if never:
        return EndToEndVerdict.NEVER
    few = differ < FEWEST
    if difference.low > 0:
        return EndToEndVerdict.HINT_BETTER if few else EndToEndVerdict.BETTER
    if difference.high < 0:
        return EndToEndVerdict.HINT_WORSE if few else EndToEndVerdict.WORSE
    return EndToEndVerdict.NOTHING


def cell_verdict(cell: EndToEndCell) -> EndToEndVerdict:
    return paired_verdict(cell.difference[GAIN], cell.wins + cell.losses, cell.never)


def chosen_cells(findings: EndToEndFindings, model: str | None = None) -> tuple[EndToEndCell, ...]:
    """On the axis that validation chose for each task."""
    return tuple(c for c in findings.cells if c.chosen and model in (None, c.model))


def averaged(findings: EndToEndFindings, mean: EndToEndMean) -> tuple[EndToEndCell, ...]:
    """The cells that a mean is over."""
    cells = [c for c in findings.cells if c.model == mean.model and c.task in mean.tasks]
    return tuple(c for c in cells if (c.chosen if mean.axis == CHOSEN else c.diagnostic == mean.diagnostic))


def mean_verdict(findings: EndToEndFindings, mean: EndToEndMean) -> EndToEndVerdict:
    """A mean never deviates where none of its cells does."""
    cells = averaged(findings, mean)
    never = "all" if cells and all(c.never for c in cells) else ""
    return paired_verdict(mean.difference[GAIN], sum(c.wins + c.losses for c in cells), never)


def score_line(mean: EndToEndMean) -> str:
    """Tasks won and lost, and how many of them by more than chance."""
    return (
        f"{mean.better} better, {mean.worse} worse, {mean.same} same; intervals exclude 0 on "
        f"{mean.significant_up} above, {mean.significant_down} below"
    )


def plain_verdict(difference: Estimate) -> EndToEndVerdict:
    """Of a difference whose prompts won and lost are not counted."""
    return paired_verdict(difference, FEWEST)


def chosen_means(findings: EndToEndFindings) -> list[EndToEndMean]:
    return [mean for mean in findings.means if mean.axis == CHOSEN]
