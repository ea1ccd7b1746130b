"""Gate files: a calibrated selective policy to decode with, and what it was calibrated on. docs/adapt.md"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unmask import __version__
from unmask.adapt.arms import Arms
from unmask.adapt.diagnostics import DIAGNOSTICS, Diagnostic
from unmask.axes import ReMDM
from unmask.base.errors import ConfigError, GateFileError, OtherModel, StorageError, UnknownName, require
from unmask.base.files import atomic_write, format_path, read_file
from unmask.base.json_files import HashMismatch, from_hashed_json, hash_body, to_hashed_json
from unmask.base.options import check_annotations
from unmask.core import Policy
from unmask.stats import Calibration

FORMAT = "unmask-gate-2"
"""Goes up when an old file would decode differently, or does not say what a gate has to say."""


@dataclass(frozen=True)
class Lift:
    """What the selective policy gains over the fixed action, with an interval."""

    value: float
    low: float
    high: float
    how: str
    """What was measured, and on what."""

    def __post_init__(self) -> None:
        check_annotations(Lift, vars(self), "the lift")
        numbers = (self.value, self.low, self.high)
        ok = all(map(math.isfinite, numbers)) and self.low <= self.high
        require(ok, "lift", numbers, "finite numbers, low <= high", "measure it again")


@dataclass(frozen=True)
class EndToEnd:
    """Mean utility of whole runs on the prompts of the calibration.

    A lift is about one step, after which the reference goes on. What is best there can be ruinous at every step.
    """

    reference: float
    fixed: float
    """The fixed action at every step."""
    selective: float
    low: float
    high: float
    """95 % interval of selective less reference, on the same prompts."""
    prompts: int
    """Those whose answers could all be judged."""
    differ: int
    """Prompts on which selective and reference are not worth the same."""

    def __post_init__(self) -> None:
        check_annotations(EndToEnd, vars(self), "the end-to-end scores")
        means = (self.reference, self.fixed, self.selective)
        require(all(0 <= x <= 1 for x in means), "end-to-end scores", means, "from 0 to 1", _MEASURE)
        ends = (self.low, self.high)
        require(-1 <= self.low <= self.high <= 1, "end-to-end interval", ends, "from -1 to 1, low <= high", _MEASURE)
        require(self.prompts >= 1, "end-to-end prompts", self.prompts, "1 or more", _MEASURE)
        ok = 0 <= self.differ <= self.prompts
        require(ok, "end-to-end prompts that differ", self.differ, f"0 to {self.prompts}", _MEASURE)

    @property
    def difference(self) -> float:
        """Selective less reference."""
        return self.selective - self.reference

    @property
    def worse(self) -> bool:
        """The whole interval lies below zero."""
        return self.high < 0

    @property
    def better(self) -> bool:
        """The whole interval lies above zero."""
        return self.low > 0


@dataclass(frozen=True)
class Guarantee:
    """That decoding with the gate is not worse than the fixed action by more than a margin, end to end.

    Thresholds were fitted on one half of the prompts and tested on the other. A gate that stays shut is the fixed one.
    """

    risk: float
    """Probability, over the prompts that were drawn, that it does not hold."""
    margin: float
    """Of mean utility."""
    fitted: int
    """Prompts that chose the fixed action, the bins and the order of thresholds."""
    tested: int
    """Prompts that thresholds were tested on."""
    thresholds: int
    """How many were tested, one after the other until one failed."""
    difference: float
    """Gated less fixed on the tested prompts; 0 for a gate that stays shut."""
    bound: float
    """The mean of that over all prompts is above this, but for the risk; 0 for a gate that stays shut."""

    def __post_init__(self) -> None:
        check_annotations(Guarantee, vars(self), "the guarantee")
        for name, value in (("risk", self.risk), ("margin", self.margin)):
            require(0 < value < 1, f"{name} of the guarantee", value, "above 0, below 1", _MEASURE)
        for name in ("fitted", "tested", "thresholds"):
            count = getattr(self, name)
            require(count >= 0, f"{name} of the guarantee", count, "0 or more", _MEASURE)
        require(abs(self.difference) <= 1, "difference of the guarantee", self.difference, "from -1 to 1", _MEASURE)
        ok = -self.margin <= self.bound <= 1
        require(ok, "bound of the guarantee", self.bound, f"from {-self.margin:g} to 1", _MEASURE)

    def inspect(self) -> str:
        """In one sentence."""
        return (
            f"not worse than the fixed action by more than {self.margin:g}, end to end, with probability "
            f"{1 - self.risk:g} over validation prompts ({self.tested} tested, {self.fitted} fitted on)"
        )


_MEASURE = "calibrate again"


@dataclass(frozen=True, eq=False)
class Gate:
    """A selective policy for one model, task and axis."""

    model: str
    fingerprint: str
    """Which weights these were: `Model.fingerprint`."""
    task: str
    arms: Arms
    steps_share: float
    """Steps by new tokens in the calibration; what `generate` takes unless told otherwise."""
    lift: Lift
    end_to_end: EndToEnd | None = None
    """None where no prompt has answers of all three that could be judged."""
    guarantee: Guarantee | None = None
    """None where nobody asked for one."""
    unmask: str = __version__
    """Who wrote it."""

    def __post_init__(self) -> None:
        check_annotations(Gate, vars(self), "the gate")
        require(0 < self.steps_share <= 1, "steps_share", self.steps_share, "above 0, at most 1", "0.5 is common")

    def policy(self) -> Policy:
        """The selective policy."""
        return self.arms.selective

    @property
    def hash(self) -> str:
        """Of everything that the file says."""
        return hash_body(FORMAT, _body(self))

    @property
    def summary(self) -> dict[str, Any]:
        """What a result's configuration shows: which gate this is, and what it does."""
        shown = {key: value for key, value in _body(self).items() if key != "calibration"}
        return {"hash": self.hash, **shown, "tau": self.arms.calibration.tau.value}

    def to_json(self) -> str:
        """The file's text; the same gate gives the same bytes."""
        return to_hashed_json(FORMAT, _body(self))

    @classmethod
    def from_json(cls, text: str) -> "Gate":
        """Back from the file's text; refused if it is of another format or not exactly what was written."""
        try:
            gate = from_hashed_json(FORMAT, text, _gate, kind="gate", to_body=_body, refusals=(ConfigError,))
        except HashMismatch as error:
            raise GateFileError(f"{error}; {_AGAIN}") from error
        # The hash is of what is said. A changed letter case of an exponent says the same, and is damage nevertheless.
        if gate.to_json() != text:
            raise GateFileError(f"the gate file is not byte for byte what was written; {_AGAIN}")
        return gate

    def save(self, path: str | Path) -> None:
        """Write the file: beside its place first, so that what was there stays until the new one is whole."""
        try:
            with atomic_write(Path(path)) as partial:
                partial.write_text(self.to_json(), encoding="utf-8")
        except OSError as error:
            raise StorageError(f"gate {str(path)!r} cannot be written ({error.strerror}); choose another") from error

    @classmethod
    def load(cls, path: str | Path, *, fingerprint: str | None = None, force: bool = False) -> "Gate":
        """Read a file that `save` wrote; refused for a model of another fingerprint, unless forced."""
        require(isinstance(path, str | Path), "path of the gate", path, "a path", "name a file that Gate.save wrote")
        known = fingerprint is None or isinstance(fingerprint, str)
        require(known, "fingerprint", fingerprint, "a text, or None", "pass the model's: model.fingerprint")
        require(isinstance(force, bool), "force", force, "True or False", "pass one of them")
        try:
            gate = cls.from_json(read_file(path).decode("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise GateFileError(
                f"gate {format_path(path)} cannot be read ({reason}); allowed: a file that Gate.save wrote; check the "
                "path"
            ) from error
        except GateFileError as error:
            raise GateFileError(f"{format_path(path)[1:-1]}: {error}") from error
        if fingerprint is not None and not force:
            gate.check_model(fingerprint)
        return gate

    def check_model(self, fingerprint: str) -> None:
        """Refuse another model: its signals and its opportunities are others."""
        if fingerprint != self.fingerprint:
            raise OtherModel(
                f"fingerprint of the model is {fingerprint!r}; allowed: {self.fingerprint!r} ({self.model}), on which "
                "the gate was calibrated; load that model, or force the gate and expect nothing"
            )

    def at_other_steps(self, steps: int, usual: int, blanks: int) -> str:
        """In words that a run has other steps than the gate's own share gives, which are `usual`; empty if not."""
        if steps == usual:
            return ""
        return (
            f"the gate was calibrated at {self.steps_share:g} x new tokens ({usual} steps for {blanks}) and is used at "
            f"{steps} steps: its threshold and its expected lift ({self.lift.value:+.4f}) say nothing about that; "
            "leave the steps out, or calibrate at this share"
        )

    def inspect(self) -> str:
        """What it is and does, in plain text."""
        lift, operator = self.lift, self.arms.operator
        lines = [
            f"gate {self.hash[:12]}, written by unmask {self.unmask}",
            f"model: {self.model} ({self.fingerprint}); task: {self.task}; steps: {self.steps_share:g} x new tokens",
            f"axis: {_axis(self.arms)}, around the {self.arms.reference_kind} reference",
            f"expected lift over the fixed action: {lift.value:+.4f} [{lift.low:+.4f}, {lift.high:+.4f}]: {lift.how}",
        ]
        lines.append(f"end to end: {_scores(self.end_to_end)}")
        if self.guarantee is not None:
            lines.append(f"guarantee: {self.guarantee.inspect()}")
        if operator is not None:
            lines.append(f"revisable positions are re-opened by ReMDM: {operator.variant}, eta {operator.rate:g}")
        return "\n".join([*lines, self.arms.calibration.inspect()])


def _axis(arms: Arms) -> str:
    """With the diagnostic where that is not called as its axis."""
    name = arms.diagnostic.name
    return arms.axis if name == arms.axis else f"{arms.axis}, by the diagnostic {name}"


def _scores(runs: EndToEnd | None) -> str:
    if runs is None:
        return "not known, no prompt has answers of all three that could be judged"
    return (
        f"reference {runs.reference:.3f}, fixed action {runs.fixed:.3f}, this gate {runs.selective:.3f}; gate less "
        f"reference {runs.difference:+.3f} [{runs.low:+.3f}, {runs.high:+.3f}], on {runs.prompts} prompts of the "
        f"calibration, of which {runs.differ} differ"
    )


_AGAIN = "allowed: a file that Gate.save wrote; calibrate again"
_NAME = "diagnostic_name"


def _body(gate: Gate) -> dict[str, Any]:
    """Lists, numbers and texts only, in one order. Candidates and the fixed action are there to be read by people.

    The diagnostic is named where it is not called as its axis; a guarantee where there is one; how the fixed action was
    chosen where it was not by one step.
    """
    arms, chosen = gate.arms, gate.arms.calibration
    name = arms.diagnostic.name
    return {
        "unmask": gate.unmask,
        "model": {"name": gate.model, "fingerprint": gate.fingerprint},
        "task": gate.task,
        "axis": arms.axis,
        **({} if name == arms.axis else {_NAME: name}),
        "reference": arms.reference_kind,
        "candidates": list(chosen.candidates),
        "fixed": chosen.candidates[chosen.fixed.action],
        **({} if chosen.settings.fixed == "one-step" else {"fixed_by": chosen.settings.fixed}),
        "diagnostic": _settings(arms.diagnostic),
        "revision": None if arms.operator is None else asdict(arms.operator),
        "steps_share": gate.steps_share,
        "lift": asdict(gate.lift),
        "end_to_end": None if gate.end_to_end is None else asdict(gate.end_to_end),
        **({} if gate.guarantee is None else {"guarantee": asdict(gate.guarantee)}),
        "calibration": json.loads(chosen.to_json()),
    }


def _settings(diagnostic: Any) -> dict[str, Any]:
    return asdict(diagnostic)


def _gate(body: Mapping[str, Any]) -> Gate:
    return Gate(
        model=body["model"]["name"],
        fingerprint=body["model"]["fingerprint"],
        task=body["task"],
        arms=Arms(
            axis=body["axis"],
            reference_kind=body["reference"],
            calibration=_calibration(body["calibration"]),
            diagnostic=_diagnostic(body.get(_NAME, body["axis"]), body["diagnostic"]),
            operator=None if body["revision"] is None else _part(ReMDM, body["revision"]),
        ),
        steps_share=body["steps_share"],
        lift=_part(Lift, body["lift"]),
        end_to_end=None if body["end_to_end"] is None else _part(EndToEnd, body["end_to_end"]),
        guarantee=_part(Guarantee, body["guarantee"]) if "guarantee" in body else None,
        unmask=body["unmask"],
    )


def _calibration(entry: Any) -> Calibration:
    try:
        return Calibration.from_json(json.dumps(entry))
    except HashMismatch as error:
        raise GateFileError(f"its calibration is refused: {error}") from error


def _diagnostic(name: str, settings: Mapping[str, Any]) -> Diagnostic:
    if name not in DIAGNOSTICS:
        raise UnknownName("diagnostic", name, DIAGNOSTICS)
    return _part(DIAGNOSTICS[name], settings)


def _part(kind: Any, settings: Mapping[str, Any]) -> Any:
    check_annotations(kind, settings, kind.__name__)
    return kind(**settings)
