"""Scaled-down networks, and a float64 network to compare them with, for the tests of what wraps a transformer."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from unmask.api.load import SHIPPED
from unmask.core import Vocabulary
from unmask.models import Network, Transformer
from unmask.models.checkpoints import DREAM, LLADA, load_weights, read_config
from unmask.models.checkpoints.config import TensorNames

FAMILIES = {"llada": LLADA, "dream": DREAM, "mini": LLADA, "mini-dream": DREAM}


@dataclass(frozen=True)
class Reference:
    """One row's pass in float64, one head after the other."""

    logits_NV: Tensor
    attention: list[Tensor]
    """By layer: heads, queries, keys."""
    kv: list[tuple[Tensor, Tensor]]
    """By layer: keys and values that were attended to, heads first."""


def run_reference(
    model: Transformer,
    tokens: Sequence[int] | Tensor,
    positions: Sequence[int] | Tensor | None = None,
    allowed_NK: Tensor | None = None,
    frozen: tuple[list[tuple[Tensor, Tensor]], Sequence[int]] | None = None,
) -> Reference:
    """`frozen`: keys and values by layer, and the slots of them that this pass's own ones replace."""
    spec = model.spec
    p = {name: tensor.detach().double() for name, tensor in model.named_parameters()}
    tokens_N = torch.as_tensor(tokens)
    position_N = torch.arange(len(tokens_N)) if positions is None else torch.as_tensor(positions)
    frequency = spec.theta ** (-torch.arange(0, spec.head_dim, 2).double() / spec.head_dim)
    angle_ND = (position_N[:, None] * frequency).repeat(1, 2)
    half = spec.head_dim // 2

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + spec.eps).sqrt() * weight

    def rotate(x: Tensor) -> Tensor:
        return x * angle_ND.cos() + torch.cat((-x[:, half:], x[:, :half]), -1) * angle_ND.sin()

    def heads(x: Tensor) -> list[Tensor]:
        return list(x.split(spec.head_dim, -1))

    x, attention, kv = p["embed.weight"][tokens_N], [], []
    for n in range(spec.layers):
        at = f"layers.{n}"
        qkv = norm(x, p[f"{at}.attn_norm.weight"]) @ p[f"{at}.qkv.weight"].T + p.get(f"{at}.qkv.bias", 0.0)
        q, k, v = (heads(part) for part in qkv.split(spec.qkv, -1))
        q, k_GND, v_GND = [rotate(h) for h in q], torch.stack([rotate(h) for h in k]), torch.stack(v)
        if frozen is not None:
            old, slots = frozen
            k_GND = old[n][0].index_copy(1, torch.as_tensor(slots), k_GND)
            v_GND = old[n][1].index_copy(1, torch.as_tensor(slots), v_GND)
        mixed, probability = [], []
        for h in range(spec.heads):
            g = h * spec.kv_heads // spec.heads
            score_NK = q[h] @ k_GND[g].T / spec.head_dim**0.5
            if allowed_NK is not None:
                score_NK = score_NK.masked_fill(~allowed_NK, float("-inf"))
            probability.append(score_NK.softmax(-1))
            mixed.append(probability[-1] @ v_GND[g])
        x = x + torch.cat(mixed, -1) @ p[f"{at}.out.weight"].T
        gate, up = (norm(x, p[f"{at}.mlp_norm.weight"]) @ p[f"{at}.gate_up.weight"].T).split(spec.mlp, -1)
        x = x + (gate * gate.sigmoid() * up) @ p[f"{at}.down.weight"].T
        attention.append(torch.stack(probability))
        kv.append((k_GND, v_GND))
    return Reference(norm(x, p["norm.weight"]) @ p["head.weight"].T, attention, kv)


@pytest.fixture(scope="session")
def reference() -> Callable[..., Reference]:
    return run_reference


@pytest.fixture(scope="session")
def checkpoint(scaled: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a scaled-down checkpoint, written once: `checkpoint("llada", kv_heads=2)`; or of a trained one."""

    @cache
    def write(kind: str, **options: Any) -> Path:
        if kind.startswith("mini"):
            return SHIPPED / kind
        folder: Path = getattr(scaled, kind)(tmp_path_factory.mktemp(kind), **options)
        return folder

    return write


@pytest.fixture(scope="session")
def transformer(checkpoint: Callable[..., Path]) -> Callable[..., Transformer]:
    """A network of its own for every call: `transformer("dream", torch.bfloat16)`."""

    def load(
        kind: str, dtype: torch.dtype = torch.float32, names: TensorNames | None = None, **options: Any
    ) -> Transformer:
        folder, family = checkpoint(kind, **options), FAMILIES[kind]
        spec = read_config(folder)[1].spec
        return load_weights(spec, names or family.names, folder, "cpu", dtype)

    return load


@pytest.fixture(scope="session")
def network(checkpoint: Callable[..., Path], transformer: Callable[..., Transformer]) -> Callable[..., Network]:
    """The same as a denoiser, for everybody: do not change it."""

    @cache
    def build(kind: str, dtype: torch.dtype = torch.float32, readout: tuple[int, ...] = (), **options: Any) -> Network:
        mask_id = json.loads((checkpoint(kind, **options) / "config.json").read_text())["mask_token_id"]
        model = transformer(kind, dtype, **options)
        return Network(model, Vocabulary(model.spec.vocab, mask_id), FAMILIES[kind].shift, readout)

    return build
