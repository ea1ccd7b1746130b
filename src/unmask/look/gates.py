"""What a gate said at a step of a recorded run: its signal, the threshold, whether it opened, and all that in words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unmask.adapt import DetectorRule, noted_diagnostics
from unmask.base.errors import ConfigError
from unmask.core import Step


@dataclass(frozen=True)
class GateReading:
    """Of one row at one step; nothing where no gate was asked."""

    why: str = ""
    signal: float | None = None
    threshold: float | None = None
    open: bool | None = None


def gate_reading(step: Step, at: int, number: int, config: Mapping[str, Any]) -> GateReading:
    """From the notes of the step, and from the run's configuration, which says where the gate opens.

    Of several gates the one that opened stands for all, else the first with a signal; the words are about each.
    """
    described = acting(config, number - 1)
    if described is None:
        return GateReading("the branch begins here, with an action of its own")
    names, lookups = noted_diagnostics(step.action.notes), _lookups(described)
    if not names:
        return GateReading()
    # Notes and detectors are in one order, that of the diagnostics.
    known = lookups if len(lookups) == len(names) else [None] * len(names)
    readings = [_one(step, at, name, lookup) for name, lookup in zip(names, known, strict=True)]
    chosen = next((one for one in readings if one.open), None) or next(
        (one for one in readings if one.signal is not None), readings[0]
    )
    why = ". ".join(one.why for one in readings)
    return GateReading(why, chosen.signal, chosen.threshold, chosen.open)


def acting(config: Mapping[str, Any], index: int) -> Mapping[str, Any] | None:
    """The settings of the policy that took a step (counted from 0) of a branched run; {} where nobody noted them.

    None where a branch began with an action of its own, whose notes are those of the step before.
    """
    while True:
        branch = _mapping(config.get("branch"))
        began = branch.get("step")
        if not isinstance(began, int) or index > began:
            return _mapping(config.get("policy"))
        if index == began:
            return _mapping(config.get("policy")) if branch.get("action") is None else None
        config = _mapping(branch.get("from"))


def _one(step: Step, at: int, diagnostic: str, lookup: DetectorRule | None) -> GateReading:
    notes = step.action.notes
    opened = bool(notes[f"{diagnostic}/deviated_B"][at])
    if not bool(notes[f"{diagnostic}/evaluated_B"][at]):
        return GateReading(f"{diagnostic}: no signal, so the fixed action", open=False)
    signal = float(notes[f"{diagnostic}/signal_B"][at])
    known = math.isfinite(signal)
    threshold = None if lookup is None or not known else edge(lookup, signal)
    does = "the gate opened" if opened else "the gate stayed shut"
    return GateReading(
        f"{diagnostic}: {does}, {_against(signal, threshold, lookup)}",
        round(signal, 6) if known else None,
        threshold,
        opened,
    )


def edge(lookup: DetectorRule, signal: float) -> float | None:
    """The border between open and shut that a signal lies nearest to in its direction; None where there is none.

    Inside an open stretch its start, else the start of the next one above, else the end of the last one below.
    """
    inside = [start for start, end in lookup.open_stretches if start <= signal and (end is None or signal < end)]
    above = [start for start, _ in lookup.open_stretches if start > signal]
    below = [end for _, end in reversed(lookup.open_stretches) if end is not None and end <= signal]
    borders = [border for border in (*inside, *above, *below) if math.isfinite(border)]
    return None if inside and not math.isfinite(inside[0]) else next(iter(borders), None)


def _against(signal: float, threshold: float | None, lookup: DetectorRule | None) -> str:
    said = f"signal {signal:.3g}"
    if threshold is not None:
        side = "is below" if signal < threshold else "reaches"
        return f"{said} {side} the threshold {threshold:.3g}"
    if lookup is not None and not lookup.open_stretches:
        return f"{said}; this gate never opens"
    return said


def _lookups(described: Mapping[str, Any]) -> list[DetectorRule | None]:
    """The detectors among the settings of a policy, or of what it stands around."""
    if "detector" in described:
        return [_lookup(described["detector"])]
    if isinstance(several := described.get("detectors"), list):
        return [_lookup(one) for one in several]
    inner = described.get("base")
    return _lookups(inner) if isinstance(inner, Mapping) else []


def _lookup(found: Any) -> DetectorRule | None:
    """None where it cannot be read: a configuration may come from any file."""
    try:
        tau = None if found["tau"] is None else float(found["tau"])
        return DetectorRule(tuple(map(float, found["starts"])), tuple(found["expected"]), tau)
    except (LookupError, TypeError, ValueError, ConfigError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
