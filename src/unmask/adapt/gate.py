"""Gate files: a calibrated selective policy to decode with, and what it was calibrated on. docs/protocol.md"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, model_validator

from unmask import __version__
from unmask.adapt.arms import Arms
from unmask.adapt.diagnostics import DIAGNOSTICS
from unmask.axes import ReMDM
from unmask.base.errors import ConfigError, GateFileError, OtherModel, StorageError, UnknownName, require
from unmask.base.files import format_path, read_file, write_text
from unmask.base.json_files import HashMismatch, from_hashed_json, hash_body, to_hashed_json
from unmask.base.options import Options, check_annotations
from unmask.core import Policy
from unmask.stats import Calibration

T = TypeVar("T")
FORMAT = "unmask-gate-2"
"""Format of gate files. Its number rises when an old file would decode differently or lacks an entry."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Utility = Annotated[float, Field(ge=0, le=1)]
Difference = Annotated[float, Field(ge=-1, le=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Natural = Annotated[int, Field(ge=0)]


class Lift(Options):
    """Expected gain of the selective policy over the fixed action, with an interval."""

    value: Finite
    low: Finite
    high: Finite
    how: str
    """Sentence that says how it was measured, and on which prompts."""

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        require(self.low <= self.high, "lift", (self.low, self.high), "low <= high", "measure it again")
        return self


class EndToEnd(Options):
    """Mean utility of whole runs on the prompts of the calibration.

    A lift only says what one step gains if the reference goes on after it. An action that is best for one step can be
    ruinous when it is taken at every step.
    """

    reference: Utility
    fixed: Utility
    """Utility of the fixed action, taken at every step."""
    selective: Utility
    low: Difference
    high: Difference
    """Ends of the 95 % interval of selective minus reference, on the same prompts."""
    prompts: Annotated[int, Field(ge=1)]
    """Number of prompts whose answers could all be scored."""
    differ: Natural
    """Number of prompts on which selective and reference have different utilities."""

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        ends = (self.low, self.high)
        require(self.low <= self.high, "end-to-end interval", ends, "low <= high", "calibrate again")
        ok, allowed = self.differ <= self.prompts, f"0 to {self.prompts}"
        require(ok, "end-to-end prompts that differ", self.differ, allowed, "calibrate again")
        return self

    @property
    def difference(self) -> float:
        """Mean utility of the selective policy minus that of the reference."""
        return self.selective - self.reference

    @property
    def worse(self) -> bool:
        """Whether the whole interval lies below zero."""
        return self.high < 0

    @property
    def better(self) -> bool:
        """Whether the whole interval lies above zero."""
        return self.low > 0


class Guarantee(Options):
    """Promise that whole runs with the gate are worse than the fixed action by at most a margin.

    Thresholds were fitted on one half of the prompts and tested on the other. A gate that stays shut decodes as the
    fixed action does.
    """

    risk: Share
    """Probability that the promise does not hold, over the draw of the prompts."""
    margin: Share
    """Largest loss of mean utility that is promised."""
    fitted: Natural
    """Number of prompts by which the fixed action, the bins and the order of thresholds were chosen."""
    tested: Natural
    """Number of prompts that thresholds were tested on."""
    thresholds: Natural
    """Number of thresholds that were tested, one after the other until one failed."""
    difference: Difference
    """Mean utility of the gate minus that of the fixed action on the tested prompts; 0 for a shut gate."""
    bound: Difference
    """Lower bound of the mean difference over all prompts, which fails with probability `risk`; 0 for a shut gate."""

    @model_validator(mode="after")
    def _check_bound(self) -> Self:
        ok, allowed = self.bound >= -self.margin, f"from {-self.margin:g} to 1"
        require(ok, "bound of the guarantee", self.bound, allowed, "calibrate again")
        return self

    def inspect(self) -> str:
        """Return one sentence on how much worse than the fixed action runs with the gate may be."""
        return (
            f"not worse than the fixed action by more than {self.margin:g}, end to end, with probability "
            f"{1 - self.risk:g} over validation prompts ({self.tested} tested, {self.fitted} fitted on)"
        )


class Gate(Options):
    """A calibrated selective policy for one model, task and axis."""

    model: str
    fingerprint: str
    """Hash of the model's weights and options: `Model.fingerprint`."""
    task: str
    arms: Arms
    steps_share: Annotated[float, Field(gt=0, le=1)]
    """Number of steps divided by new tokens in the calibration; the default of runs with the gate."""
    lift: Lift
    end_to_end: EndToEnd | None = None
    """None if no prompt has answers of reference, fixed action and gate that could all be scored."""
    guarantee: Guarantee | None = None
    """None if no guarantee was requested."""
    unmask: str = __version__
    """Version of this library that wrote the gate."""

    def policy(self) -> Policy:
        """Return the selective policy."""
        return self.arms.selective

    # --- the file

    @property
    def hash(self) -> str:
        """SHA-256 of the file's content."""
        return hash_body(FORMAT, _to_body(self))

    @property
    def summary(self) -> dict[str, Any]:
        """The file's content without the calibration, as the configuration of a run records it."""
        content = {key: value for key, value in _to_body(self).items() if key != "calibration"}
        return {"hash": self.hash, **content, "tau": self.arms.calibration.tau.value}

    def to_json(self) -> str:
        """Return the text of the gate's file; the same gate gives the same bytes."""
        return to_hashed_json(FORMAT, _to_body(self))

    @classmethod
    def from_json(cls, text: str) -> "Gate":
        """Read a gate from the text of its file; refuse another format and any change of its bytes."""
        try:
            gate = from_hashed_json(FORMAT, text, _from_body, kind="gate", to_body=_to_body, refusals=(ConfigError,))
        except HashMismatch as error:
            raise GateFileError(f"{error}; {_RECALIBRATE_ADVICE}") from error
        # The hash covers the content only: "1E-5" for "1e-05" keeps it, but shows that the file was changed.
        if gate.to_json() != text:
            raise GateFileError(f"the gate file is not byte for byte what was written; {_RECALIBRATE_ADVICE}")
        return gate

    def save(self, path: str | Path) -> None:
        """Write the gate's file. An existing file stays until the new one is complete."""
        try:
            write_text(Path(path), self.to_json())
        except OSError as error:
            raise StorageError(f"gate {str(path)!r} cannot be written ({error.strerror}); choose another") from error

    @classmethod
    def load(cls, path: str | Path, *, fingerprint: str | None = None, force: bool = False) -> "Gate":
        """Read a file that `save` wrote; refuse one for a model of another fingerprint, unless forced."""
        require(isinstance(path, str | Path), "path of the gate", path, "a path", "name a file that Gate.save wrote")
        try:
            gate = cls.from_json(read_file(path).decode("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise GateFileError(f"gate {format_path(path)} cannot be read ({reason}); {_RECALIBRATE_ADVICE}") from error
        except GateFileError as error:
            raise GateFileError(f"{format_path(path)[1:-1]}: {error}") from error
        if fingerprint is not None and not force:
            gate.check_model(fingerprint)
        return gate

    # --- decoding with the gate

    def check_model(self, fingerprint: str) -> None:
        """Refuse another model: its signals and opportunities differ from those of the calibration."""
        if fingerprint != self.fingerprint:
            raise OtherModel(
                f"fingerprint of the model is {fingerprint!r}; allowed: {self.fingerprint!r} ({self.model}), on which "
                "the gate was calibrated; load that model, or force the gate and expect nothing"
            )

    def steps_warning(self, steps: int, usual: int, blanks: int) -> str:
        """Return a warning if a run takes other steps than the `usual` ones of the calibration, else ""."""
        if steps == usual:
            return ""
        return (
            f"the gate was calibrated at {self.steps_share:g} x new tokens ({usual} steps for {blanks}) and is used at "
            f"{steps} steps: its threshold and its expected lift ({self.lift.value:+.4f}) say nothing about that; "
            "leave the steps out, or calibrate at this share"
        )

    def inspect(self) -> str:
        """Return a description of the gate as plain text."""
        lift, runs, operator, name = self.lift, self.end_to_end, self.arms.operator, self.arms.diagnostic.name
        axis = self.arms.axis + ("" if name == self.arms.axis else f", by the diagnostic {name}")
        whole = "not known, no prompt has answers of all three that could be scored"
        if runs is not None:
            whole = (
                f"reference {runs.reference:.3f}, fixed action {runs.fixed:.3f}, this gate {runs.selective:.3f}; gate "
                f"less reference {runs.difference:+.3f} [{runs.low:+.3f}, {runs.high:+.3f}], on {runs.prompts} prompts "
                f"of the calibration, of which {runs.differ} differ"
            )
        lines = [
            f"gate {self.hash[:12]}, written by unmask {self.unmask}",
            f"model: {self.model} ({self.fingerprint}); task: {self.task}; steps: {self.steps_share:g} x new tokens",
            f"axis: {axis}, around the {self.arms.reference_kind} reference",
            f"expected lift over the fixed action: {lift.value:+.4f} [{lift.low:+.4f}, {lift.high:+.4f}]: {lift.how}",
            f"end to end: {whole}",
        ]
        if self.guarantee is not None:
            lines.append(f"guarantee: {self.guarantee.inspect()}")
        if operator is not None:
            lines.append(f"revisable positions are re-opened by ReMDM: {operator.variant}, eta {operator.rate:g}")
        return "\n".join([*lines, self.arms.calibration.inspect()])


_RECALIBRATE_ADVICE = "allowed: a file that Gate.save wrote; check the path, or calibrate again"


def _to_body(gate: Gate) -> dict[str, Any]:
    """Return the content of a gate's file. Entries added later are omitted at their default, so that hashes stay."""
    arms, calibration = gate.arms, gate.arms.calibration
    name, fixed_by = arms.diagnostic.name, calibration.settings.fixed
    return {
        "unmask": gate.unmask,
        "model": {"name": gate.model, "fingerprint": gate.fingerprint},
        "task": gate.task,
        "axis": arms.axis,
        **({} if name == arms.axis else {"diagnostic_name": name}),
        "reference": arms.reference_kind,
        # Candidates and fixed action follow from the calibration. They are written for readers of the file only.
        "candidates": list(calibration.candidates),
        "fixed": calibration.candidates[calibration.fixed.action],
        **({} if fixed_by == "one-step" else {"fixed_by": fixed_by}),
        "diagnostic": arms.diagnostic.settings,
        "revision": None if arms.operator is None else asdict(arms.operator),
        "steps_share": gate.steps_share,
        "lift": dict(gate.lift),
        "end_to_end": None if gate.end_to_end is None else dict(gate.end_to_end),
        **({} if gate.guarantee is None else {"guarantee": dict(gate.guarantee)}),
        "calibration": json.loads(calibration.to_json()),
    }


def _from_body(body: Mapping[str, Any]) -> Gate:
    # A diagnostic with the name of its axis is not named in the file.
    name, runs = body.get("diagnostic_name", body["axis"]), body["end_to_end"]
    if name not in DIAGNOSTICS:
        raise UnknownName("diagnostic", name, DIAGNOSTICS)
    try:
        calibration = Calibration.from_json(json.dumps(body["calibration"]))
    except HashMismatch as error:
        raise GateFileError(f"its calibration is refused: {error}") from error
    return Gate(
        model=body["model"]["name"],
        fingerprint=body["model"]["fingerprint"],
        task=body["task"],
        arms=Arms(
            axis=body["axis"],
            reference_kind=body["reference"],
            calibration=calibration,
            diagnostic=_with_settings(DIAGNOSTICS[name], body["diagnostic"]),
            operator=None if body["revision"] is None else _with_settings(ReMDM(), body["revision"]),
        ),
        steps_share=body["steps_share"],
        lift=Lift(**body["lift"]),
        end_to_end=None if runs is None else EndToEnd(**runs),
        guarantee=Guarantee(**body["guarantee"]) if "guarantee" in body else None,
        unmask=body["unmask"],
    )


def _with_settings(part: T, settings: Mapping[str, Any]) -> T:
    check_annotations(type(part), settings, type(part).__name__)
    return replace(part, **settings)  # type: ignore[type-var]
