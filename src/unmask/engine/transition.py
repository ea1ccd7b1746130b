"""The transition z_{t+1} = apply(z_t, p_t, a_t), the only way that a canvas changes. It draws no random numbers.

An invalid action does not raise here, because then the host would wait for the device in every step. It sets fault
flags of its row, and the loop reads the flags of all rows at once.
"""

from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import or_

import torch
from torch import Tensor

from unmask.axes import reveal_count, score
from unmask.base.errors import DenoiserError, InvalidAction, Unfinished
from unmask.core import RULES, Action, Prediction, State

LOGITS, STUCK = 64, 256
FAULTS = {
    1: "the region holds no masked position although the row still has some; allowed: one or more; "
    "let the region rule grow, or use kappa = 0 over a non-empty region to wait",
    2: "kappa is outside [0, 1]; allowed: 0 (reveal nothing) to 1 (the whole region); divide k by the region's size",
    4: "alpha is off the simplex; allowed: weights >= 0 that sum to 1; divide the weights by their sum",
    8: "remask names a position that is not revisable; allowed: revealed, uncommitted answer positions; "
    "leave prompt, masked and committed positions alone",
    16: "alpha puts weight on a scoring rule that was not computed; allowed: rules whose ingredients the policy's "
    "`needs` ask for; add divergence (stability) or attention (dependency) to `needs`",
    32: "a position to be revealed has no proposed token; allowed: wanted positions, or ones with an overriding "
    "token; widen the view's wanted slots or pass `tokens`",
    LOGITS: "the denoiser returned NaN or infinite logits; allowed: finite numbers, -inf for barred tokens; check the "
    "checkpoint and the dtype",
    128: "`rule` names a scoring rule, but alpha does not put all weight on it; allowed: the only rule with a weight, "
    "or None; drop `rule` where alpha is changed",
    STUCK: "the row had not finished after 4 x (steps + length) steps; allowed: a policy that reveals positions; look "
    "at its kappa and at what it re-masks",
}


@dataclass(frozen=True)
class Transition:
    """Result of an action: the next state, the positions that changed, and fault flags (0 for a valid action)."""

    state: State
    revealed_BL: Tensor
    remasked_BL: Tensor
    confidence_BL: Tensor
    """Clean probability of each revealed token; NaN if it is not the sampled token."""
    fault_B: Tensor

    def check(self) -> "Transition":
        """Raise for the first row with a fault, else return the transition. Waits for the device."""
        raise_faults(self.fault_B, self.state.step_B - 1, torch.arange(self.state.batch))
        return self


def apply(state: State, prediction: Prediction, action: Action) -> Transition:
    """Apply an action: remask, score, cut to the region, reveal the k best, commit. Invalid rows do not change."""
    _check_action(state, action)
    length, alpha_BJ = state.tokens_BL.shape[1], action.alpha_BJ
    masked_before_BL = state.masked_BL
    remasked_BL = torch.zeros_like(masked_before_BL)
    misplaced_B = remasked_BL[:, 0]
    masked_BL = masked_before_BL
    if action.remask_BL is not None:
        remasked_BL = action.remask_BL & state.revisable_BL
        misplaced_B = (action.remask_BL & ~state.revisable_BL).any(-1)
        masked_BL = masked_before_BL | remasked_BL

    score_BL = score.order(alpha_BJ, prediction, length, action.rule)
    # Computed after remasking, so that a position can be masked and revealed again, with another token, in one step.
    eligible_BL = action.region_BL & masked_BL
    eligible_B = eligible_BL.sum(-1)
    k_B = reveal_count(action.kappa_B, eligible_B)
    revealed_BL = score.best(score_BL, eligible_BL, k_B)

    tokens_BL = prediction.token_BN[:, :length]
    proposed_BL = prediction.wanted_BN[:, :length]
    confidence_BL = prediction.confidence_BN[:, :length]
    if action.tokens_BL is not None:
        override_BL = action.tokens_BL >= 0
        tokens_BL = torch.where(override_BL, action.tokens_BL, tokens_BL)
        proposed_BL = proposed_BL | (override_BL & (action.tokens_BL != state.mask_id))
        confidence_BL = torch.where(override_BL, float("nan"), confidence_BL)

    if action.rule is None:
        off_simplex_B = ~((alpha_BJ >= 0).all(-1) & ((alpha_BJ.sum(-1) - 1).abs() < 1e-6))
        other_rule_B = torch.zeros_like(misplaced_B)
    else:
        # The named rule must have all the weight. To compare with a table of weights would copy it to the device in
        # every step.
        off_simplex_B = torch.zeros_like(misplaced_B)
        other_rule_B = (alpha_BJ[:, RULES.index(action.rule)] != 1) | (alpha_BJ.abs().sum(-1) != 1)
    wrong = torch.stack(
        (
            masked_BL.any(-1) & (eligible_B == 0),
            # Also true for NaN, which comparisons with 0 and 1 would not find.
            action.kappa_B.clamp(0, 1) != action.kappa_B,
            off_simplex_B,
            misplaced_B,
            (score_BL.isnan() & eligible_BL & proposed_BL).any(-1),
            (revealed_BL & ~proposed_BL).any(-1),
            ~prediction.logz_BN.isfinite().all(-1),
            other_rule_B,
            # Depends on the row alone, so that it is given up at the same step whatever the other rows do.
            state.step_B >= 4 * (state.horizon_B + state.length_B),
        )
    )
    # One bit per fault, in the order of `FAULTS`.
    fault_B = (wrong.long() << torch.arange(len(wrong), device=wrong.device)[:, None]).sum(0)
    valid_B1 = (fault_B == 0)[:, None]
    # Without `bar_mask` the sampled token may be the mask itself, which reveals nothing.
    revealed_BL = revealed_BL & valid_B1 & (tokens_BL != state.mask_id)
    canvas_BL = state.tokens_BL
    if action.remask_BL is not None:
        remasked_BL = remasked_BL & valid_B1
        canvas_BL = torch.where(remasked_BL, state.mask_id, canvas_BL)
    return Transition(
        state=state.advance(
            torch.where(revealed_BL, tokens_BL, canvas_BL),
            state.committed_BL | (revealed_BL & action.commit_BL),
            state.step_B + 1,
        ),
        revealed_BL=revealed_BL,
        remasked_BL=remasked_BL,
        confidence_BL=torch.where(revealed_BL, confidence_BL, 0.0),
        fault_B=fault_B,
    )


