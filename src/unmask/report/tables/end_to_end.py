"""The tables of E4: what the arms are worth when they decode whole answers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isnan

from unmask.axes import AXES
from unmask.lab.analysis.end_to_end import (
    CHOSEN,
    DECODED_ARMS,
    EndToEndCell,
    EndToEndFindings,
    EndToEndMean,
    JointCell,
)
from unmask.report.formats import count, number, point, share, text_or_none, yes_no
from unmask.report.sheet import AnySheet, Column, Sheet, Value, attribute
from unmask.report.tables import shared
from unmask.report.tables.shared import MEAN, PARTIAL, counts, diagnosed, named
from unmask.report.verdicts import (
    GAIN,
    EndToEndVerdict,
    averaged,
    cell_verdict,
    chosen_cells,
    chosen_means,
    mean_verdict,
    plain_verdict,
    score_line,
)
from unmask.stats import Estimate

ARM_HEADS = dict(zip(DECODED_ARMS, ("Ref.", "Fixed", "Stage", "Always", "Selective"), strict=True))


def covered(cell: EndToEndCell, arm: str = "selective") -> str:
    """Coverage for people."""
    value = cell.coverage[arm]
    if not isnan(value):
        return share(value)
    return EndToEndVerdict.NEVER if cell.never and arm != "always" else "no step had a signal"


# By arm


@dataclass(frozen=True)
class ArmsRow:
    """A cell, or a mean over tasks, as a row of the tables by arm."""

    model: str
    task: str
    axis: str
    diagnostic: str
    utility: Mapping[str, Estimate]
    difference: Mapping[tuple[str, str], Estimate]
    coverage: float
    """Of the selective arm."""
    covered: str
    verdict: EndToEndVerdict
    said: str
    """The verdict for people."""
    wins: int
    losses: int
    ties: int
    prompts: int
    unjudged: int
    cell: EndToEndCell | None = None
    mean: EndToEndMean | None = None

    @property
    def partial(self) -> str:
        return self.mean.partial if self.mean else ""


def _cell_row(cell: EndToEndCell) -> ArmsRow:
    said = cell_verdict(cell)
    return ArmsRow(
        model=cell.model,
        task=cell.task,
        axis=cell.axis,
        diagnostic=cell.diagnostic,
        utility=cell.utility,
        difference=cell.difference,
        coverage=cell.coverage["selective"],
        covered=covered(cell),
        verdict=said,
        said=said,
        wins=cell.wins,
        losses=cell.losses,
        ties=cell.ties,
        prompts=cell.prompts,
        unjudged=cell.unjudged,
        cell=cell,
    )


def _mean_row(findings: EndToEndFindings, mean: EndToEndMean) -> ArmsRow:
    cells, said = averaged(findings, mean), mean_verdict(findings, mean)
    return ArmsRow(
        model=mean.model,
        task=MEAN,
        axis=mean.axis,
        diagnostic=mean.diagnostic,
        utility=mean.utility,
        difference=mean.difference,
        coverage=mean.coverage,
        covered="no step had a signal" if isnan(mean.coverage) else share(mean.coverage),
        verdict=said,
        said=f"{said}; {score_line(mean)}",
        wins=sum(c.wins for c in cells),
        losses=sum(c.losses for c in cells),
        ties=sum(c.ties for c in cells),
        prompts=sum(c.prompts for c in cells),
        unjudged=sum(c.unjudged for c in cells),
        mean=mean,
    )


def chosen_rows(findings: EndToEndFindings) -> Iterator[ArmsRow]:
    """Each model's tasks on the axis that validation chose, and then their mean."""
    for model in dict.fromkeys(c.model for c in findings.cells):
        yield from map(_cell_row, chosen_cells(findings, model))
        for mean in chosen_means(findings):
            if mean.model == model:
                yield _mean_row(findings, mean)


def _of_cell(get: Callable[[EndToEndCell], Value], otherwise: Value = None) -> Callable[[ArmsRow], Value]:
    """What only cells have."""
    return lambda row: otherwise if row.cell is None else get(row.cell)


def _of_mean(key: str) -> Column[ArmsRow]:
    """In files only: what only means have."""
    return Column(key, None, lambda row: None if row.mean is None else getattr(row.mean, key))


