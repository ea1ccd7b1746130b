"""LLaDA (Nie et al.). Taxonomy: confidence | scheduled | full | irreversible | none."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import cardinality, commitment, score
from unmask.base.errors import require
from unmask.core import Action, LookAhead, Policy, State, Trajectory
from unmask.methods.blocks import Clock, check_block_length, check_blocks, clock
from unmask.methods.card import Card


@dataclass(frozen=True)
class LLaDA(Policy):
    """Reveal the block's scheduled number of surest (or random) positions; what is revealed stays."""

    name: ClassVar[str] = "llada"
    card: ClassVar[Card] = Card(
        "Nie et al. 2025, LLaDA (arXiv 2502.09992)",
        "confidence",
        "scheduled",
        "full",
        "irreversible",
        differs=("with block_length blocks follow each other, as in the authors' code",),
        # Instruct models; pure diffusion, their other setting, is the default.
        presets={
            "llada/gsm8k": {"block_length": 8},
            "llada/math": {"block_length": 64},
            "llada-1.5/gsm8k": {"block_length": 16},
            "llada-1.5/math": {"block_length": 128},
            "llada-1.5/gpqa": {"block_length": 16},
            "llada-1.5/humaneval": {"block_length": 32},
            "llada-1.5/mbpp": {"block_length": 32},
            "llada-1.5/ifeval": {"block_length": 16},
        },
    )
    cuda_graph = True
    block_cache = True
    block_length: int | None = None
    """Answer positions per block; None is one block. Must divide the answer, and the blocks the steps."""
    remasking: str = "low_confidence"
    """"low_confidence" or "random": the authors' word for what decides who stays masked."""

    def __post_init__(self) -> None:
        known = ("low_confidence", "random")
        check_block_length(self.block_length, "leave it out for one block")
        require(self.remasking in known, "remasking", self.remasking, " or ".join(known), "pick one")

    @property
    def random(self) -> bool:
        return self.remasking == "random"

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=True)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        now = clock(state, self.block_length)
        k_B = quota(now)
        alpha_BJ, commit_BL = score.rows("confidence", state), commitment.commit_all(state)
        if self.remasking == "random":
            chosen_BL = score.best(traj.uniform("order"), now.open_BL, k_B)
            region_BL, kappa_B = cardinality.reveal_set(chosen_BL, now.open_BL)
        else:
            region_BL, kappa_B = now.open_BL, cardinality.fraction(k_B, now.open_BL.sum(-1))
        return Action(alpha_BJ, region_BL, kappa_B, commit_BL, rule="confidence")


def quota(now: Clock) -> Tensor:
    """LLaDA's schedule; a block that fell behind it (an earlier deviation) is completed on its last step."""
    k_B = cardinality.llada_quota(now.size_B, now.steps_B, now.inner_B)
    return torch.where(now.closing_B, now.open_BL.sum(-1), k_B)
