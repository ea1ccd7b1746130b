"""Random networks of the published shapes, and canvases for them. All is drawn on the device, with fixed seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tests.gpu.names import get


@dataclass(frozen=True)
class Shape:
    """A published network without its weights and with few layers."""

    vocab: int
    width: int
    heads: int
    kv_heads: int
    mlp: int
    theta: float
    eps: float
    dream: bool
    """Dream's family: biases of queries, keys and values, rotation in the network's own type, shifted predictions."""

    def spec(self, layers: int) -> Any:
        kind = get("TransformerSpec")
        sizes = (self.vocab, self.width, layers, self.heads, self.kv_heads, self.mlp, self.theta, self.eps)
        return kind(*sizes, self.dream, not self.dream)

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


SHAPES = {
    "llada-8b": Shape(126_464, 4096, 32, 32, 12_288, 5e5, 1e-5, False),
    "dream-7b": Shape(152_064, 3584, 28, 4, 18_944, 1e6, 1e-6, True),
    "mini": Shape(4096, 256, 8, 8, 640, 1e4, 1e-5, False),
    "mini-dream": Shape(4096, 256, 8, 2, 704, 1e4, 1e-6, True),
    "tiny": Shape(300, 64, 4, 2, 96, 1e4, 1e-5, True),
}
"""`tiny` is for Triton's interpreter on a CPU."""


def random_network(
    name: str, dtype: torch.dtype, device: str, engine: str = "eager", *, layers: int = 2, **options: Any
) -> Any:
    """A network whose last token is its mask and whose second and third token end the text."""
    shape = SHAPES[name]
    model = get("Transformer").empty(shape.spec(layers), torch.device(device), dtype)
    draw = torch.Generator(device).manual_seed(1)
    with torch.no_grad():
        for parameter, values in model.named_parameters():
            if "norm" in parameter:
                values.fill_(1.0)
            else:
                values.normal_(std=1.25 * shape.width**-0.5, generator=draw)
    vocabulary = get("Vocabulary")(shape.vocab, shape.vocab - 1, (1, 2))
    network = get("Network")(
        model.requires_grad_(False), vocabulary, int(shape.dream), readout=tuple(range(layers))[-2:], **options
    )
    return get("use_engine")(network, engine) if engine != "eager" else network


def start(network: Any, prompts: Sequence[int], blanks: int, *, steps: int | None = None, seed: int = 0) -> Any:
    """Rows of random prompt tokens and blanks behind them, on the network's device."""
    draw = torch.Generator().manual_seed(seed)
    mask_id = network.vocabulary.mask_id
    canvases = [torch.randint(3, 200, (n,), generator=draw).tolist() + [mask_id] * blanks for n in prompts]
    count = [blanks if steps is None else steps] * len(canvases)
    return get("State").from_canvases(canvases, steps=count, mask_id=mask_id, device=network.device)


def inputs(network: Any, prompts: Sequence[int], blanks: int, *, seed: int = 0) -> Any:
    """What the network reads of such rows, each with a number of its own as running rows have."""
    state = start(network, prompts, blanks, seed=seed)
    made = get("ModelInput").of(state, get("Needs")())
    return replace(made, row_B=torch.arange(len(prompts), device=network.device))


def noise(network: Any, rows: int, seed: int = 0) -> Any:
    keys = torch.arange(rows, dtype=torch.long) + 1000 * seed
    return get("Noise")(keys.to(network.device))


class ManyRows:
    """Stands in for the search of how many rows a pass needs: these bounds hold everywhere, and may be changed."""

    def __init__(self, least: int, most: int | None):
        self.least, self.most = least, most

    def rows(self, queries: int, keys: int, most: int | None = None) -> Any:
        return get("Bounds")(self.least, self.most)

    def packs(self, pack: int) -> Any:
        return get("Bounds")()

    # Under the names of older trees, too.
    find_layer_bounds, find_head_bounds = rows, packs


def rows_of(output: Any, slots: int) -> list[Tensor]:
    """The logits of each row of an answer, copied."""
    owner_R = getattr(output, "slots", output).index_R // slots
    return [output.logits_RV[owner_R == b].clone() for b in range(len(output.wanted_BN))]