def _arm(key: str, head: str, arm: str) -> Column[ArmsRow | JointCell]:
    return Column(key, head, lambda row: row.utility[arm], point, wide=True)


def _difference(key: str, head: str, pair: tuple[str, str]) -> Column[ArmsRow | JointCell]:
    return Column(key, head, lambda row: row.difference[pair], number, wide=True)


def _plain_verdict_of(key: str, pair: tuple[str, str]) -> Column[ArmsRow | JointCell]:
    return Column(f"{key}_verdict", "interval", lambda row: plain_verdict(row.difference[pair]), left=True)


_ARMS = tuple(_arm(arm, head, arm) for arm, head in ARM_HEADS.items())
_DELTA = _difference("delta", "Δ = Selective − Fixed", GAIN)
_COVERAGE = (attribute("coverage", None), Column[ArmsRow](None, "Coverage", lambda row: row.covered))
_VERDICT = (
    attribute("verdict", None),
    Column[ArmsRow](None, "interval of Δ", lambda row: row.said, left=True),
)
_PARTIAL = attribute("partial", "note", text_or_none, left=True)
_CHOSEN = Column("chosen", "chosen", _of_cell(lambda cell: cell.chosen), yes_no)
_PROMPTS = (
    attribute("wins", "won", count),
    attribute("losses", "lost", count),
    attribute("ties", "tied", count),
    *counts("prompts", "unjudged"),
)


def full_sheet(findings: EndToEndFindings) -> AnySheet:
    columns: tuple[Column[ArmsRow], ...] = (
        *diagnosed(findings.cells, "model", "task"),
        *_ARMS,
        _DELTA,
        *_COVERAGE,
        *_VERDICT,
        *(_of_mean(key) for key in ("better", "worse", "same", "significant_up", "significant_down")),
        _PARTIAL,
        *_PROMPTS,
    )
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
        list(chosen_rows(findings)),
        empty="None: no axis could be chosen; the reasons are below.",
    )


def axes_sheet(findings: EndToEndFindings, suffix: str = "") -> AnySheet:
    """Every axis, whether chosen or not."""
    columns: tuple[Column[ArmsRow], ...] = (
        *diagnosed(findings.cells, "model", "task"),
        _CHOSEN,
        Column("fixed_name", "fixed action", _of_cell(lambda cell: cell.fixed_name, ""), text_or_none, left=True),
        *_ARMS,
        _DELTA,
        *_VERDICT,
        *_COVERAGE,
        _difference("over_reference", "Selective − Ref.", ("selective", "reference")),
        _difference("over_always", "Selective − Always", ("selective", "always")),
        _difference("always_over_fixed", "Always − Fixed", ("always", "fixed")),
        _difference("fixed_over_reference", "Fixed − Ref.", ("fixed", "reference")),
        Column("out_of_fold", "out-of-fold lift on validation", _of_cell(lambda cell: cell.out_of_fold), number),
        Column("never", "why the gate never opens", _of_cell(lambda cell: cell.never, ""), text_or_none, left=True),
        _PARTIAL,
        *_PROMPTS,
    )
    rows = [_cell_row(cell) for cell in findings.cells]
    rows += [_mean_row(findings, mean) for mean in findings.means if mean.axis != CHOSEN]
    return Sheet(
        f"e4-axes{suffix}",
        "End to end, every axis",
        "The same arms on each axis, chosen or not, with all paired differences. The axis is chosen by the gate's "
        "out-of-fold lift on validation; a gate that never opens decodes as the fixed action.",
        columns,
        rows,
        empty="None.",
    )


def controls_sheet(findings: EndToEndFindings, suffix: str = "") -> AnySheet:
    columns: tuple[Column[ArmsRow], ...] = (
        *diagnosed(findings.cells, "model", "task"),
        _CHOSEN,
        _arm("selective", "Selective", "selective"),
        Column(
            "end_to_end_name",
            "best fixed end to end",
            _of_cell(lambda cell: cell.end_to_end_name, ""),
            text_or_none,
            left=True,
        ),
        *_compared("end_to_end_fixed", "its utility", "Selective − it", "end-to-end fixed"),
        *_compared("random_gate", "Random gate", "Selective − random", "random gate"),
        *_COVERAGE,
        Column("random_gate_coverage", None, _of_cell(lambda cell: cell.coverage["random gate"])),
        Column(None, "of the random gate", _of_cell(lambda cell: covered(cell, "random gate"), "")),
    )
    return Sheet(
        f"e4-controls{suffix}",
        "Controls",
        "Best fixed end to end: the candidate whose whole answers are best on validation prompts, which may be harder "
        "to beat than the best of single steps. Random gate: takes the same actions at random, as often as selective "
        "did; mean of several draws. What is not better than that does not come from the signal.",
        columns,
        [*map(_cell_row, findings.cells), *(_mean_row(findings, mean) for mean in findings.means)],
        empty="None.",
    )


