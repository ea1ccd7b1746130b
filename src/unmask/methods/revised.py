"""Any policy plus ReMDM's re-masking of what it leaves revisable (Wang et al.)."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import ReMDM
from unmask.core import Action, LookAhead, ModelInput, Needs, Policy, State, Trajectory
from unmask.methods.card import OURS, Card
from unmask.methods.fixed import Fixed


@dataclass(frozen=True)
class Revised(Policy):
    """Let the base act, then re-open revisable positions at ReMDM's rate until the last step.

    Uses its whole horizon: a full canvas may still be revised, so a row is done only when its steps are.
    """

    name: ClassVar[str] = "revised"
    card: ClassVar[Card] = Card(
        "this library, with the operator of Wang et al. 2025 (ReMDM)",
        "that of the base",
        "that of the base",
        "that of the base",
        "re-maskable",
        label=OURS,
    )
    random = True
    base: Policy = field(default_factory=lambda: Fixed(commit="none"))
    """Who reveals; what it commits is out of reach."""
    operator: ReMDM = field(default_factory=lambda: ReMDM("conf"))

    @property
    def needs(self) -> Needs:
        return self.base.needs

    @property
    def past_steps(self) -> int:
        """At least one step, whose notes hold the operator's clock; more where the base reads more."""
        return self.base.past_steps if self.base.past_steps < 0 else max(1, self.base.past_steps)

    @property
    def steps(self) -> str:
        return "end" if self.base.steps == "end" else "pace"  # the operator's clock

    def check(self, state: State) -> None:
        self.base.check(state)

    def model_input(self, traj: Trajectory) -> ModelInput:
        return self.base.model_input(traj)

    def done(self, traj: Trajectory) -> Tensor:
        return self.base.done(traj) & (traj.state.step_B >= traj.state.horizon_B)

    @property
    def looks_ahead(self) -> bool:
        return self.base.looks_ahead

    @property
    def cuda_graph(self) -> bool:
        return self.base.cuda_graph

    def bounded(self, length: int) -> Policy:
        return replace(self, base=self.base.bounded(length))

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        return revise(traj, self.base.act(traj, look_ahead), self.operator)


def revise(traj: Trajectory, action: Action, operator: ReMDM) -> Action:
    """The action, and what the operator re-opens."""
    state = traj.state
    psi_BL = confidence_when_revealed(traj)
    remask_BL = operator.remask(state, psi_BL, traj.uniform("remask"))
    # A row with no masks of its own reveals nothing: the region it must still name is what it re-opens.
    full_B = ~state.masked_BL.any(-1)
    if action.remask_BL is not None:
        full_B = full_B & ~action.remask_BL.any(-1)
    return replace(
        action,
        region_BL=torch.where(full_B[:, None], remask_BL, action.region_BL),
        kappa_B=torch.where(full_B, 0.0, action.kappa_B),
        remask_BL=remask_BL if action.remask_BL is None else remask_BL | action.remask_BL,
        notes={**action.notes, "psi_BL": psi_BL},
    )


def confidence_when_revealed(traj: Trajectory) -> Tensor:
    """psi: the probability each token had when it was last revealed; +inf where nothing stands."""
    never_BL = torch.full_like(traj.state.tokens_BL, float("inf"), dtype=torch.float64)
    if traj.last is None:
        return never_BL
    revealed_BL = traj.last.revealed_BL
    kept_BL = traj.notes.get("psi_BL", never_BL)
    psi_BL = torch.where(revealed_BL, traj.last.confidence_BL.double().nan_to_num(0.0), kept_BL)
    return torch.where(traj.state.revealed_BL, psi_BL, never_BL)


def own_view(policy: Policy) -> bool:
    """Whether a policy reads anything but the canvas as it is."""
    return own_view(policy.base) if isinstance(policy, Revised) else type(policy).model_input is not Policy.model_input
