"""The tables of E4: what the arms are worth when they decode whole answers."""

from collections.abc import Sequence
from enum import StrEnum
from math import isnan

from unmask.lab.analysis.end_to_end import ARMS, CHOSEN, EndToEndCell, EndToEndFindings, EndToEndMean, JointCell
from unmask.policies.candidates import AXES
from unmask.report.tables.opportunity import CELL, Column, Sheet, Value, count, number, share, text_or_none
from unmask.stats import Estimate
from unmask.stats.opportunity import FEWEST

MEAN = "mean over tasks"
GAIN = ("selective", "fixed")

ARM_HEADS = dict(zip(ARMS, ("Ref.", "Fixed", "Stage", "Always", "Selective"), strict=True))


class EndToEndVerdict(StrEnum):
    """What the interval of a paired difference allows to say."""

    BETTER = "better"
    WORSE = "worse"
    HINT_BETTER = "hint of better: too few prompts differ"
    HINT_WORSE = "hint of worse: too few prompts differ"
    NOTHING = "not significant"
    NEVER = "never deviates"
    UNKNOWN = "not known: no prompt was judged"


def verdict(difference: Estimate, differ: int, never: str = "") -> EndToEndVerdict:
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
    return verdict(cell.difference[GAIN], cell.wins + cell.losses, cell.never)


def chosen_cells(found: EndToEndFindings, model: str | None = None) -> tuple[EndToEndCell, ...]:
    """On the axis that validation chose for each task."""
    return tuple(c for c in found.cells if c.chosen and model in (None, c.model))


def averaged(found: EndToEndFindings, mean: EndToEndMean) -> tuple[EndToEndCell, ...]:
    """The cells that a mean is over."""
    mine = [c for c in found.cells if c.model == mean.model and c.task in mean.tasks]
    return tuple(c for c in mine if (c.chosen if mean.axis == CHOSEN else c.axis == mean.axis))


def mean_verdict(found: EndToEndFindings, mean: EndToEndMean) -> EndToEndVerdict:
    """A mean never deviates where none of its cells does."""
    cells = averaged(found, mean)
    never = "all" if cells and all(c.never for c in cells) else ""
    return verdict(mean.difference[GAIN], sum(c.wins + c.losses for c in cells), never)


def score_line(mean: EndToEndMean) -> str:
    """Tasks won and lost, and how many of them by more than chance."""
    return (
        f"{mean.better} better, {mean.worse} worse, {mean.same} same; intervals exclude 0 on "
        f"{mean.significant_up} above, {mean.significant_down} below"
    )


def covered(cell: EndToEndCell, arm: str = "selective") -> str:
    """Coverage for people."""
    value = cell.coverage[arm]
    if not isnan(value):
        return share(value)
    return EndToEndVerdict.NEVER if cell.never and arm != "always" else "no step had a signal"


# By arm


_COVERAGE = (Column("coverage", "", share), Column("", "Coverage"))
_DELTA = Column("delta", "Δ = Selective − Fixed", number, wide=True)
_VERDICT = (Column("verdict", ""), Column("", "interval of Δ", left=True))
_PROMPTS = (
    Column("wins", "won", count),
    Column("losses", "lost", count),
    Column("ties", "tied", count),
    Column("prompts", "prompts", count),
    Column("unjudged", "unjudged", count),
)
_SCORES = tuple(Column(key, "") for key in ("better", "worse", "same", "significant_up", "significant_down"))


def _value(value: Value) -> str:
    """Without the interval, which CSV has: so many do not fit."""
    return number(value.value) if isinstance(value, Estimate) else number(value)


_ARMS = tuple(Column(arm, head, _value, wide=True) for arm, head in ARM_HEADS.items())


