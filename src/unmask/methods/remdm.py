"""ReMDM (Wang et al. 2025): ancestral sampling that remasks, and the authors' loop for LLaDA."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import ReMDM, loop_alpha, reveal_probability, score
from unmask.base.errors import require
from unmask.core import Action, BlockLength, LookAhead, ModelInput, Policy, State, Trajectory
from unmask.methods.composed import confidence_when_revealed

_EPS = 1e-5
"""Time at which the authors' grid ends."""


@dataclass(frozen=True)
class ReMDMSampler(Policy):
    """Sample by revealing each mask and masking each revealed token again with probabilities of the noise schedule.

    The probabilities keep the schedule's marginals. After the last step one more pass fills the remaining masks with
    the most probable tokens. Tokens are meant to be drawn: use temperature 1.
    """

    name: ClassVar[str] = "remdm"
    past_steps = 1
    random = True
    remasks = True
    extra_steps = True
    cuda_graph = True
    operator: ReMDM = field(default_factory=lambda: ReMDM("cap"))

    def done(self, traj: Trajectory) -> Tensor:
        return super().done(traj) & (traj.state.step_B >= traj.state.horizon_B)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        psi_BL = confidence_when_revealed(traj)
        reveal_B, sigma_BL = self.rates(state, psi_BL)
        # The authors' last pass fills what is left with the most probable tokens and re-masks nothing.
        over_B = state.step_B >= state.horizon_B
        reveal_B = torch.where(over_B, 1.0, reveal_B)
        chosen_BL = state.masked_BL & (traj.uniform("order") < reveal_B[:, None])
        # Revealing and remasking draw under different purposes: one number for both would tie them together.
        remask_BL = state.revisable_BL & (traj.uniform("remask") < sigma_BL) & ~over_B[:, None]
        return Action.reveal(
            chosen_BL,
            of=state.masked_BL | remask_BL,
            commit=False,
            remask_BL=remask_BL,
            tokens_BL=torch.where(over_B[:, None] & chosen_BL, traj.top_token_BL, -1),
            notes={"psi_BL": psi_BL},
        )

    def rates(self, state: State, psi_BL: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities to reveal and to remask on the authors' time grid, from 1 to 1e-5 in T steps."""
        dt_B = (1 - _EPS) / state.horizon_B.double()
        t_B = 1 - dt_B * state.step_B
        s_B = (t_B - dt_B).clamp(min=0)
        operator = self.operator
        if operator.variant == "loop":
            shape = (operator.t_on, operator.t_off, operator.alpha_on)
            alpha_t_B, alpha_s_B = loop_alpha(t_B, *shape), loop_alpha(s_B, *shape)
        else:
            alpha_t_B, alpha_s_B = 1 - t_B, 1 - s_B
        shared_B = operator.sigma_per_row(t_B, alpha_t_B, alpha_s_B)
        sigma_BL = operator.sigma_at(t_B, alpha_t_B, alpha_s_B, psi_BL, state.revisable_BL)
        return reveal_probability(alpha_t_B, alpha_s_B, shared_B).clamp(0, 1), sigma_BL


@dataclass(frozen=True)
class ReMDMLLaDA(Policy):
    """Fill 7/8 of a block, then drop the k least sure tokens and refill as many at each step, then finish the block.

    This is the authors' loop for LLaDA. A block of B positions takes 2 B steps, one forward each. Tokens are meant to
    be drawn: use temperature 1.
    """

    name: ClassVar[str] = "remdm-llada"
    past_steps = 1
    extra_steps = True
    steps = "ignore"
    cuda_graph = True
    block_cache = True
    block_length: BlockLength | None = None
    """Answer positions per block, which must divide the answer; None is one block, as in their runs of 32."""
    k: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    """Number of positions dropped and refilled per step (the authors' remdm_number); with 0 these steps do nothing."""

    @property
    def remasks(self) -> bool:
        return self.k > 0

    def check(self, state: State) -> None:
        for answer in state.answer_BL.sum(-1).tolist():
            size = self.block_length or answer
            require(answer % size == 0, "block_length", size, f"a divisor of the {answer} new tokens", "change either")

    def done(self, traj: Trajectory) -> Tensor:
        return super().done(traj) & (traj.state.step_B >= 2 * traj.state.answer_BL.sum(-1))

    def model_input(self, traj: Trajectory) -> ModelInput:
        """Return the canvas without the tokens that this step drops, so that the forward does not read them."""
        state = traj.state
        in_block_BL, dropping_B = self._block_and_phase(state)
        # The k positions of the block that were least sure when they were revealed.
        k_B = torch.where(dropping_B, self.k, 0)
        dropped_BL = score.best(-confidence_when_revealed(traj), state.revisable_BL & in_block_BL, k_B)
        tokens_BL = torch.where(dropped_BL, state.mask_id, state.tokens_BL)
        return ModelInput.of(replace(state, tokens_BL=tokens_BL), self.needs)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        in_block_BL, dropping_B = self._block_and_phase(state)
        # Wanted positions that are not masked are those that the input had dropped.
        remask_BL = traj.current_prediction.wanted_BN[:, : state.tokens_BL.shape[1]] & ~state.masked_BL
        open_BL = in_block_BL & (state.masked_BL | remask_BL)
        return Action.reveal(
            score.best(traj.confidence_BL, open_BL, torch.where(dropping_B, self.k, 1)),
            of=state.masked_BL | remask_BL,
            commit=False,
            remask_BL=remask_BL,
            notes={"psi_BL": confidence_when_revealed(traj)},
        )

    def _block_and_phase(self, state: State) -> tuple[Tensor, Tensor]:
        """Return the positions of the current block, and whether it is at the steps that drop and refill."""
        answer_B = state.answer_BL.sum(-1)
        size_B = answer_B if self.block_length is None else torch.full_like(answer_B, self.block_length)
        block_B, inner_B = state.step_B // (2 * size_B), state.step_B % (2 * size_B)
        in_block_BL = state.answer_BL & (state.rank_BL // size_B[:, None] == block_B[:, None])
        # The method's own steps leave no mask behind, but another policy's may: those are filled at the end.
        over_B = block_B * size_B >= answer_B
        in_block_BL = torch.where(over_B[:, None], state.answer_BL, in_block_BL)
        filled_B = 7 * size_B // 8
        return in_block_BL, ~over_B & (inner_B >= filled_B) & (inner_B < filled_B + size_B)
