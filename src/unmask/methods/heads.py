"""Learned parts of DEMASK and DDPD: small networks on the denoiser's hidden rows, stored as folders.

A folder holds the weights, a card with their hash and their quality on held-out texts, and a README.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from unmask.base.errors import ConfigError, OtherModel, SchemaError, UnknownName, require
from unmask.base.files import atomic_folder, format_path, os_error_text, read_file, write_text
from unmask.base.json_files import HashMismatch, from_hashed_json, to_hashed_json
from unmask.base.options import check_annotations
from unmask.core import Policy, Search

HeadName = Annotated[str, Field(min_length=1)]
AUTO = "auto"
"""Value of `head` that takes the head which comes with the package for the run's model."""
FORMAT = "unmask-head-1"
"""Format of head cards."""
HEAD = "head"
"""Name of the head's folder inside the folder that training writes."""
CARD, WEIGHTS, PAGE = "head.json", "head.safetensors", "README.md"
SHIPPED = Path(__file__).parent / "shipped_heads"
"""Folder of the heads that come with the package, one folder KIND-MODEL each."""
LEAST_LOG = -30.0
"""Smallest log-probability that the planner reads: a feature of a network must be finite."""


# The networks


class DependenceHead(nn.Module):
    """D_ij = sigmoid((W_q e_i + a) . (W_k e_j + c) / sqrt(d) + b), 0 on the diagonal: how much revealing j moves i.

    e = gelu(W layer_norm(h)). Without this layer the product overfits: it memorises its training texts and is worse
    than a constant on others, because how open i and j still are is no linear function of a hidden row.
    """

    DROP = 0.2
    """Dropout rate in training."""

    def __init__(self, width: int, size: int):
        super().__init__()
        self.inner = nn.Linear(width, 2 * size)
        self.query, self.key = nn.Linear(2 * size, size), nn.Linear(2 * size, size)
        # Most pairs hardly depend on each other.
        self.bias = nn.Parameter(torch.full((), -4.0))

    def logits(self, hidden_BNH: Tensor) -> Tensor:
        """Return the dependence logits of every pair, before the sigmoid: rows are queries, columns keys."""
        rows_BNH = F.dropout(F.layer_norm(hidden_BNH.float(), hidden_BNH.shape[-1:]), self.DROP, self.training)
        e_BNE = F.gelu(self.inner(rows_BNH))
        q_BNK, k_BNK = self.query(e_BNE), self.key(e_BNE)
        return q_BNK @ k_BNK.transpose(-1, -2) / math.sqrt(q_BNK.shape[-1]) + self.bias

    def forward(self, hidden_BNH: Tensor) -> Tensor:
        return self.logits(hidden_BNH).sigmoid() * (1 - torch.eye(hidden_BNH.shape[-2], device=hidden_BNH.device))


class PlannerHead(nn.Module):
    """Logit that each token is noise, from its hidden row and the probability that the model gives it."""

    def __init__(self, width: int, size: int):
        super().__init__()
        self.inner, self.outer = nn.Linear(width + 1, size), nn.Linear(size, 1)

    def forward(self, hidden_BNH: Tensor, p_BN: Tensor) -> Tensor:
        log_p_BN1 = p_BN.float().clamp(min=math.exp(LEAST_LOG)).log()[..., None]
        features = torch.cat((hidden_BNH.float(), log_p_BN1), -1)
        logits: Tensor = self.outer(F.gelu(self.inner(features))).squeeze(-1)
        return logits


HEADS: dict[str, type[DependenceHead] | type[PlannerHead]] = {"demask": DependenceHead, "ddpd": PlannerHead}
"""Network class for each method that reads a head."""


@dataclass(frozen=True)
class HeadCard:
    """Description of a head: its model, data and loss, and its quality on texts it was not trained on."""

    kind: str
    model: str
    fingerprint: str
    width: int
    size: int
    weights_sha256: str
    loss: str
    data: Mapping[str, Any]
    settings: Mapping[str, Any]
    quality: Mapping[str, float]
    """Measures on held-out texts."""
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_annotations(HeadCard, vars(self), "the head's card")


@dataclass(frozen=True)
class Head:
    """A trained network with its card."""

    card: HeadCard
    network: nn.Module


# Policies that read a head


class LearnedPolicy(Policy):
    """A policy that reads a head, named by its field `head`, on the denoiser's hidden rows."""

    headless: ClassVar[str]
    """Value of `head` with which the policy asks the denoiser itself, by more forwards: on `exact`, and for oracles."""
    head: HeadName

    @property
    def reads_head(self) -> bool:
        """Whether the policy reads a head."""
        return self.head != self.headless

    def network_for(self, hidden_BLH: Tensor | None) -> nn.Module:
        """Return the head's network on the device of the hidden rows; refuse rows of another width."""
        if self.head == AUTO:
            raise ConfigError(
                f"head of {self.name} is {AUTO!r}, and this run does not say of which model; allowed: a folder, or "
                f"{self.headless!r}; {_how_to_train(self.name, 'MODEL')}"
            )
        width, own = None if hidden_BLH is None else hidden_BLH.shape[-1], self.loaded_head.card.width
        require(width == own, "width of the hidden rows", width, f"{own}, the head's", "train a head for this model")
        assert hidden_BLH is not None
        # A move to the device that it is on is free, so the head is moved once.
        return self.loaded_head.network.to(hidden_BLH.device)

    @cached_property
    def loaded_head(self) -> Head:
        """The head, read and checked once. `with_head` makes a new policy, so a later run reads a changed folder."""
        return load_head(self.head, self.name)


