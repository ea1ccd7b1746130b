"""DOS-style (after Zhou et al. 2026): positions that attend most to visible tokens."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import cardinality, score
from unmask.base.errors import ConfigError
from unmask.core import Action, BlockLength, LookAhead, Needs, NonNegative, Policy, State, Trajectory
from unmask.methods.blocks import block_clock, check_blocks, open_block


@dataclass(frozen=True)
class DOS(Policy):
    """Reveal the positions that attend most to visible tokens; a base sampler decides how many."""

    name: ClassVar[str] = "dos"
    needs = Needs(attention=True)
    cuda_graph = True
    base: Literal["schedule", "eb"] = "schedule"
    """Sampler that decides the number of positions: LLaDA's "schedule", or EB-Sampler's budget ("eb")."""
    gamma: NonNegative = 0.1
    """Budget of "eb", in nats."""
    block_length: BlockLength | None = None
    drop_self: bool = False
    """Leave out a position's attention to itself, and divide by the rest."""
    sinks: Annotated[float, Field(gt=0, le=1)] | None = None
    """Mean attention above which a token is left out as an attention sink; None keeps all tokens."""

    @property
    def steps(self) -> str:
        return "end" if self.base == "schedule" else "ignore"

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=self.base == "schedule")

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        dependency_BL = self._dependency(traj)
        if self.base == "schedule":
            clock = block_clock(traj.state, self.block_length)
            open_BL, k_B = clock.open_BL, clock.quota_B
        else:
            open_BL = open_block(traj.state, self.block_length)
            k_B = cardinality.entropy_budget(dependency_BL, traj.entropy_BL, open_BL, self.gamma)
        return Action.reveal(score.best(dependency_BL, open_BL, k_B), of=open_BL)

    def _dependency(self, traj: Trajectory) -> Tensor:
        """Return each position's attention to visible tokens, or its confidence in rows without visible tokens."""
        state, attention_BNN = traj.state, traj.current_prediction.attention_BNN
        length = state.tokens_BL.shape[1]
        if attention_BNN is None:
            raise ConfigError(
                "attention is None; allowed: a denoiser that reads attention out; choose a model that does"
            )
        attention_BLL = attention_BNN[:, :length, :length].double()
        # Attention to other masks says nothing about the text, and to padding must not count.
        visible_BL = state.valid_BL & ~state.masked_BL
        if self.sinks is not None:
            # Mean over real queries alone: padded rows would thin the mean, and a row would depend on its batch.
            queries_BL = state.valid_BL.double()
            mean_BL = torch.einsum("bql,bq->bl", attention_BLL, queries_BL) / queries_BL.sum(-1, keepdim=True)
            visible_BL = visible_BL & (mean_BL <= self.sinks)
        mass_BL = (attention_BLL * visible_BL[:, None, :]).sum(-1)
        if self.drop_self:
            # A position that attends to itself alone has no mass to divide by.
            mass_BL = mass_BL / (1 - attention_BLL.diagonal(dim1=1, dim2=2)).clamp(min=1e-12)
        return torch.where(visible_BL.any(-1, keepdim=True), mass_BL, traj.confidence_BL.double())
