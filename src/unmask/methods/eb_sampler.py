"""EB-Sampler (Ben-Hamu et al.). Taxonomy: entropy bound | adaptive | full | irreversible | none."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unmask.axes import cardinality, commitment, score
from unmask.base.errors import require
from unmask.core import Action, LookAhead, Policy, Prediction, Trajectory
from unmask.methods.blocks import check_block_length, open_block
from unmask.methods.card import RECONSTRUCTION, Card
from unmask.methods.fast_dllm import keep_apart

PROXIES = ("entropy", "confidence", "margin")


@dataclass(frozen=True)
class EBSampler(Policy):
    """Reveal the longest prefix, easiest first, whose joint dependence is bounded by a budget of entropy."""

    name: ClassVar[str] = "eb-sampler"
    card: ClassVar[Card] = Card(
        "Ben-Hamu et al. 2025, EB-Sampler (arXiv 2505.24857)",
        "entropy bound",
        "adaptive",
        "full",
        "irreversible",
        label=RECONSTRUCTION,
        differs=("no code of the authors was found; three independent implementations agree on the rule",),
        # Others' settings: the authors' own per task are not known. DUS counts in bits, 2 of them here.
        presets={"info-gain": {"gamma": 0.01}, "dus-spacing": {"gamma": 1.386294, "block_length": 32, "spacing": 8}},
    )
    steps = "ignore"
    block_cache = True
    gamma: float = 0.1
    """Budget in nats; 0 is one position a step (and those that are certain), infinity all at once."""
    proxy: str = "entropy"
    """What orders positions: entropy, confidence or margin."""
    block_length: int | None = None
    spacing: int = 0
    """DUS's filter on top, as in `fast-dllm`; 0 for none."""

    def __post_init__(self) -> None:
        require(self.gamma >= 0, "gamma", self.gamma, "0 or more", "it is in nats; 1 bit is 0.693")
        require(self.proxy in PROXIES, "proxy", self.proxy, ", ".join(PROXIES), "pick one")
        require(self.spacing >= 0, "spacing", self.spacing, "0 or more", "0 switches the filter off")
        check_block_length(self.block_length, "None is one block")

    @property
    def cuda_graph(self) -> bool:
        return not self.spacing  # its loop is as long as the most chosen positions of a row

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state = traj.state
        open_BL = open_block(state, self.block_length)
        order_BL = _order(traj.current_prediction, self.proxy)[:, : open_BL.shape[1]]
        entropy_BL = traj.current_prediction.clean.entropy_BN[:, : open_BL.shape[1]]
        k_B = cardinality.entropy_budget(order_BL, entropy_BL, open_BL, self.gamma)
        chosen_BL = score.best(order_BL, open_BL, k_B)
        if self.spacing:
            chosen_BL = keep_apart(chosen_BL, order_BL, open_BL, self.spacing, self.block_length)
        return Action(
            score.rows("confidence", state),
            *cardinality.reveal_set(chosen_BL, open_BL),
            commitment.commit_all(state),
            rule="confidence",
        )


def _order(seen: Prediction, proxy: str) -> Tensor:
    """Least error first."""
    if proxy == "entropy":
        return -seen.clean.entropy_BN
    return seen.clean.p_BNK[..., 0] if proxy == "confidence" else seen.clean.margin_BN
