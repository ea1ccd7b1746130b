"""What E2 and E3 both start from: every choice of the validation states, and the held-out states to measure it on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from unmask.stats.calibration import Calibration, calibrate
from unmask.stats.detection import ExperimentSettings
from unmask.stats.tables import PROPOSALS, HeldOutTable, ValidationTable, check_apart


@dataclass(frozen=True, eq=False)
class Experiment:
    """Validation and held-out states of one setting, without a common prompt; refused otherwise."""

    validation: ValidationTable
    held_out: HeldOutTable
    settings: ExperimentSettings

    def __post_init__(self) -> None:
        check_apart(self.validation, self.held_out)

    @cached_property
    def calibrations(self) -> Mapping[str, Calibration]:
        """What validation states choose, by kind of proposal; made once, for both experiments need the same."""
        how = self.settings.calibration
        return {proposal: calibrate(self.validation, replace(how, proposal=proposal)) for proposal in PROPOSALS}
