"""DOS-style (after Zhou et al.). Taxonomy: attention dependency | base sampler | full | irreversible | none."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import cardinality, commitment, score
from unmask.base.errors import ConfigError, require
from unmask.core import Action, LookAhead, Needs, Policy, State, Trajectory
from unmask.methods.blocks import check_block_length, check_blocks, clock, open_block
from unmask.methods.card import RECONSTRUCTION, Card
from unmask.methods.llada import quota

BASES = ("schedule", "eb")


@dataclass(frozen=True)
class DOS(Policy):
    """Reveal the positions whose attention rests most on tokens that stand; how many is the base sampler's business."""

    name: ClassVar[str] = "dos"
    card: ClassVar[Card] = Card(
        "Zhou et al. 2026, DOS (arXiv 2603.15340)",
        "attention dependency",
        "base sampler",
        "full",
        "irreversible",
        label=RECONSTRUCTION,
        differs=("from the abstract and the first author's summary: layers, heads and sinks are our choice",),
    )
    needs = Needs(attention=True)
    cuda_graph = True
    base: str = "schedule"
    """How many: LLaDA's "schedule", or "eb", EB-Sampler's budget along this order."""
    gamma: float = 0.1
    """Budget of "eb" in nats."""
    block_length: int | None = None
    drop_self: bool = False
    """Leave a position's attention to itself out, and divide by the rest."""
    sinks: float | None = None
    """Leave out tokens that get more than this mean attention; None keeps all."""

    def __post_init__(self) -> None:
        check_block_length(self.block_length, "leave it out for one block")
        require(self.base in BASES, "base", self.base, " or ".join(BASES), "pick one")
        require(self.gamma >= 0, "gamma", self.gamma, "0 or more", "it is in nats")
        sane = self.sinks is None or 0 < self.sinks <= 1
        require(sane, "sinks", self.sinks, "above 0, at most 1, or None", "a related method uses 0.01")

    @property
    def steps(self) -> str:
        return "end" if self.base == "schedule" else "ignore"

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=self.base == "schedule")

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        dependency_BL = self._dependency(traj)
        if self.base == "schedule":
            now = clock(state, self.block_length)
            open_BL, k_B = now.open_BL, quota(now)
        else:
            open_BL = open_block(state, self.block_length)
            entropy_BL = traj.current_prediction.clean.entropy_BN[:, : open_BL.shape[1]]
            k_B = cardinality.entropy_budget(dependency_BL, entropy_BL, open_BL, self.gamma)
        return Action(
            score.rows("confidence", state),
            *cardinality.reveal_set(score.best(dependency_BL, open_BL, k_B), open_BL),
            commitment.commit_all(state),
            rule="confidence",
        )

    def _dependency(self, traj: Trajectory) -> Tensor:
        """Attention mass from each position to visible tokens; confidence where no token is visible at all."""
        state, seen = traj.state, traj.current_prediction
        length = state.tokens_BL.shape[1]
        if seen.attention_BNN is None:
            raise ConfigError(
                "attention is None; allowed: a denoiser that reads attention out; choose a model that does"
            )
        attention_BLL = seen.attention_BNN[:, :length, :length].double()
        visible_BL = state.valid_BL & ~state.masked_BL
        if self.sinks is not None:
            queries_BL = state.valid_BL.double()
            mean_BL = torch.einsum("bql,bq->bl", attention_BLL, queries_BL) / queries_BL.sum(-1, keepdim=True)
            visible_BL = visible_BL & (mean_BL <= self.sinks)
        mass_BL = (attention_BLL * visible_BL[:, None, :]).sum(-1)
        if self.drop_self:
            mass_BL = mass_BL / (1 - attention_BLL.diagonal(dim1=1, dim2=2)).clamp(min=1e-12)
        anything_B1 = visible_BL.any(-1, keepdim=True)
        return torch.where(anything_B1, mass_BL, seen.confidence_BN[:, :length].double())
