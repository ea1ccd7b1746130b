"""The figures of a diagnosed setting as inline SVG: what its detector predicts, and lift against coverage."""

from collections.abc import Iterator
from html import escape
from math import isfinite, isinf

from unmask.lab.analysis.detection import DetectionCell
from unmask.report.figures.svg import AxisScale, Box, coverage_ticks, label, marker, svg
from unmask.report.formats import number
from unmask.report.tables.detection import held_out_bins
from unmask.report.tables.shared import FEW, mark
from unmask.report.verdicts import lift_verdict
from unmask.stats import Curve, Threshold
from unmask.stats.crossfit import Array

_DETECTOR: Box = (60.0, 34.0, 400.0, 190.0)
_COVERAGE: Box = (500.0, 34.0, 840.0, 190.0)
_HEIGHT = 236

CAPTION = f"""\
Left: mean opportunity of the states in each bin of the signal, filled on validation prompts, which is what
the detector predicts, hollow on evaluation prompts; the gate is open in bins at or above τ. Right: lift over the fixed
action when only the best-ranked share of states takes the diagnostic's action. \
Thick: the detector, with its 95 % interval;
dotted: random states; thin: an oracle gate with the same actions. Dashed: {FEW}, not to be relied on."""


def setting_figure(cell: DetectionCell, name: str) -> str:
    """Both panels of one model, task and axis, for the diagnostic's own action."""
    utility = cell.raw.utility
    doubt = " doubt" if utility.unreliable else ""
    lift = f"{lift_verdict(utility)}: {number(utility.lift['selective'])} {mark(utility, cell.partial)}".rstrip()
    # In the left panel hollow means held out, whatever the doubt.
    parts = [f'<g class="axis-{cell.axis}">', *_detector(cell), "</g>"]
    parts += [f'<g class="axis-{cell.axis}{doubt}">', *_lifts(cell), "</g>"]
    title = f"Detector, and lift by coverage: {cell.model}, {cell.task}, {cell.diagnostic}"
    description = f"AUROC {number(utility.detection.auroc)}; selective policy, {lift}"
    return svg(name, _HEIGHT, title, description, parts)


def _detector(cell: DetectionCell) -> Iterator[str]:
    """Mean opportunity of each bin of the signal: on validation (filled), which is predicted, and held out (hollow)."""
    left, top, right, bottom = _DETECTOR
    chosen = cell.raw.calibration
    predicted = [float(g) for g in chosen.detector.g_B]
    held_out = [g for _, g in held_out_bins(cell.raw)]
    tau = chosen.tau.value
    marked = [tau] if tau is not None and isfinite(tau) else []
    scale = AxisScale.spanning([*predicted, *held_out, *marked], bottom, top)
    yield label(left, 12, f"Opportunity by signal; {_tau(chosen.tau)}", "head")
    yield from _levels(scale, _DETECTOR)
    if not any(map(isfinite, predicted)):
        yield label(left + 8, top + 12, "no validation state has a signal", "soft")
    wide = (right - left) / len(predicted)
    for b, (g, seen) in enumerate(zip(predicted, held_out, strict=True)):
        x = left + wide * (b + 0.5)
        if isfinite(seen):
            yield f'<g class="held">{_titled(marker(cell.axis, x + 5, scale(seen)), f"held out: {number(seen)}")}</g>'
        if isfinite(g):
            yield _titled(marker(cell.axis, x - 5, scale(g)), f"predicted: {number(g)}")
        yield label(x, bottom + 14, str(b + 1), "soft", "middle")
    for level in marked:
        y = scale(level)
        yield f'<line class="tau" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
        yield label(right + 4, y, "τ", "")
    yield label(left, bottom + 34, "bins of the signal, smallest first", "soft")


def _tau(threshold: Threshold) -> str:
    if threshold.value is None:
        return "the gate never opens"
    return "the gate is always open" if isinf(threshold.value) else f"τ = {threshold.value:.4g}"


def _lifts(cell: DetectionCell) -> Iterator[str]:
    """Lift of acting on the best-ranked share of states, with its interval, random states and an oracle gate."""
    left, top, right, bottom = _COVERAGE
    curve: Curve = cell.raw.utility.detection.curve
    columns = (curve.lift_C, curve.low_C, curve.high_C, curve.random_C, curve.oracle_C)
    scale = AxisScale.spanning([float(x) for column in columns for x in column], bottom, top)
    yield label(left, 12, "Lift by coverage", "head")
    yield from _levels(scale, _COVERAGE)
    yield from coverage_ticks(_COVERAGE)

    def points(y_C: Array) -> str:
        both = zip([0.0, *curve.coverage_C], [0.0, *y_C], strict=True)
        return " ".join(f"{left + (right - left) * c:.1f},{scale(float(y)):.1f}" for c, y in both)

    around = f"{points(curve.high_C)} {' '.join(reversed(points(curve.low_C).split()))}"
    yield f'<polygon class="band" points="{around}"/>'
    yield f'<polyline class="even" fill="none" points="{points(curve.random_C)}"/>'
    yield f'<polyline class="curve thin" points="{points(curve.oracle_C)}"/>'
    everywhere = f"detector: {number(float(curve.lift_C[-1]))} everywhere"
    yield _titled(f'<polyline class="curve thick" points="{points(curve.lift_C)}"/>', everywhere)
    yield label(left, bottom + 34, "share of states in %, best-ranked first", "soft")


def _levels(scale: AxisScale, box: Box) -> Iterator[str]:
    left, _, right, _ = box
    for tick in scale.ticks:
        y, zero = scale(tick), " zero" if abs(tick) < 1e-12 else ""
        yield f'<line class="grid{zero}" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
        yield label(left - 6, y, f"{tick + 0.0:.4g}", "soft", "end")


def _titled(shape: str, title: str) -> str:
    return f"<g><title>{escape(title)}</title>{shape}</g>"