def full_sheet(found: EndToEndFindings) -> Sheet:
    columns = (
        *CELL,
        *_ARMS,
        _DELTA,
        *_COVERAGE,
        *_VERDICT,
        *_SCORES,
        Column("partial", "note", left=True, show=text_or_none),
        *_PROMPTS,
    )
    rows: list[tuple[Value, ...]] = []
    for model in dict.fromkeys(c.model for c in found.cells):
        rows += [
            (
                *_key(c),
                *(c.utility[arm] for arm in ARMS),
                c.difference[GAIN],
                c.coverage["selective"],
                covered(c),
                *(cell_verdict(c),) * 2,
                *(None,) * len(_SCORES),
                "",
                *_prompts(c),
            )
            for c in chosen_cells(found, model)
        ]
        rows += [
            (
                model,
                MEAN,
                CHOSEN,
                *(m.utility[arm] for arm in ARMS),
                m.difference[GAIN],
                m.coverage,
                _mean_coverage(m),
                *_mean_said(found, m),
                *(m.better, m.worse, m.same, m.significant_up, m.significant_down),
                m.partial,
                *_sums(averaged(found, m)),
            )
            for m in found.means
            if (m.model, m.axis) == (model, CHOSEN)
        ]
    return Sheet(
        "e4-end-to-end",
        "End to end, on the axis that validation chose",
        "Mean utility of whole answers, every step decided by the arm. Fixed: best on validation states; stage: the "
        "best of each stage; always: the diagnostic's action wherever it proposes one; selective: where the "
        "detector's prediction reaches tau. Δ has a paired 95 % interval over prompts. Coverage: share of the steps "
        "with a signal at which selective deviates. The mean counts each task the same; its line says on how many "
        "tasks Δ is above, below or equal to zero, and on how many of them the interval excludes zero. Won, lost, "
        "tied: prompts. Unjudged: prompts left out because the answer of some arm could not be judged.",
        columns,
        tuple(rows),
        empty="None: no axis could be chosen; the reasons are below.",
    )


def _key(cell: EndToEndCell) -> tuple[Value, ...]:
    return cell.model, cell.task, cell.axis


def _prompts(cell: EndToEndCell) -> tuple[Value, ...]:
    return cell.wins, cell.losses, cell.ties, cell.prompts, cell.unjudged


def _sums(cells: Sequence[EndToEndCell]) -> tuple[Value, ...]:
    keys = ("wins", "losses", "ties", "prompts", "unjudged")
    return tuple(sum(getattr(c, key) for c in cells) for key in keys)


def _mean_said(found: EndToEndFindings, mean: EndToEndMean) -> tuple[Value, ...]:
    said = mean_verdict(found, mean)
    return said, f"{said}; {score_line(mean)}"


def _mean_coverage(mean: EndToEndMean) -> str:
    return "no step had a signal" if isnan(mean.coverage) else share(mean.coverage)


def axes_sheet(found: EndToEndFindings, suffix: str = "") -> Sheet:
    """Every axis, whether chosen or not."""
    pairs = {
        "over_reference": (("selective", "reference"), "Selective − Ref."),
        "over_always": (("selective", "always"), "Selective − Always"),
        "always_over_fixed": (("always", "fixed"), "Always − Fixed"),
        "fixed_over_reference": (("fixed", "reference"), "Fixed − Ref."),
    }
    columns = (
        *CELL,
        Column("chosen", "chosen", _yes),
        Column("fixed_name", "fixed action", left=True, show=text_or_none),
        *_ARMS,
        _DELTA,
        *_VERDICT,
        *_COVERAGE,
        *(Column(key, head, number, wide=True) for key, (_, head) in pairs.items()),
        Column("out_of_fold", "out-of-fold lift on validation", number),
        Column("never", "why the gate never opens", left=True, show=text_or_none),
        Column("partial", "note", left=True, show=text_or_none),
        *_PROMPTS,
    )
    rows: list[tuple[Value, ...]] = [
        (
            *_key(c),
            c.chosen,
            c.fixed_name,
            *(c.utility[arm] for arm in ARMS),
            c.difference[GAIN],
            *(cell_verdict(c),) * 2,
            c.coverage["selective"],
            covered(c),
            *(c.difference[pair] for pair, _ in pairs.values()),
            c.out_of_fold,
            c.never,
            "",
            *_prompts(c),
        )
        for c in found.cells
    ]
    rows += [
        (
            *(m.model, MEAN, m.axis),
            None,
            "",
            *(m.utility[arm] for arm in ARMS),
            m.difference[GAIN],
            *_mean_said(found, m),
            m.coverage,
            _mean_coverage(m),
            *(m.difference[pair] for pair, _ in pairs.values()),
            None,
            "",
            m.partial,
            *_sums(averaged(found, m)),
        )
        for m in found.means
        if m.axis != CHOSEN
    ]
    return Sheet(
        f"e4-axes{suffix}",
        "End to end, every axis",
        "The same arms on each axis, chosen or not, with all paired differences. The axis is chosen by the gate's "
        "out-of-fold lift on validation; a gate that never opens decodes as the fixed action.",
        columns,
        tuple(rows),
        empty="None.",
    )


def _yes(value: Value) -> str:
    return "" if value is None else "yes" if value else "no"


