"""E4 under other readings of the gate: each beside the fixed action, the usual gate and a random one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unmask.base.errors import SchemaError
from unmask.lab.analysis.cells import DiagnosedCell
from unmask.lab.analysis.decoded import DecodedUnit, gate_coverage
from unmask.lab.choose import CONTROLS, DECODED_ARMS
from unmask.lab.gates import LIFT, random_arm, selective_arm
from unmask.stats import Estimate, paired_estimates

ARMS = ("selective", "fixed", "random gate")
DIFFERENCES = (("selective", "fixed"), ("selective", "random gate"), ("selective", LIFT))


@dataclass(frozen=True)
class GateCell(DiagnosedCell):
    """One model, task, diagnostic and reading of the gate, end to end on evaluation prompts."""

    gate: str
    """`lift`, or a name of `lab.gates.GATES`."""
    tau: float | None
    never: str
    """Why it never opens; empty if it may."""
    utility: Mapping[str, Estimate]
    """By `ARMS`; selective is this gate."""
    difference: Mapping[tuple[str, str], Estimate]
    """By `DIFFERENCES`: to the fixed action, the random gate and the usual gate, paired over prompts."""
    coverage: float
    prompts: int


def gate_cells(unit: DecodedUnit, *, seed: int, resamples: int) -> Iterator[GateCell]:
    """Of every diagnostic that was decoded with further gates: the usual one first, all on the same prompts."""
    draws = {"seed": seed, "resamples": resamples}
    for name, choice in unit.chosen.items():
        grid = unit.grids.get(name)
        if not choice.gates or grid is None:
            continue
        arms = {gate: (selective_arm(gate), random_arm(gate)) for gate in (LIFT, *choice.gates)}
        used = (*DECODED_ARMS, *CONTROLS, *(arm for pair in arms.values() for arm in pair))
        if lost := [arm for arm in used if arm not in grid.utility]:
            raise SchemaError(
                f"decodes of {unit.model}, {unit.task}, {name} have no arm {', '.join(lost)}; allowed: all of "
                "them; remove the folder of their unit and run the study"
            )
        used_P = grid.judged(used)
        if not used_P.any():
            continue
        for gate, calibration in {LIFT: choice.calibration, **choice.gates}.items():
            arm, control = arms[gate]
            named = {"selective": arm, "fixed": "fixed", "random gate": control, LIFT: "selective"}
            by_arm = grid.select(used_P, named)
            utility, difference = paired_estimates({unit.task: by_arm}, ARMS, DIFFERENCES, **draws)
            yield GateCell(
                model=unit.model,
                task=unit.task,
                axis=choice.axis,
                reference=unit.reference,
                diagnostic=name,
                gate=gate,
                tau=calibration.tau.value,
                never=calibration.tau.reason if calibration.tau.value is None else "",
                utility=utility,
                difference=difference,
                coverage=gate_coverage(grid.steps[arms[gate][0]][used_P]),
                prompts=int(used_P.sum()),
            )
