"""The figures of diagnosed settings: what a detector predicts, lift against coverage, and utility along the run."""

from collections.abc import Iterator, Sequence
from math import isfinite, isinf, nan

import numpy as np

from unmask.lab.analysis.detection import DetectionCell, DetectionFindings
from unmask.lab.analysis.opportunity import OpportunityFindings
from unmask.report.figures.chart import INK, SOFT, ChartLine, Gallery, Lines, ReportFigure, colour_of, shape_of
from unmask.report.formats import counted, number
from unmask.report.tables.detection import held_out_bins
from unmask.report.tables.shared import FEW
from unmask.report.verdicts import lift_verdict
from unmask.report.words.phrases import model_name
from unmask.stats import COVERAGES, Threshold
from unmask.stats.measures import CURVE

CAPTION = (
    "Calibration: mean opportunity of the states in each bin of the signal, filled on validation prompts, which is "
    "what the detector predicts, hollow on evaluation prompts; the gate is open in bins at or above τ. Lift by "
    "coverage: lift over the fixed action when only the best-ranked share of states takes the diagnostic's action; "
    "thick: the detector, with its 95 % interval; dotted: random states, with the interval over draws; thin: an oracle "
    "gate with the same actions, with its interval. Along the run: mean utility at each of a prompt's states, one "
    f"step at a time. Dashed: {FEW}, not to be relied on."
)
_ARMS = {"fixed": SOFT, "always": INK, "selective": "", "oracle": ""}
"""Those of the panel along the run, with their colours; empty for the axis's own."""


def setting_gallery(opportunity: OpportunityFindings, detection: DetectionFindings, suffix: str = "") -> Gallery:
    """One setting at a time, for the diagnostic's own action."""
    figures = []
    for at, cell in enumerate(detection.cells):
        where = f"{model_name(opportunity, cell.model)}: {cell.diagnostic} on {cell.task}"
        panels = (_detector(cell), _lifts(cell), _along(cell))
        figures.append(ReportFigure(f"e3-setting{suffix}-{at}", where, panels, CAPTION, choice=where))
    title = "Detectors: calibration, lift by coverage, utility along the run"
    return Gallery(f"e3-setting{suffix}", title, CAPTION, "Setting", tuple(figures), f"e3-coverage{suffix}")


def _about(cell: DetectionCell) -> tuple[str, ...]:
    measures = cell.raw.measures
    few = (f"not to be relied on: {measures.unreliable}",) if measures.unreliable else ()
    return (
        f"{cell.task}, {cell.diagnostic}",
        f"n: {counted(cell.prompts, 'prompt')}, {counted(measures.states, 'state')}",
        f"AUROC {number(measures['auroc'])}",
        f"selective: {lift_verdict(cell.raw)}, {number(measures['lift', 'selective'])}",
        *few,
    )


def _detector(cell: DetectionCell) -> Lines:
    """Mean opportunity of each bin of the signal: on validation (filled), which is predicted, and held out (hollow)."""
    chosen = cell.raw.calibration
    predicted = [float(g) for g in chosen.detector.g_B]
    held_out = [g for _, g in held_out_bins(cell.raw)]
    bins = [float(b + 1) for b in range(len(predicted))]
    tau = chosen.tau.value
    points = (("predicted", predicted, False, -0.1), ("held out", held_out, True, 0.1))
    lines = [
        ChartLine(
            name,
            [b + shift for b in bins],
            ys,
            colour_of(cell.axis),
            shape=shape_of(cell.axis),
            joined=False,
            doubt=hollow,
            about=(f"{name} opportunity", *_about(cell)),
        )
        for name, ys, hollow, shift in points
    ]
    silent = "" if any(map(isfinite, predicted)) else "no validation state has a signal"
    return Lines(
        f"Calibration; {_tau(chosen.tau)}",
        "bin of the signal, smallest first",
        "opportunity",
        lines,
        levels={"τ": tau} if tau is not None and isfinite(tau) else {},
        remark=silent,
    )


def _tau(threshold: Threshold) -> str:
    if threshold.value is None:
        return "the gate never opens"
    return "the gate is always open" if isinf(threshold.value) else f"τ = {threshold.value:.4g}"


def _lifts(cell: DetectionCell) -> Lines:
    """Lift of acting on the best-ranked share of states: the detector, random states and an oracle gate, with bands."""
    measures = cell.raw.measures
    about, own = _about(cell), colour_of(cell.axis)
    dash = "dash" if measures.unreliable else "solid"

    def banded(name: str) -> tuple[list[float], list[float], list[float]]:
        ends = [measures[name, c] for c in COVERAGES]
        return [0.0, *COVERAGES], [0.0, *(e.low for e in ends)], [0.0, *(e.high for e in ends)]

    always = measures["lift", "always"].value
    ranked = [measures["ranked_lift", c] for c in CURVE]
    oracle = [0.0, *(measures["oracle_lift", c].value for c in CURVE)]
    values, low, high = ([0.0, *(getattr(e, end) for e in ranked)] for end in ("value", "low", "high"))
    cover = [0.0, *CURVE]
    lines = [
        *_band("random states", *banded("random_lift"), SOFT, about),
        ChartLine("random states", cover, [c * always for c in cover], SOFT, dash="dot", width=1.2, about=about),
        *_band("oracle gate", *banded("oracle_lift"), INK, about),
        ChartLine("oracle gate", cover, oracle, INK, width=1.2, about=about),
        ChartLine("detector", cover, values, own, low, high, 3.0, dash, about=about),
    ]
    return Lines("Lift by coverage", "share of states, best-ranked first", "lift", lines, x_share=True)


def _band(
    name: str, x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str, about: Sequence[str]
) -> Iterator[ChartLine]:
    """An interval that is known at fewer places than the curve in it."""
    if any(isfinite(end) for end in (*low[1:], *high[1:])):
        yield ChartLine(f"{name}: 95 %", x, [nan] * len(x), colour, low, high, width=0.0, about=about)


def _along(cell: DetectionCell) -> Lines:
    """Mean utility at each of a prompt's states, in the order of the run."""
    frame = cell.raw.frame
    place_S = frame["place"].to_numpy()
    places = np.unique(place_S)
    lines = []
    for arm, colour in _ARMS.items():
        utility_S = frame["fixed"].to_numpy() + (0.0 if arm == "fixed" else frame[arm].to_numpy())
        means = [float(utility_S[place_S == k].mean()) for k in places]
        lines.append(
            ChartLine(
                arm,
                [float(k) + 1 for k in places],
                means,
                colour or colour_of(cell.axis),
                width=3.0 if arm == "selective" else 1.4,
                dash={"fixed": "dot", "oracle": "dash"}.get(arm, "solid"),
                about=(arm, *_about(cell)),
            )
        )
    return Lines("Utility along the run", "state, first to last", "mean utility", lines)
