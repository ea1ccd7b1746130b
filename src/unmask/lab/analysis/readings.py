"""E4 under two whole readings of the paper, `ours` and `literal`, and with one choice at a time changed in each.

What conclusion hangs on which choice can be seen only side by side. All readings of a study share its branches and its
candidates; what those depend on (the steps, the scoring, what the region axis holds) takes a study of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan

import numpy as np

from unmask.adapt import DIAGNOSTICS
from unmask.lab.analysis.decoded import DecodedUnit, StoredChoice, gate_coverage
from unmask.lab.choose import choose_axis, is_extension, promised_lift
from unmask.lab.gates import AXIS_BY, LIFT, random_arm, selective_arm
from unmask.stats import TIE, Array, Calibration, Estimate, paired_estimates

ARMS = ("reference", "fixed", "selective", "random gate")
DIFFERENCES = (("selective", "fixed"), ("selective", "reference"), ("selective", "random gate"))
LITERAL = ("region:diagnosed", "region:diagnosed:share", "cardinality:program")
"""Diagnostics as the text has them, where another one is ours."""


@dataclass(frozen=True)
class ProtocolReading:
    """One way to read the protocol, as far as whole runs of one study can be read in several."""

    anchor: str
    """`ours` or `literal`."""
    changed: str
    """The one choice that is not the anchor's; empty for the anchor itself."""
    diagnostics: Mapping[str, str]
    """By axis."""
    gate: str = LIFT
    by: str = AXIS_BY[0]
    revision: bool = False
    """Whether the axis that extends a decoder without revision may be chosen."""


@dataclass(frozen=True)
class ReadingMean:
    """What a reading says of one model, over its tasks, each of which counts the same."""

    reading: ProtocolReading
    model: str
    chosen: Mapping[str, str]
    """Diagnostic by task."""
    open: int
    """Tasks whose gate may open."""
    utility: Mapping[str, Estimate]
    """By `ARMS`; selective is the reading's gate."""
    difference: Mapping[tuple[str, str], Estimate]
    coverage: float
    """Of the gate, mean over tasks."""
    better: int
    """Tasks on which selective's mean is above fixed's."""
    worse: int


def readings_of(diagnostics: Sequence[str], gates: Sequence[str], extends: bool) -> Iterator[ProtocolReading]:
    """Both anchors as far as a study holds them, each followed by its changes."""
    by_axis: dict[str, list[str]] = {}
    for name in diagnostics:
        by_axis.setdefault(DIAGNOSTICS[name].axis, []).append(name)
    plain = {axis: _first(names, [name for name in names if name not in LITERAL]) for axis, names in by_axis.items()}
    literal = {axis: _first(names, [name for name in names if name in LITERAL]) for axis, names in by_axis.items()}
    known = (LIFT, *gates)
    ours = ProtocolReading("ours", "", plain)
    to_the_letter = ProtocolReading(
        "literal", "", literal, _first(known, [g for g in known if g == "mean-together"]), AXIS_BY[1]
    )
    for anchor in (ours, replace(to_the_letter, revision=extends)):
        yield anchor
        yield from _changes(anchor, by_axis, known, extends)


def _first(names: Sequence[str], wanted: Sequence[str]) -> str:
    return (*wanted, *names)[0]


def _changes(
    anchor: ProtocolReading, by_axis: Mapping[str, Sequence[str]], gates: Sequence[str], extends: bool
) -> Iterator[ProtocolReading]:
    for axis, names in by_axis.items():
        for name in names:
            if name != anchor.diagnostics[axis]:
                yield replace(anchor, changed=name, diagnostics={**anchor.diagnostics, axis: name})
    for gate in gates:
        if gate != anchor.gate:
            yield replace(anchor, changed=f"gate {gate}", gate=gate)
    for by in AXIS_BY:
        if by != anchor.by:
            yield replace(anchor, changed=f"axis by {by}", by=by)
    if extends:
        changed = "without revision" if anchor.revision else "with revision"
        yield replace(anchor, changed=changed, revision=not anchor.revision)


def reading_means(units: Sequence[DecodedUnit], *, seed: int, resamples: int) -> Iterator[ReadingMean]:
    """Every reading of every model that there is more than one way to read."""
    for model in dict.fromkeys(unit.model for unit in units):
        of_model = [unit for unit in units if unit.model == model]
        names = list(dict.fromkeys(name for unit in of_model for name in unit.chosen))
        gates = list(dict.fromkeys(gate for unit in of_model for one in unit.chosen.values() for gate in one.gates))
        extends = any(is_extension(u.reference, one.axis) for u in of_model for one in u.chosen.values())
        for reading in readings_of(names, gates, extends):
            if found := _mean(model, of_model, reading, seed, resamples):
                yield found


def _mean(
    model: str, units: Sequence[DecodedUnit], reading: ProtocolReading, seed: int, resamples: int
) -> ReadingMean | None:
    chosen: dict[str, str] = {}
    used: dict[str, dict[str, Array]] = {}
    shares, opens = [], 0
    for unit in units:
        name = _chosen(unit, reading)
        gate = None if name is None else _calibration(unit.chosen[name], reading.gate)
        if name is None or gate is None or name not in unit.grids:
            continue
        grid = unit.grids[name]
        arm, control = selective_arm(reading.gate), random_arm(reading.gate)
        used_P = grid.judged(("reference", "fixed", arm, control))
        if not used_P.any():
            continue
        named = {"reference": "reference", "fixed": "fixed", "selective": arm, "random gate": control}
        used[unit.task] = grid.select(used_P, named)
        chosen[unit.task] = name
        shares.append(gate_coverage(grid.steps[arm][used_P]))
        opens += gate.tau.value is not None
    if not used:
        return None
    utility, difference = paired_estimates(used, ARMS, DIFFERENCES, seed=seed, resamples=resamples)
    gains = [float((by_arm["selective"] - by_arm["fixed"]).mean()) for by_arm in used.values()]
    known = [share for share in shares if isfinite(share)]
    return ReadingMean(
        reading,
        model,
        chosen,
        opens,
        utility,
        difference,
        coverage=float(np.mean(known)) if known else nan,
        better=sum(gain > TIE for gain in gains),
        worse=sum(gain < -TIE for gain in gains),
    )


def _chosen(unit: DecodedUnit, reading: ProtocolReading) -> str | None:
    """The diagnostic whose axis validation chooses under a reading."""
    promised = {}
    for axis, name in reading.diagnostics.items():
        gate = _calibration(unit.chosen[name], reading.gate) if name in unit.chosen else None
        if gate is not None and (reading.revision or not is_extension(unit.reference, axis)):
            promised[name] = (promised_lift(gate), unit.chosen[name].opportunity)
    return choose_axis(promised, reading.by)


def _calibration(choice: StoredChoice, gate: str) -> Calibration | None:
    return choice.calibration if gate == LIFT else choice.gates.get(gate)
