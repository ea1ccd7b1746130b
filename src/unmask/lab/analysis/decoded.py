"""What was decoded end to end, read back from the store: calibrations, and the runs of every arm prompt by prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unmask.base.errors import SchemaError
from unmask.base.json_files import HashMismatch
from unmask.lab.choose import promised_lift
from unmask.lab.store import Store, parts
from unmask.lab.store.schemas import DIAGNOSTIC
from unmask.stats import Array, Bools, Calibration


@dataclass(frozen=True)
class ArmGrid:
    """Whole runs of every arm over the same prompts."""

    prompts: tuple[str, ...]
    utility: Mapping[str, Array]
    """Mean over draws by arm, for each prompt; NaN where one could not be judged."""
    steps: Mapping[str, Array]
    """Evaluated and deviated steps of each prompt, (P, 2), by arm with a gate; NaN where it was not counted."""

    def judged(self, arms: Sequence[str]) -> Bools:
        """Prompts on which all of these arms have a utility."""
        return np.asarray(np.isfinite(np.stack([self.utility[arm] for arm in arms])).all(0))

    def select(self, used_P: Bools, arms: Mapping[str, str]) -> dict[str, Array]:
        """Utilities on some prompts, by the name that an arm is compared under."""
        return {name: self.utility[arm][used_P] for name, arm in arms.items()}


def gate_coverage(steps_P2: Array) -> float:
    """Deviations by evaluated steps, (P, 2). Where those were not counted the gate never opened."""
    evaluated, deviated = steps_P2.sum(0)
    if not isfinite(evaluated):
        return 0.0 if deviated == 0 else nan
    return float(deviated / evaluated) if evaluated else nan


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
    names: dict[tuple[str, str], str] = {}
    for shard, info in store.infos("decodes").items():
        key = (shard.model, shard.task)
        if key in infos:
            raise SchemaError(
                f"{key[0]}, {key[1]} was decoded end to end twice, in {names[key]!r} and "
                f"{shard.name!r}; allowed: once; remove the one of an older run from "
                f"{f'{store.folder}/decodes'!r}"
            )
        infos[key], names[key] = info, shard.name
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
        except HashMismatch as error:
            raise SchemaError(f"the calibration of {model}, {task}, {name}: {error}") from error
        if not calibration.agrees(calibrations.get((model, task, name), calibration)):
            raise SchemaError(
                f"{model}, {task}, {name} was decoded with another calibration than the study's tables give; allowed: "
                f"the same; remove its folder from {f'{store.folder}/decodes'!r} and run the study"
            )
        opportunity = nan if entry["opportunity"] is None else float(entry["opportunity"])
        axis = entry.get("axis", name)
        chosen[name] = StoredChoice(axis, calibration, opportunity, str(entry["end_to_end"]), gates)
    return chosen


def evaluation_grids(store: Store) -> dict[tuple[str, str], dict[str, ArmGrid]]:
    """By model and task, then by diagnostic: the axis, where all are called as theirs."""
    table = store.read_arrow("decodes", ("utility", "evaluated", "deviated"))
    table = table.filter(pc.equal(table["split"], "evaluation"))
    grids: dict[tuple[str, str], dict[str, ArmGrid]] = {}
    whose = DIAGNOSTIC[0] if DIAGNOSTIC[0] in table.column_names else "axis"
    for (model, task, name), part in parts(table, ("model", "task", whose)):
        grids.setdefault((model, task), {})[name] = _grid(part)
    return grids


def _grid(part: pa.Table) -> ArmGrid:
    frame = part.select(["arm", "draw", "prompt", "utility", "evaluated", "deviated"]).to_pandas()
    prompts = tuple(sorted(frame["prompt"].unique()))
    utility: dict[str, Array] = {}
    steps: dict[str, Array] = {}
    for arm, runs in frame.groupby("arm", sort=False):
        place_W, draws = np.searchsorted(prompts, runs["prompt"]), runs["draw"].nunique()
        # NaN goes through sums: a prompt has a mean where each of its draws was judged, and none if it lacks a draw.
        sums = {
            name: np.bincount(place_W, runs[name].to_numpy(dtype=np.float64), len(prompts))
            for name in ("utility", "evaluated", "deviated")
        }
        whole_P = np.bincount(place_W, minlength=len(prompts)) == draws
        utility[str(arm)] = np.where(whole_P, sums["utility"] / draws, nan)
        if runs["deviated"].notna().any():
            steps[str(arm)] = np.stack([sums["evaluated"], sums["deviated"]], 1)
    return ArmGrid(prompts, utility, steps)