def _compared(key: str, head: str, difference: str, control: str) -> tuple[Column[ArmsRow | JointCell], ...]:
    pair = ("selective", control)
    return (
        _arm(key, head, control),
        _difference(f"over_{key}", difference, pair),
        _plain_verdict_of(f"over_{key}", pair),
    )


# Beyond the paper, and what is not there


_JOINT_ARMS = {
    "reference": "Ref.",
    "joint fixed": "Joint fixed",
    "joint": "Joint",
    "selective": "Selective, chosen axis",
}
_JOINT_PAIRS = {
    "over_reference": (("joint", "reference"), "Joint − Ref."),
    "over_joint_fixed": (("joint", "joint fixed"), "Joint − Joint fixed"),
    "over_selective": (("joint", "selective"), "Joint − Selective"),
}


def joint_sheet(findings: EndToEndFindings) -> AnySheet:
    columns: tuple[Column[JointCell], ...] = (
        *named("model", "task"),
        Column("axes", "axes", lambda cell: ", ".join(cell.axes), left=True),
        *([_JOINED] if any(cell.diagnostics for cell in findings.joints) else []),
        *(_arm(arm.replace(" ", "_"), head, arm) for arm, head in _JOINT_ARMS.items()),
        *(
            column
            for key, (pair, head) in _JOINT_PAIRS.items()
            for column in (_difference(key, head, pair), _plain_verdict_of(key, pair))
        ),
        *map(_joint_coverage, AXES),
        Column(None, "Coverage by axis", _joint_coverages, left=True),
        *counts("prompts", "unjudged"),
    )
    return Sheet(
        "e4-joint",
        "All axes together",
        "Joint fixed: the fixed action of every axis at once. Joint: each axis deviates from it where its own gate "
        "opens. The gates were calibrated one at a time. Beside them the selective arm of the chosen axis alone.",
        columns,
        findings.joints,
        empty="None.",
    )


_JOINED = Column[JointCell]("by", "diagnosed by", lambda cell: ", ".join(cell.diagnostics or cell.axes), left=True)


def _joint_coverage(axis: str) -> Column[JointCell]:
    return Column(f"coverage_{axis}", None, lambda cell: cell.coverage.get(axis))


def _joint_coverages(cell: JointCell) -> str:
    coverage = {axis: cell.coverage.get(axis, float("nan")) for axis in cell.axes}
    return ", ".join(f"{axis} {'no signal' if isnan(value) else share(value)}" for axis, value in coverage.items())


def missing_sheet(findings: EndToEndFindings) -> AnySheet:
    return shared.missing_sheet(
        "e4-missing",
        "End to end without numbers",
        "Models, tasks and axes that were to be decoded end to end and that nothing is reported on.",
        findings.missing,
        "None: every model, task and diagnosed axis has numbers.",
    )


def screen_sheet(findings: EndToEndFindings) -> AnySheet:
    """What fits on a terminal, of the axes that validation chose."""
    several = len({cell.model for cell in findings.cells}) > 1
    columns: tuple[Column[ArmsRow], ...] = (
        *named(*["model"] * several, "task"),
        Column("axis", "axis", lambda row: "" if row.cell is None else row.diagnostic),
        *(_arm(arm, head.lower(), arm) for arm, head in ARM_HEADS.items()),
        _difference("delta", "selective − fixed", GAIN),
        Column(None, "", lambda row: PARTIAL * bool(row.partial)),
        Column(None, "coverage", lambda row: row.covered if row.cell else share(row.coverage)),
        attribute("verdict", ""),
    )
    return Sheet("screen-end-to-end", "", "", columns, list(chosen_rows(findings)))
