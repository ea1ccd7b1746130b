"""What the denoiser should read, and what a policy needs to know about its answer."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from unmask.core.prediction import PackedSlots
from unmask.core.rows import Shown
from unmask.core.state import State


@dataclass(frozen=True)
class Needs:
    """What a policy reads beyond the proposal: static, so that nothing is computed for nobody."""

    top_k: int = 2
    """How many of the largest probabilities."""
    draws: int = 1
    """How many independent tokens to propose per position; they differ only above temperature 0."""
    filtered: bool = False
    """Statistics of the tempered, filtered distribution as well (Dream scores that one)."""
    divergence: bool = False
    """KL in both directions against the previous step's posterior."""
    posterior: bool = False
    """The whole posterior of the wanted positions."""
    attention: bool = False
    """The denoiser's attention read-out, query by key."""
    hidden: bool = False
    """Hidden states of the wanted positions."""
    revealed: bool = False
    """Predictions at revealed answer positions too, not only at masked ones."""
    shadows: bool = False
    """Extra slots that predict tokens they may not see: each prediction must be read at its own slot."""
    planner: bool = False
    """What the run's second network says of hypothetical canvases (`LookAhead.ask_planner`)."""

    def __or__(self, other: "Needs") -> "Needs":
        """Enough for both."""
        return Needs(**{f.name: max(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})


@dataclass(frozen=True, repr=False)
class ModelInput(Shown):
    """One forward pass: N >= L slots, the canvas first, any extra slots (shadows, probes) after it."""

    tokens_BN: Tensor
    position_BN: Tensor
    valid_BN: Tensor
    """Key mask: padding is never attended to."""
    fixed_BN: Tensor
    """Prompt and given tokens: what guidance hides."""
    wanted_BN: Tensor
    """Slots whose prediction is asked for: only these get logits."""
    attend_BNN: Tensor | None = None
    """Pairwise attention, query by key; None lets every slot read every valid one."""
    given_BN: Tensor | None = None
    """Tokens whose probability is asked for at their slot; -1 asks for nothing."""
    row_B: Tensor | None = None
    """Which running row each one is, for caches that live between steps; None for hypothetical canvases."""
    packed: PackedSlots | None = None
    """Slots to answer for, the wanted ones among them: for steps whose shapes may not follow what is wanted. None for
    the wanted ones alone."""

    @classmethod
    def of(cls, state: State, needs: Needs) -> "ModelInput":
        """The canvas as it is."""
        length = state.tokens_BL.shape[1]
        position_L = torch.arange(length, device=state.tokens_BL.device)
        return cls(
            tokens_BN=state.tokens_BL,
            position_BN=position_L.expand(state.batch, length),
            valid_BN=state.valid_BL,
            fixed_BN=state.fixed_BL & state.valid_BL,
            wanted_BN=state.answer_BL if needs.revealed else state.masked_BL,
        )
