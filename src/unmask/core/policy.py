"""The contracts of decoding methods: policies, searches, and the look-ahead that they read the model with."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import Field
from torch import Tensor

from unmask.base.errors import ContractError
from unmask.base.options import check_annotations
from unmask.core.model_io import ModelInput, ModelOutput, Needs
from unmask.core.noise import Noise
from unmask.core.prediction import Prediction
from unmask.core.state import Action, State
from unmask.core.trajectory import Trajectory

Probability = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
Natural = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
BlockLength = Annotated[int, Field(ge=1, le=1_000_000)]
"""Types of settings that carry their ranges. Fields of a method are checked against them when it is made."""

ALL = -1
"""`past_steps` of a policy that reads its whole past."""

STEPS = ("end", "pace", "ignore")
"""What the number of steps can mean to a method (`DecodingMethod.steps`)."""

TRAITS = {
    *("needs", "past_steps", "random", "looks_ahead", "steps", "extra_steps", "cuda_graph", "block_cache", "remasks"),
    *("own_end", "baseline"),
}
"""What a method declares of itself, in class attributes or in properties that read its settings."""

_NOT_DECLARED = (
    "a policy asked to look ahead without saying so; allowed: `looks_ahead` is True for policies that do; set it in "
    "the class"
)


class LookAhead(Protocol):
    """The one way to run a network on a canvas that is not (yet) real: batched, counted, remembered.

    A class that inherits from it refuses both calls until it overrides them.
    """

    def predict(
        self,
        states: State,
        owner_U: Tensor,
        needs: Needs | None = None,
        given_UL: Tensor | None = None,
        *,
        inputs: ModelInput | None = None,
        noise: Noise | None = None,
        temperature: float | None = None,
    ) -> Prediction:
        """Predictions for hypothetical rows; `owner_U` says which running row pays for each.

        They are greedy, or drawn as the run draws where `noise` is given (one key per row, e.g.
        `traj.noise.select(owner_U)`), at a `temperature` of their own where one is given. `needs` may ask for
        attention, hidden rows and several draws. `given_UL` asks for the probability of these tokens (-1: none), as
        `ModelInput.given_BN` does. An input of its own (`inputs`) lets the pass read less, or more, than the canvas; it
        is remembered unless it has an attention of its own.
        """
        raise ContractError(_NOT_DECLARED)

    def ask_planner(
        self, states: State, owner_U: Tensor, needs: Needs | None = None, *, inputs: ModelInput | None = None
    ) -> ModelOutput:
        """Output of the run's second network for hypothetical rows. Its passes are counted apart."""
        raise ContractError(_NOT_DECLARED)


class _NoLookAhead(LookAhead):
    """The look-ahead of policies that decide from the step's own forward."""


NO_LOOK_AHEAD = _NoLookAhead()


class SearchContext(LookAhead, Protocol):
    """Look-ahead of a search, with calls to move and show hypothetical rows. Each path keeps its own predictions."""

    @property
    def forwards_B(self) -> Tensor:
        """Denoiser passes that every running row has paid so far."""
        ...

    def apply_action(self, traj: Trajectory, policy: str, action: Action) -> Trajectory:
        """Apply an action to hypothetical rows, fill tails where the run does so, and append the step."""
        ...

    def report_paths(self, paths: Sequence[Trajectory]) -> None:
        """Show the best path so far of rows still running to whoever watches the run. Each path has one row."""
        ...