def with_head(policy: Policy | Search, name: str, fingerprint: str, exact: bool) -> Policy | Search:
    """Return the policy with the head of a model; refuse a head that is missing or was trained for another model."""
    if not isinstance(policy, LearnedPolicy) or not policy.reads_head:
        return policy
    head, todo = policy.head, _how_to_train(policy.name, name)
    if head == AUTO and exact:
        head = policy.headless
    elif head == AUTO:
        known = shipped_heads(policy.name)
        if fingerprint not in known:
            raise ConfigError(
                f"{policy.name} needs a head trained for {name}, and none comes with the package; allowed: a folder of "
                f"`unmask train head`, or head={policy.headless}; {todo}"
            )
        head = known[fingerprint]
    chosen: LearnedPolicy = replace(policy, head=head)  # type: ignore[type-var]
    if chosen.reads_head and chosen.loaded_head.card.fingerprint != fingerprint:
        card = chosen.loaded_head.card
        raise OtherModel(
            f"the head {format_path(head)} was trained for {card.model} ({card.fingerprint}), this is {name} "
            f"({fingerprint}); allowed: a head of the same model; {todo}"
        )
    return chosen


def _how_to_train(kind: str, model: str) -> str:
    """Return the advice, for messages, on how to train a head."""
    return f"train one: unmask train head --kind {kind} --model {model} --out FOLDER, then --set head=FOLDER/head"


# Folders

_RETRAIN_ADVICE = "allowed: what `unmask train head` wrote; train it again"


def shipped_heads(kind: str) -> dict[str, str]:
    """Return the heads of a kind that come with the package, as fingerprint of the model -> name of the head."""
    return {read_card(card.parent).fingerprint: card.parent.name for card in sorted(SHIPPED.glob(f"{kind}-*/{CARD}"))}


def save_head(folder: Path, network: nn.Module, card: HeadCard) -> HeadCard:
    """Write a head's folder completely or not at all; return the card with the weights' hash."""
    # Not at the top: a run without heads needs no reader of weights.
    from safetensors.torch import save

    # Bytes in memory first: the hash on the card is that of the very bytes that are written.
    stored = save({name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()})
    card = replace(card, weights_sha256=hashlib.sha256(stored).hexdigest())
    with atomic_folder(folder) as partial:
        (partial / WEIGHTS).write_bytes(stored)
        write_text(partial / CARD, to_hashed_json(FORMAT, asdict(card)))
        write_text(partial / PAGE, describe_card(card))
    return card


def describe_card(card: HeadCard) -> str:
    """Return the text of a head's README: its card in words."""
    quality = "\n".join(f"| {name.replace('_', ' ')} | {value:.4f} |" for name, value in card.quality.items())
    better = card.quality["loss"] < card.quality["loss_of_the_mean"]
    verdict = "better than" if better else "NOT better than"
    data = ", ".join(f"{name}: {value}" for name, value in card.data.items())
    return (
        f"# {card.kind} head for {card.model}\n\n"
        f"Reads hidden rows of width {card.width} of the model with fingerprint `{card.fingerprint}`.\n\n"
        f"- Data: {data}\n- Loss: {card.loss}\n- Settings: {dict(card.settings)}\n"
        f"- Weights: `{card.weights_sha256}` (SHA-256)\n"
        f"- Verdict: {verdict} always saying the mean of the training texts, by the loss on held-out ones\n\n"
        f"| on held-out texts | |\n|---|---|\n{quality}\n"
    )


def read_card(folder: Path) -> HeadCard:
    """Read the card of a head's folder; refuse a card that was edited."""
    try:
        text = read_file(folder / CARD).decode("utf-8")
        return from_hashed_json(
            FORMAT, text, lambda body: HeadCard(**body), kind="head", to_body=asdict, refusals=(ConfigError,)
        )
    except HashMismatch as error:  # before ValueError, which it is
        raise SchemaError(f"{format_path(folder / CARD)}: {error}; {_RETRAIN_ADVICE}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"head {format_path(folder)} cannot be read ({os_error_text(error)}); allowed: a folder that `unmask train "
            "head` wrote, or the name of a head in the package; check the path"
        ) from error


def load_head(place: str, kind: str) -> Head:
    """Load a head by its name in the package or by its folder; refuse weights that do not have the card's hash."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    # What training was told to write into holds the head in a folder of its own.
    candidates = (
        [Path(place), Path(place) / HEAD] if "/" in place else [SHIPPED / place, Path(place), Path(place) / HEAD]
    )
    folder = next((folder for folder in candidates if (folder / CARD).is_file()), Path(place))
    card = read_card(folder)
    if card.kind not in HEADS:
        raise UnknownName("kind of head", card.kind, HEADS)
    if card.kind != kind:
        raise ConfigError(
            f"{format_path(place)} is a head for {card.kind}; allowed: one for {kind}; "
            f"{_how_to_train(kind, card.model)}"
        )
    weights = format_path(folder / WEIGHTS)
    try:
        stored = read_file(folder / WEIGHTS)
    except OSError as error:
        raise SchemaError(f"{weights} cannot be read ({os_error_text(error)}); {_RETRAIN_ADVICE}") from error
    if hashlib.sha256(stored).hexdigest() != card.weights_sha256:
        raise SchemaError(f"{weights} does not have the hash of its card; {_RETRAIN_ADVICE}")
    network = HEADS[card.kind](card.width, card.size)
    try:
        network.load_state_dict(load(stored))
    except (RuntimeError, SafetensorError, ValueError) as error:
        raise SchemaError(f"the weights are not those of a {card.kind} head ({error}); {_RETRAIN_ADVICE}") from error
    return Head(card, network.eval().requires_grad_(False))
