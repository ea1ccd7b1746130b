"""DEMASK (Ringel et al. 2026): reveal tokens together that hardly depend on each other, by a learned predictor."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import score
from unmask.core import Action, BlockLength, LookAhead, Needs, NonNegative, Posterior, Probability, State, Trajectory
from unmask.methods.blocks import open_block
from unmask.methods.heads import AUTO, HeadName, LearnedPolicy


@dataclass(frozen=True)
class DEMASK(LearnedPolicy):
    """Reveal positions together, surest first, while their summed dependence stays within a budget.

    D_ij is the expected total variation by which revealing j moves the prediction at i. If influences at most add up,
    the revealed set differs from a draw of its joint distribution by no more than the budget, in total variation.
    """

    name: ClassVar[str] = "demask"
    steps = "ignore"
    headless: ClassVar[str] = "measured"
    budget: NonNegative = 0.1
    """Largest summed dependence tau_d of a revealed set; 0 reveals one position per step, inf all sure ones."""
    threshold: Probability = 0.0
    """Smallest confidence tau_c of a candidate; if none is that sure, the surest position is revealed alone."""
    rule: Literal["total", "token"] = "total"
    """Whether the budget limits the whole set ("total") or each added position ("token")."""
    both: bool = False
    """Count also the influence of an added position on those accepted before, which is safer and slower."""
    block_length: BlockLength | None = None
    head: HeadName = AUTO
    """Source of D: "auto" for the package's head, a folder, or "measured" by forwards of the model."""
    outcomes: Annotated[int, Field(ge=1, le=64)] = 8
    """Number of most probable tokens of a candidate that "measured" tries; exact for vocabularies of that size."""

    @property
    def needs(self) -> Needs:
        return Needs(hidden=True) if self.reads_head else Needs(top_k=self.outcomes, posterior=True)

    @property
    def looks_ahead(self) -> bool:
        return not self.reads_head

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        length = traj.state.tokens_BL.shape[1]
        open_BL = open_block(traj.state, self.block_length)
        candidate_BL = self.candidates(traj.confidence_BL, open_BL)
        if self.reads_head:
            hidden_BNH = traj.current_prediction.hidden_BNH
            depends_BLL = self.network_for(hidden_BNH)(hidden_BNH)[:, :length, :length]
        else:
            depends_BLL = measure_dependence(traj, look_ahead, candidate_BL, self.outcomes)
        chosen_BL, _ = self.select(traj.confidence_BL, candidate_BL, depends_BLL)
        return Action.reveal(chosen_BL, of=open_BL)

    def candidates(self, confidence_BL: Tensor, open_BL: Tensor) -> Tensor:
        """Return the open positions whose confidence reaches the threshold, or the surest one if none does."""
        sure_BL = open_BL & (confidence_BL >= self.threshold)
        surest_BL = score.best(confidence_BL, open_BL, open_BL.any(-1).long())
        return torch.where(sure_BL.any(-1, keepdim=True), sure_BL, surest_BL)

    def select(self, confidence_BL: Tensor, candidate_BL: Tensor, depends_BLL: Tensor) -> tuple[Tensor, Tensor]:
        """Add candidates, surest first, while the budget lasts; return the chosen set and the dependence it spent."""
        order_BL = (
            torch.where(candidate_BL, confidence_BL, float("-inf")).sort(dim=-1, descending=True, stable=True).indices
        )
        chosen_BL, depends_BLL = torch.zeros_like(candidate_BL), depends_BLL.double()
        total_B, row_B = depends_BLL.new_zeros(len(order_BL)), torch.arange(len(order_BL), device=order_BL.device)
        for place in range(int(candidate_BL.sum(-1).max())):
            at_B = order_BL[:, place]
            # Influence of the accepted positions on the next one, and with `both` its influence on them.
            cost_B = (depends_BLL[row_B, at_B] * chosen_BL).sum(-1)
            if self.both:
                cost_B = cost_B + (depends_BLL[row_B, :, at_B] * chosen_BL).sum(-1)
            spent_B = total_B + cost_B if self.rule == "total" else cost_B
            # The first one is always accepted, or a small budget would reveal nothing and the run never end.
            taken_B = candidate_BL[row_B, at_B] & (~chosen_BL.any(-1) | (spent_B <= self.budget))
            total_B = torch.where(taken_B, total_B + cost_B, total_B)
            chosen_BL[row_B, at_B] |= taken_B
        return chosen_BL, total_B


def measure_dependence(traj: Trajectory, look_ahead: LookAhead, candidate_BL: Tensor, outcomes: int) -> Tensor:
    """Measure D_ij by forwards: the mean total variation at mask i over the likely tokens of candidate j."""
    state, seen = traj.state, traj.current_prediction
    # A single candidate is revealed in any case, so nothing is measured for it.
    row_U, at_U = (candidate_BL & (candidate_BL.sum(-1, keepdim=True) > 1)).nonzero(as_tuple=True)
    p_UK = seen.clean.p_BNK[row_U, at_U, :outcomes].double()
    depends_BLL = torch.zeros((*candidate_BL.shape, candidate_BL.shape[1]), dtype=torch.float64, device=p_UK.device)
    if len(row_U) == 0:
        return depends_BLL
    tokens_UK = seen.clean.top_BNK[row_U, at_U, :outcomes]
    # One pass per rank over all candidates of all rows, weighted by the probability of the candidate's token.
    for rank in range(p_UK.shape[1]):
        after = _write_token(state.select(row_U), at_U, tokens_UK[:, rank])
        then = look_ahead.predict(after, row_U, Needs(posterior=True))
        moved_UL = _total_variation(then.posterior, after, seen.posterior, row_U)
        weight_U = p_UK[:, rank] / p_UK.sum(-1)
        depends_BLL[row_U, :, at_U] += weight_U[:, None] * moved_UL
    return depends_BLL


def _write_token(states: State, at_U: Tensor, token_U: Tensor) -> State:
    """Return the states with one more token on each row's canvas."""
    tokens_UL = states.tokens_BL.clone()
    tokens_UL[torch.arange(len(at_U), device=at_U.device), at_U] = token_U
    return replace(states, tokens_BL=tokens_UL)


def _total_variation(then: Posterior | None, after: State, now: Posterior | None, row_U: Tensor) -> Tensor:
    """Return the total variation between two predictions at every mask that is left; 0 elsewhere."""
    assert then is not None
    assert now is not None
    out_UL = torch.zeros(after.tokens_BL.shape, dtype=torch.float64, device=row_U.device)
    u_R, i_R = after.masked_BL.nonzero(as_tuple=True)
    # In parts: two distributions for every mask of every hypothetical row may not fit into memory at once.
    for part in torch.arange(len(u_R), device=u_R.device).split(256):
        u_C, i_C = u_R[part], i_R[part]
        new_CV = then.log_prob(then.slot_BN[u_C, i_C]).double().exp()
        old_CV = now.log_prob(now.slot_BN[row_U[u_C], i_C]).double().exp()
        out_UL[u_C, i_C] = (new_CV - old_CV).abs().sum(-1) / 2
    return out_UL
