"""Heads as folders: weights, a card that holds their hash and says what they are worth, and a page to read."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from unmask.base.errors import ConfigError, OtherModel, SchemaError, UnknownName, require
from unmask.base.files import atomic_folder, format_path, os_error_text, read_file, write_text
from unmask.base.json_files import HashMismatch, from_hashed_json, to_hashed_json
from unmask.core import Policy, Search
from unmask.methods.heads.modules import HEADS, DependenceHead, PlannerHead

AUTO = "auto"
"""The head that travels with the package for the run's model, if there is one."""
FORMAT = "unmask-head-1"
HEAD = "head"
"""The folder of a head inside of what training writes."""
CARD, WEIGHTS, PAGE = "head.json", "head.safetensors", "README.md"
SHIPPED = Path(__file__).parent / "shipped"
"""Folders KIND-MODEL."""


@dataclass(frozen=True)
class HeadCard:
    """What a head is: for which model, from which data, by which loss, and how good on what it has not seen."""

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
    """On held-out texts."""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """A trained network with its card."""

    card: HeadCard
    network: nn.Module


class LearnedPolicy(Policy):
    """A policy that reads a head on the denoiser's hidden rows. Its field `head` says which."""

    kind: ClassVar[str]
    without: ClassVar[str]
    """What `head` may say instead where the model itself can answer: on `exact`, and for oracles."""
    head: str

    @property
    def trained(self) -> bool:
        """Whether it reads a head; not where the model answers itself."""
        return self.head != self.without

    def network_for(self, hidden_BLH: Tensor | None) -> nn.Module:
        """Its head, where the rows are; refused where nobody has said which, or where it was made for other rows."""
        if self.head == AUTO:
            raise ConfigError(
                f"head of {self.name} is {AUTO!r}, and this run does not say of which model; allowed: a folder, or "
                f"{self.without!r}; {_how(self.kind, 'MODEL')}"
            )
        head = load_head(self.head, self.kind)
        width = None if hidden_BLH is None else hidden_BLH.shape[-1]
        require(width == head.card.width, "width of the hidden rows", width, f"{head.card.width}, the head's", _TRAIN)
        assert hidden_BLH is not None
        return head.network.to(hidden_BLH.device)


_TRAIN = "train a head for this model"


def fitted(policy: Policy | Search, name: str, fingerprint: str, exact: bool) -> Policy | Search:
    """The policy with the head of this model; refused where there is none, or where its head is another model's."""
    if not isinstance(policy, LearnedPolicy) or policy.head == policy.without:
        return policy
    if policy.head == AUTO and exact:
        return replace(policy, head=policy.without)  # type: ignore[type-var]
    if policy.head == AUTO:
        known = shipped(policy.kind)
        if fingerprint not in known:
            raise ConfigError(
                f"{policy.name} needs a head trained for {name}, and none comes with the package; allowed: a folder of "
                f"`unmask train head`, or head={policy.without}; {_how(policy.kind, name)}"
            )
        return replace(policy, head=known[fingerprint])  # type: ignore[type-var]
    card = load_head(policy.head, policy.kind).card
    if card.fingerprint != fingerprint:
        raise OtherModel(
            f"the head {format_path(policy.head)} was trained for {card.model} ({card.fingerprint}), this is {name} "
            f"({fingerprint}); allowed: a head of the same model; {_how(policy.kind, name)}"
        )
    return policy


def _how(kind: str, model: str) -> str:
    return f"train one: unmask train head --kind {kind} --model {model} --out FOLDER, then --set head=FOLDER/head"


def shipped(kind: str) -> dict[str, str]:
    """The package's heads of a kind: names by the fingerprints of their models."""
    folders = sorted(SHIPPED.glob(f"{kind}-*"))
    return {read_card(folder).fingerprint: folder.name for folder in folders if (folder / CARD).is_file()}


def save_head(folder: Path, network: nn.Module, card: HeadCard) -> HeadCard:
    """Write a folder, whole or not at all; the card gets the weights' hash."""
    # Not at the top: who decodes without heads needs no reader of weights.
    from safetensors.torch import save

    stored = save({name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()})
    card = replace(card, weights_sha256=hashlib.sha256(stored).hexdigest())
    with atomic_folder(folder) as partial:
        (partial / WEIGHTS).write_bytes(stored)
        write_text(partial / CARD, to_hashed_json(FORMAT, asdict(card)))
        write_text(partial / PAGE, page(card))
    return card


def page(card: HeadCard) -> str:
    """The card in words."""
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
    """The card of a folder, as it was written."""
    try:
        text = read_file(folder / CARD).decode("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"head {format_path(folder)} cannot be read ({os_error_text(error)}); allowed: a folder that `unmask train "
            "head` wrote, or the name of a head in the package; check the path"
        ) from error
    try:
        return from_hashed_json(
            FORMAT, text, lambda body: HeadCard(**body), kind="head", to_body=asdict, refusals=(SchemaError,)
        )
    except HashMismatch as error:
        raise SchemaError(f"{format_path(folder / CARD)}: {error}; {_AGAIN}") from error


def load_head(place: str, kind: str) -> Head:
    """A head by the name of one in the package, or by its folder; refused unless its bytes are those of its card."""
    folder = SHIPPED / place if (SHIPPED / place / CARD).is_file() and "/" not in place else Path(place)
    # What training was told to write into holds the head in a folder of its own.
    folder = folder if (folder / CARD).is_file() or not (folder / HEAD / CARD).is_file() else folder / HEAD
    card = read_card(folder)
    if card.kind not in HEADS:
        raise UnknownName("kind of head", card.kind, HEADS)
    if card.kind != kind:
        raise ConfigError(
            f"{format_path(place)} is a head for {card.kind}; allowed: one for {kind}; {_how(kind, card.model)}"
        )
    try:
        stored = read_file(folder / WEIGHTS)
    except OSError as error:
        raise SchemaError(
            f"{format_path(folder / WEIGHTS)} cannot be read ({os_error_text(error)}); {_AGAIN}"
        ) from error
    if hashlib.sha256(stored).hexdigest() != card.weights_sha256:
        raise SchemaError(f"{format_path(folder / WEIGHTS)} does not have the hash of its card; {_AGAIN}")
    return Head(card, _network(stored, card.kind, card.width, card.size))


_AGAIN = "allowed: what `unmask train head` wrote; train it again"


@lru_cache(maxsize=8)
def _network(stored: bytes, kind: str, width: int, size: int) -> DependenceHead | PlannerHead:
    network = HEADS[kind](width, size)
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        network.load_state_dict(load(stored))
    except (RuntimeError, SafetensorError, ValueError) as error:
        raise SchemaError(f"the weights are not those of a {kind} head ({error}); {_AGAIN}") from error
    return network.eval().requires_grad_(False)
