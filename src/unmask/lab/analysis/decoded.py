"""What was decoded end to end, read back from the store: calibrations, and the runs of every arm prompt by prompt."""

from collections.abc import Mapping
from math import nan
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from unmask.base.errors import SchemaError
from unmask.lab.choose import promised_lift
from unmask.lab.store import Store
from unmask.lab.store.schemas import DIAGNOSTIC
from unmask.lab.store.shards import Unit
from unmask.lab.store.utilities import parts
from unmask.stats import Calibration, DetectorFileError
from unmask.stats.arm_grid import ArmGrid, arm_grid


class StoredChoice(NamedTuple):
    """What validation chose for one diagnostic, as the arms were made of it."""

    axis: str
    calibration: Calibration
    opportunity: float
    """Cross-fitted Delta_adapt on validation states."""
    end_to_end: str
    gates: Mapping[str, Calibration] = MappingProxyType({})
    """Of further gates that were decoded, by name."""

    @property
    def lift(self) -> float:
        """What the gate promises; one that never opens promises nothing."""
        return promised_lift(self.calibration)


class DecodedUnit(NamedTuple):
    """One model and task: what was decoded, and what with."""

    model: str
    task: str
    reference: str
    chosen: Mapping[str, StoredChoice]
    """By diagnostic."""
    best: str | None
    """The diagnostic that validation chose."""
    grids: Mapping[str, ArmGrid]
    """Evaluation prompts, by diagnostic; those of all axes together by the name of that."""
    missing: Mapping[str, str]
    """Reasons by diagnostic."""
    joint: Mapping[str, Any] | None


def unit_infos(store: Store) -> dict[tuple[str, str], Mapping[str, Any]]:
    """What each unit says of itself, by model and task; refused where two are of one."""
    infos: dict[tuple[str, str], Mapping[str, Any]] = {}
    for info in store.decode_infos():
        key = (str(info["unit"]["model"]), str(info["unit"]["task"]))
        if key in infos:
            raise SchemaError(
                f"{key[0]}, {key[1]} was decoded end to end twice, in {Unit(**infos[key]['unit']).name!r} and "
                f"{Unit(**info['unit']).name!r}; allowed: once; remove the one of an older run from "
                f"{str(store.decodes)!r}"
            )
        infos[key] = info
    return infos


def stored_choices(
    store: Store,
    info: Mapping[str, Any],
    calibrations: Mapping[tuple[str, str, str], Calibration],
) -> dict[str, StoredChoice]:
    """What the arms were made of, by diagnostic; refused if the study's tables choose otherwise."""
    model, task = info["unit"]["model"], info["unit"]["task"]
    chosen = {}
    for name, entry in info["axes"].items():
        try:
            calibration = Calibration.from_json(entry["calibration"])
            gates = {gate: Calibration.from_json(text) for gate, text in entry.get("gates", {}).items()}
        except DetectorFileError as error:
            raise SchemaError(f"the calibration of {model}, {task}, {name}: {error}") from error
        if not calibration.agrees(calibrations.get((model, task, name), calibration)):
            raise SchemaError(
                f"{model}, {task}, {name} was decoded with another calibration than the study's tables give; allowed: "
                f"the same; remove its folder from {str(store.decodes)!r} and run the study"
            )
        opportunity = nan if entry["opportunity"] is None else float(entry["opportunity"])
        axis = entry.get("axis", name)
        chosen[name] = StoredChoice(axis, calibration, opportunity, str(entry["end_to_end"]), gates)
    return chosen


def evaluation_grids(store: Store) -> dict[tuple[str, str], dict[str, ArmGrid]]:
    """By model and task, then by diagnostic: the axis, where all are called as theirs."""
    table = store.table("decodes", ("utility", "evaluated", "deviated"))
    table = table.filter(pc.equal(table["split"], "evaluation"))
    grids: dict[tuple[str, str], dict[str, ArmGrid]] = {}
    whose = DIAGNOSTIC[0] if DIAGNOSTIC[0] in table.column_names else "axis"
    for (model, task, name), part in parts(table, ("model", "task", whose)):
        grids.setdefault((model, task), {})[name] = _grid(part)
    return grids


def _grid(part: pa.Table) -> ArmGrid:
    column = {name: part[name].to_pylist() for name in part.column_names}
    number = {name: [nan if x is None else x for x in column[name]] for name in ("utility", "evaluated", "deviated")}
    return arm_grid(
        column["arm"],
        column["draw"],
        column["prompt"],
        utility_W=number["utility"],
        evaluated_W=number["evaluated"],
        deviated_W=number["deviated"],
    )