class DecodingMethod(ABC):
    """Traits and settings that policies and searches have in common. Frozen; all of it static.

    A trait is a class attribute (`random = True`), or a property where it depends on a setting. It is never a field: a
    field is a setting, which is recorded, hashed and changed from a command line. The defaults below are properties
    because a subclass may replace a property by either, and a type checker accepts both.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Check every setting against its annotation. Values stay as they were given, because they are recorded."""
        values = {setting: getattr(self, field) for setting, field in self.setting_fields.items()}
        check_annotations(type(self), values, self.name, self.setting_fields)

    @property
    def setting_fields(self) -> Mapping[str, str]:
        """Recorded name of each setting -> the field that holds it. They differ only where a class replaced another."""
        return {field.name: field.name for field in fields(self)} if is_dataclass(self) else {}

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name, kind in get_annotations(cls).items():
            if name in TRAITS and "ClassVar" not in str(kind):
                raise ContractError(
                    f"{cls.__name__} has a field {name!r}, which is a trait; allowed: a class attribute without an "
                    f"annotation, or a property where it depends on a setting; write `{name} = ...`, or call the "
                    "setting something else"
                )
        steps = cls.__dict__.get("steps", "end")
        if isinstance(steps, str) and steps not in STEPS:
            raise ContractError(f"steps of {cls.__name__} is {steps!r}; allowed: {', '.join(STEPS)}; pick one")

    def check(self, state: State) -> None:
        """Refuse a start this method cannot decode; called once."""
        return None

    @property
    def needs(self) -> Needs:
        """Parts of a prediction that the method reads."""
        return Needs()

    @property
    def random(self) -> bool:
        """Whether it draws random numbers of its own. A method that does must set `random = True`."""
        return False

    @property
    def extra_steps(self) -> bool:
        """Whether it may take more steps than the answer has positions; all others are refused such a horizon."""
        return False

    @property
    def remasks(self) -> bool:
        """Whether it may mask a revealed token again: a text then has more than one way, and no exact likelihood."""
        return False

    @property
    def steps(self) -> str:
        """Purpose of the number of steps: it ends the run ("end"), sets its pace without ending it ("pace"), or changes
        nothing ("ignore")."""
        return "end"

    @property
    def block_cache(self) -> bool:
        """Whether it fills blocks of `block_length` positions one after the other, so a cache can hold the rest."""
        return False


class Policy(DecodingMethod):
    """Decides one action per step. Frozen; what it must remember goes into `Action.notes`."""

    @abstractmethod
    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        """The decision at the trajectory's state: a pure function of what the trajectory and the look-ahead tell."""

    def model_input(self, traj: Trajectory) -> ModelInput:
        """Build the input of the step's forward."""
        return ModelInput.of(traj.state, self.needs)

    def done(self, traj: Trajectory) -> Tensor:
        """Flag the rows that have finished."""
        return ~traj.state.masked_BL.any(-1)

    @property
    def own_end(self) -> bool:
        """Whether it ends rows by a rule of its own, not when they are full: nobody else can go on from there."""
        return type(self).done is not Policy.done

    @property
    def past_steps(self) -> int:
        """How many past steps it reads: 0, 1 (notes count) or `ALL`. Futures are merged only under 0."""
        return 0

    @property
    def looks_ahead(self) -> bool:
        """Whether it runs a network on hypothetical canvases. A method that does must set `looks_ahead = True`."""
        return False

    @property
    def cuda_graph(self) -> bool:
        """Whether whole steps of the policy may be recorded as a CUDA graph and replayed.

        `model_input`, `act` and `done` of the policy that `bounded` returns must then read nothing back from the device
        and copy nothing to it, and the shapes of their tensors must follow from the shapes they are given. The input
        must have the canvas's slots, and want only answer positions.
        """
        return False

    def bounded(self, length: int) -> "Policy":
        """Return the policy with all values computed that it would read from the device on canvases of this length."""
        return self


class Search(DecodingMethod):
    """A method that owns its loop: beams, trees, particles. Reads the model only through the look-ahead."""

    def baseline_forwards(self, state: State) -> Tensor | None:
        """Forward passes that the baseline takes for each row, the least allowed `budget`; None without a baseline."""
        return None

    @property
    def baseline(self) -> "Policy | None":
        """Method that it is measured against with as many forwards; None where there is no such method."""
        return None

    @abstractmethod
    def decode(self, context: SearchContext, traj: Trajectory) -> Trajectory:
        """Decode a started trajectory to its end, and return it with the steps that led there.

        Rows move by `context.apply_action`, so that steps are recorded and end-of-text filling is honoured.
        What was spent is filled in by the caller.
        """