def controls_sheet(found: EndToEndFindings, suffix: str = "") -> Sheet:
    columns = (
        *CELL,
        Column("chosen", "chosen", _yes),
        Column("selective", "Selective", _value, wide=True),
        Column("end_to_end_name", "best fixed end to end", left=True, show=text_or_none),
        *_compared("end_to_end_fixed", "its utility", "Selective − it"),
        *_compared("random_gate", "Random gate", "Selective − random"),
        *_COVERAGE,
        Column("random_gate_coverage", ""),
        Column("", "of the random gate"),
    )
    rows: list[tuple[Value, ...]] = [
        (
            *_key(c),
            c.chosen,
            c.utility["selective"],
            c.end_to_end_name,
            *_against(c, "end-to-end fixed"),
            *_against(c, "random gate"),
            c.coverage["selective"],
            covered(c),
            c.coverage["random gate"],
            covered(c, "random gate"),
        )
        for c in found.cells
    ]
    rows += [
        (
            *(m.model, MEAN, m.axis),
            None,
            m.utility["selective"],
            "",
            *_against(m, "end-to-end fixed"),
            *_against(m, "random gate"),
            m.coverage,
            _mean_coverage(m),
            None,
            "",
        )
        for m in found.means
    ]
    return Sheet(
        f"e4-controls{suffix}",
        "Controls",
        "Best fixed end to end: the candidate whose whole answers are best on validation prompts, which may be harder "
        "to beat than the best of single steps. Random gate: takes the same actions at random, as often as selective "
        "did; mean of several draws. What is not better than that does not come from the signal.",
        columns,
        tuple(rows),
        empty="None.",
    )


def _compared(key: str, head: str, difference: str) -> tuple[Column, ...]:
    return (
        Column(key, head, _value, wide=True),
        Column(f"over_{key}", difference, number, wide=True),
        Column(f"over_{key}_verdict", "interval", left=True),
    )


def _against(row: EndToEndCell | EndToEndMean, control: str) -> tuple[Value, ...]:
    difference = row.difference["selective", control]
    return row.utility[control], difference, plain_verdict(difference)


def plain_verdict(difference: Estimate) -> EndToEndVerdict:
    """Of a difference whose prompts won and lost are not counted."""
    return verdict(difference, FEWEST)


# Beyond the paper, and what is not there


_JOINT = ("reference", "joint fixed", "joint", "selective")
_JOINT_PAIRS = {
    "over_reference": (("joint", "reference"), "Joint − Ref."),
    "over_joint_fixed": (("joint", "joint fixed"), "Joint − Joint fixed"),
    "over_selective": (("joint", "selective"), "Joint − Selective"),
}


def joint_sheet(found: EndToEndFindings) -> Sheet:
    heads = ("Ref.", "Joint fixed", "Joint", "Selective, chosen axis")
    columns = (
        *CELL[:2],
        Column("axes", "axes", left=True),
        *(Column(arm.replace(" ", "_"), head, _value, wide=True) for arm, head in zip(_JOINT, heads, strict=True)),
        *(
            column
            for key, (_, head) in _JOINT_PAIRS.items()
            for column in (Column(key, head, number, wide=True), Column(f"{key}_verdict", "interval", left=True))
        ),
        *(Column(f"coverage_{axis}", "") for axis in AXES),
        Column("", "Coverage by axis", left=True),
        *_PROMPTS[-2:],
    )
    return Sheet(
        "e4-joint",
        "All axes together",
        "Joint fixed: the fixed action of every axis at once. Joint: each axis deviates from it where its own gate "
        "opens. The gates were calibrated one at a time. Beside them the selective arm of the chosen axis alone.",
        columns,
        tuple(
            (
                *(j.model, j.task),
                ", ".join(j.axes),
                *(j.utility[arm] for arm in _JOINT),
                *(x for pair, _ in _JOINT_PAIRS.values() for x in _joint_difference(j, pair)),
                *(j.coverage.get(axis) for axis in AXES),
                ", ".join(f"{axis} {_joint_coverage(j, axis)}" for axis in j.axes),
                *(j.prompts, j.unjudged),
            )
            for j in found.joints
        ),
        empty="None.",
    )


def _joint_difference(cell: JointCell, pair: tuple[str, str]) -> tuple[Value, ...]:
    difference = cell.difference[pair]
    return difference, plain_verdict(difference)


def _joint_coverage(cell: JointCell, axis: str) -> str:
    value = cell.coverage.get(axis, float("nan"))
    return "no signal" if isnan(value) else share(value)


def missing_sheet(found: EndToEndFindings) -> Sheet:
    return Sheet(
        "e4-missing",
        "End to end without numbers",
        "Models, tasks and axes that were to be decoded end to end and that nothing is reported on.",
        (*CELL, Column("reason", "reason", left=True)),
        tuple((m.model, m.task, m.axis, m.reason) for m in found.missing),
        empty="None: every model, task and diagnosed axis has numbers.",
    )