def raise_faults(fault_B: Tensor, step_B: Tensor, rows_B: Tensor) -> None:
    """Raise the error of the first row with a fault: `DenoiserError`, `Unfinished` or `InvalidAction`.

    `rows_B` are the numbers of the rows in their run, and `step_B` the steps that they took before.
    """
    if not bool(fault_B.any()):
        return
    at = int(fault_B.nonzero()[0])
    flags = int(fault_B[at])
    where = f"row {int(rows_B[at])}, step {int(step_B[at])}"
    if flags & LOGITS:
        raise DenoiserError(f"{where}: {FAULTS[LOGITS]}")
    if flags & STUCK:
        raise Unfinished(f"{where}: {FAULTS[STUCK]}")
    reasons = "; ".join(text for flag, text in FAULTS.items() if flags & flag)
    raise InvalidAction(f"{where}: {reasons}")


def fill_after_eos(change: Transition, eos_ids: tuple[int, ...]) -> Transition:
    """Fill all masks to the right of the first revealed end of text with end of text.

    They are committed only if that token is: if it may be masked again, the tail must not be final.
    """
    state = change.state
    # Compared one by one: a table of tokens would be copied to the device in every step.
    is_eos_BL = reduce(or_, (state.tokens_BL == token for token in eos_ids)) & state.revealed_BL
    filled_BL = state.masked_BL & (is_eos_BL.long().cumsum(-1) > 0)
    final_BL = (is_eos_BL & state.committed_BL).long().cumsum(-1) > 0
    return replace(
        change,
        state=state.advance(
            torch.where(filled_BL, eos_ids[0], state.tokens_BL),
            state.committed_BL | (filled_BL & final_BL),
            state.step_B,
        ),
        revealed_BL=change.revealed_BL | filled_BL,
        confidence_BL=torch.where(filled_BL, float("nan"), change.confidence_BL),
    )


def _check_action(state: State, action: Action) -> None:
    """Refuse an action of the wrong type, shape or dtype, without reading from the device."""
    if not isinstance(action, Action):
        raise InvalidAction(f"the policy returned {action!r}; allowed: an Action; return one from act")
    if action.rule is not None and action.rule not in RULES:
        raise InvalidAction(f"rule is {action.rule!r}; allowed: {', '.join(RULES)} or None; leave it out")
    sizes = {"B": state.batch, "L": state.tokens_BL.shape[1], "J": len(RULES)}
    dtypes = {"region": torch.bool, "commit": torch.bool, "remask": torch.bool, "tokens": torch.long}
    for field in fields(action):
        tensor, (name, _, axes) = getattr(action, field.name), field.name.partition("_")
        if not isinstance(tensor, Tensor):
            continue
        shape = tuple(sizes[axis] for axis in axes)
        if tuple(tensor.shape) != shape:
            raise InvalidAction(
                f"{name} has shape {tuple(tensor.shape)}; allowed: {shape}, one entry per row and canvas position; "
                "build it from the state's own tensors"
            )
        if tensor.dtype != dtypes.get(name, tensor.dtype):
            raise InvalidAction(f"{name} has dtype {tensor.dtype}; allowed: {dtypes[name]}; convert it")
