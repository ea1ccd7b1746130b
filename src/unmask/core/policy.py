"""Base classes of decoding methods: policies, searches, and the look-ahead through which they run the model."""

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
"""Types of settings with a range. The fields of a method are checked against their types when it is created."""

ALL = -1
"""Value of `past_steps` for a policy that reads all past steps."""

STEPS = ("end", "pace", "ignore")
"""Allowed values of `DecodingMethod.steps`."""

TRAITS = {
    *("needs", "past_steps", "random", "looks_ahead", "steps", "extra_steps", "cuda_graph", "block_cache", "remasks"),
    *("own_end", "baseline"),
}
"""Names of the traits of methods. A trait is a class attribute, or a property that reads the method's settings."""

_NOT_DECLARED = (
    "a policy asked to look ahead without saying so; allowed: `looks_ahead` is True for policies that do; set it in "
    "the class"
)


class LookAhead(Protocol):
    """Runs a network on hypothetical canvases, counts the passes, and remembers their outputs.

    Both methods raise `ContractError` unless a subclass overrides them.
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
        """Predict for hypothetical rows.

        Args:
            owner_U: the running row that pays for each hypothetical row.
            given_UL: tokens whose probability to return, -1 for none (`ModelInput.given_BN`).
            inputs: input of the pass, if it differs from the canvas. An output with pairwise attention is not
                remembered.
            noise: one key per row, e.g. `traj.noise.select(owner_U)`, to draw tokens as the run does; None for the most
                probable tokens.
            temperature: temperature of the draws, if it differs from the run's.
        """
        raise ContractError(_NOT_DECLARED)

    def ask_planner(
        self, states: State, owner_U: Tensor, needs: Needs | None = None, *, inputs: ModelInput | None = None
    ) -> ModelOutput:
        """Run the second network on hypothetical rows. Its passes have a count of their own."""
        raise ContractError(_NOT_DECLARED)


class _NoLookAhead(LookAhead):
    """Look-ahead of policies that do not declare `looks_ahead`: every call raises."""


NO_LOOK_AHEAD = _NoLookAhead()


class SearchContext(LookAhead, Protocol):
    """The look-ahead of a search, which can also move hypothetical rows. Each path keeps its own predictions."""

    @property
    def forwards_B(self) -> Tensor:
        """Denoiser passes that each running row has paid for so far."""
        ...

    def apply_action(self, traj: Trajectory, policy: str, action: Action) -> Trajectory:
        """Apply an action to hypothetical rows, and append the step to their trajectories."""
        ...

    def report_paths(self, paths: Sequence[Trajectory]) -> None:
        """Pass the best path so far of each running row to `on_step` of the run. Each path has one row."""
        ...


class DecodingMethod(ABC):
    """Base of policies and searches: checks their settings, and has the defaults of their traits.

    Subclasses are frozen dataclasses. A field is a setting: it is recorded, hashed, and can be changed on a command
    line. A trait is a class attribute (`random = True`), or a property if it depends on a setting. The defaults below
    are properties because type checkers let a subclass replace a property by either.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Check every setting against its annotation, without converting it: recorded values are as they were given."""
        values = {setting: getattr(self, field) for setting, field in self.setting_fields.items()}
        check_annotations(type(self), values, self.name, self.setting_fields)

    @property
    def setting_fields(self) -> Mapping[str, str]:
        """Recorded name of each setting -> name of its field. Both are equal except in classes that replaced others."""
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
        """Refuse a start that this method cannot decode. Called once per run."""
        return None

    @property
    def needs(self) -> Needs:
        """Parts of a prediction that the method reads."""
        return Needs()

    @property
    def random(self) -> bool:
        """Whether the method draws random numbers. A method that does must set `random = True`."""
        return False

    @property
    def extra_steps(self) -> bool:
        """Whether the method may take more steps than the answer has positions."""
        return False

    @property
    def remasks(self) -> bool:
        """Whether the method may mask a revealed token again. Its texts then have no exact likelihood."""
        return False

    @property
    def steps(self) -> str:
        """Effect of the number of steps: ends the run ("end"), only sets its pace ("pace"), or none ("ignore")."""
        return "end"

    @property
    def block_cache(self) -> bool:
        """Whether the method fills blocks of `block_length` positions in order, so that a cache can hold the rest."""
        return False


class Policy(DecodingMethod):
    """A method that decides one action per step. It stores nothing but `Action.notes`, which its next step can read."""

    @abstractmethod
    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        """Return the action at the trajectory's state, as a pure function of the trajectory and its look-aheads."""

    def model_input(self, traj: Trajectory) -> ModelInput:
        """Return the input of the step's forward."""
        return ModelInput.of(traj.state, self.needs)

    def done(self, traj: Trajectory) -> Tensor:
        """Flag the rows that have finished."""
        return ~traj.state.masked_BL.any(-1)

    @property
    def own_end(self) -> bool:
        """Whether rows end by a rule of this policy, not when no mask is left. No other policy can continue them."""
        return type(self).done is not Policy.done

    @property
    def past_steps(self) -> int:
        """Number of past steps that the policy reads: 0, 1 or `ALL`; reading notes counts as 1.

        With 0, studies share the continuation of branches that reach the same canvas.
        """
        return 0

    @property
    def looks_ahead(self) -> bool:
        """Whether the policy calls the look-ahead. A policy that does must set `looks_ahead = True`."""
        return False

    @property
    def cuda_graph(self) -> bool:
        """Whether whole steps of the policy may be recorded as a CUDA graph and replayed.

        `model_input`, `act` and `done` of the policy that `bounded` returns must then copy nothing from or to the
        device, and the shapes of their tensors must depend only on the shapes of their arguments. The input must have
        the slots of the canvas, and want only answer positions.
        """
        return False

    def bounded(self, length: int) -> "Policy":
        """Return the policy with all numbers computed that it would read from the device at this canvas length."""
        return self


class Search(DecodingMethod):
    """A method with a loop of its own, such as a beam or tree search. It runs the model only through its context."""

    def baseline_forwards(self, state: State) -> Tensor | None:
        """Return the forwards that the baseline takes per row, the smallest `budget`; None without a baseline."""
        return None

    @property
    def baseline(self) -> "Policy | None":
        """Policy that the search is compared with at an equal number of forwards; None if there is none."""
        return None

    @abstractmethod
    def decode(self, context: SearchContext, traj: Trajectory) -> Trajectory:
        """Decode a trajectory to its end, and return it with its steps.

        Rows must be moved by `context.apply_action`, which records steps and fills tails behind an end of text. The
        caller adds the cost.
        """
