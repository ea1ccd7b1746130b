"""The network behind LLaDA and Dream: a bidirectional pre-norm transformer (RMSNorm, RoPE, gated SiLU).

Published tensors that read the same input are stored fused (q, k and v; gate and up), so that each needs one matrix
product. With `fused = False` the same storage is multiplied part by part, which is bitwise the published arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.base.errors import require


@dataclass(frozen=True)
class TransformerSpec:
    """Sizes and arithmetic of a network."""

    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    theta: float
    """Base of the rotary frequencies."""
    eps: float
    qkv_bias: bool
    rope_float32: bool
    """Rotate q and k in float32 (LLaDA), or in the network's own type with rounded cosines (Dream)."""

    def __post_init__(self) -> None:
        even = self.width % (2 * self.heads) == 0
        require(even, "width", self.width, f"a multiple of {2 * self.heads}, twice the heads", "rotations need pairs")
        shared = self.heads % self.kv_heads == 0
        require(shared, "kv_heads", self.kv_heads, f"a divisor of {self.heads}, the heads", "each serves as many")

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def qkv(self) -> tuple[int, int, int]:
        """Output sizes of q, k and v in their fused projection."""
        return self.width, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        """Number of weights."""
        layer = sum(self.qkv) * (self.width + self.qkv_bias) + self.width**2 + 3 * self.mlp * self.width
        return 2 * self.vocab * self.width + self.layers * (layer + 2 * self.width) + self.width


class Rotation(NamedTuple):
    """Cosines and sines of the rotary angles of each slot."""

    cos_B1NF: Tensor
    sin_B1NF: Tensor

    @classmethod
    def of(cls, position_BN: Tensor, spec: TransformerSpec, dtype: torch.dtype) -> "Rotation":
        # Not kept as a buffer of the module: `module.to(bfloat16)` would silently round the frequencies.
        even = torch.arange(0, spec.head_dim, 2, device=position_BN.device, dtype=torch.float32)
        angle_BNF = position_BN[..., None].float() * (1.0 / spec.theta ** (even / spec.head_dim))
        angle_B1NF = torch.cat((angle_BNF, angle_BNF), -1)[:, None]
        target = torch.float32 if spec.rope_float32 else dtype
        # Dream rounds cosines to its own type, LLaDA rotates in float32: another choice gives other logits.
        return cls(angle_B1NF.cos().to(target), angle_B1NF.sin().to(target))

    def __call__(self, x_BMNF: Tensor) -> Tensor:
        """Rotate the pairs (i, i + F/2) of each head's numbers, in the type of the cosines."""
        x = x_BMNF.to(self.cos_B1NF.dtype)
        left, right = x.chunk(2, -1)
        return (x * self.cos_B1NF + torch.cat((-right, left), -1) * self.sin_B1NF).to(x_BMNF.dtype)


class PlainOps:
    """The operations between a layer's matrix products, in plain torch, as the authors published them.

    They are the oracle of the kernels, which are a subclass. An implementation may write into its arguments.
    """

    def add_norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Return x + delta and its RMSNorm."""
        # The norm is float32 and cast back before the weight is applied, as both models publish it.
        x = x if delta is None else x + delta
        wide = x.float()
        return x, weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)

    def rotate(
        self, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, head_dim: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Split the parts of the qkv product by head, (B, heads, N, F), and rotate queries and keys."""
        q, k, v = (y.unflatten(-1, (-1, head_dim)).transpose(1, 2) for y in (q, k, v))
        return rotation(q), rotation(k), v

    def gate(self, gate: Tensor, up: Tensor) -> Tensor:
        """Return silu(gate) * up."""
        return F.silu(gate) * up


PLAIN = PlainOps()


class KVStore(Protocol):
    """Interface of a cache that keeps keys and values beyond a pass."""

    def exchange(self, layer: int, k_BGNF: Tensor, v_BGNF: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values that a layer has computed; return all keys and values to attend to."""
        ...


class AttentionInputs(NamedTuple):
    """Queries and keys of a layer, from which its attention is computed again."""

    q_BMNF: Tensor
    k_BGNF: Tensor
    lse_BMN: Tensor
    """Log-sum-exp of the scores of each query."""


class TransformerOutput(NamedTuple):
    """Result of a pass: hidden states before the final norm, and attention inputs of watched layers."""

    x_BNH: Tensor
    watched: tuple[AttentionInputs, ...]


class Norm(nn.Module):
    """RMSNorm layer, through `PlainOps.add_norm`, which can also add a residual."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps
        self.ops = PLAIN

    def forward(self, x: Tensor) -> Tensor:
        return self.ops.add_norm(x, None, self.weight, self.eps)[1]


class StackedLinear(nn.Module):
    """Several linear maps of the same input, stacked in one weight matrix."""

    def __init__(self, width: int, rows: Sequence[int], bias: bool = False):
        super().__init__()
        self.rows, self.fused = tuple(rows), True
        self.weight = nn.Parameter(torch.empty(sum(rows), width))
        self.bias = nn.Parameter(torch.empty(sum(rows))) if bias else None

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.fused:
            # One product of all rows. Its kernel may add in another order than products of the parts.
            return F.linear(x, self.weight, self.bias).split(self.rows, -1)
        biases = [None] * len(self.rows) if self.bias is None else self.bias.split(self.rows)
        return tuple(F.linear(x, w, b) for w, b in zip(self.weight.split(self.rows), biases, strict=True))


class Layer(nn.Module):
    """One transformer block, split before and after attention, so that a cache or read-out fits between."""

    def __init__(self, spec: TransformerSpec):
        super().__init__()
        self.head_dim, self.ops = spec.head_dim, PLAIN
        self.attn_norm, self.mlp_norm = Norm(spec.width, spec.eps), Norm(spec.width, spec.eps)
        self.qkv = StackedLinear(spec.width, spec.qkv, bias=spec.qkv_bias)
        self.out = nn.Linear(spec.width, spec.width, bias=False)
        self.gate_up = StackedLinear(spec.width, (spec.mlp, spec.mlp))
        self.down = nn.Linear(spec.mlp, spec.width, bias=False)

    def project(
        self, x_BNH: Tensor, delta_BNH: Tensor | None, rotate: Rotation
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Run the part before attention: return the residual stream, rotated queries and keys, and values, by head."""
        x_BNH, normed_BNH = self.ops.add_norm(x_BNH, delta_BNH, self.attn_norm.weight, self.attn_norm.eps)
        q, k, v = self.qkv(normed_BNH)
        return x_BNH, *self.ops.rotate(q, k, v, rotate, self.head_dim)

    def finish(self, x_BNH: Tensor, mixed_BMNF: Tensor) -> tuple[Tensor, Tensor]:
        """Run the part after attention: return the residual stream, and the MLP's output that is still to be added."""
        delta_BNH = self.out(mixed_BMNF.transpose(1, 2).flatten(2))
        x_BNH, normed_BNH = self.ops.add_norm(x_BNH, delta_BNH, self.mlp_norm.weight, self.mlp_norm.eps)
        gate, up = self.gate_up(normed_BNH)
        return x_BNH, self.down(self.ops.gate(gate, up))


class Transformer(nn.Module):
    """Embedding, layers, norm and head. Callers apply `norm` and `head`, to the rows that they want logits of."""

    def __init__(self, spec: TransformerSpec):
        super().__init__()
        self.spec = spec
        # Given its weights, the embedding draws none. On the meta device that draw would import torch's compiler, which
        # takes longer than all the rest of loading a small model.
        self.embed = nn.Embedding(spec.vocab, spec.width, _weight=torch.empty(spec.vocab, spec.width))
        self.layers = nn.ModuleList(Layer(spec) for _ in range(spec.layers))
        self.norm = Norm(spec.width, spec.eps)
        self.head = nn.Linear(spec.width, spec.vocab, bias=False)

    @classmethod
    def empty(cls, spec: TransformerSpec, device: torch.device | str, dtype: torch.dtype) -> "Transformer":
        """Allocate a network on its device without initialising the weights."""
        with torch.device("meta"):
            model = cls(spec)
        return model.to(dtype).to_empty(device=device)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.head.weight.dtype

    def set_fused(self, fused: bool) -> "Transformer":
        """Choose whether stacked linear maps run as one matrix product or, as published, as one product each."""
        for module in self.modules():
            if isinstance(module, StackedLinear):
                module.fused = fused
        return self

    @property
    def ops(self) -> PlainOps:
        """The operations between matrix products that are in use: plain or fused."""
        return self.norm.ops

    def use_ops(self, ops: PlainOps) -> "Transformer":
        """Use these operations between matrix products; results may differ in the last bits of a norm."""
        for module in self.modules():
            if isinstance(module, Norm | Layer):
                module.ops = ops
        return self

    def forward(
        self,
        tokens_BN: Tensor,
        position_BN: Tensor,
        bias: Tensor | None = None,
        *,
        watch: Sequence[int] = (),
        kv_store: KVStore | None = None,
    ) -> TransformerOutput:
        """Run the layers. `bias` is added to the attention scores, broadcast over (batch, heads, queries, keys)."""
        # A layer hands its last residual on, because the next norm adds it in the same kernel.
        x, delta = self.embed(tokens_BN), None
        rotate = Rotation.of(position_BN, self.spec, x.dtype)
        watched: list[AttentionInputs] = []
        for index, layer in enumerate(self.layers):
            # For the type checker: `nn.ModuleList` forgets what it holds.
            assert isinstance(layer, Layer)
            x, q, k, v = layer.project(x, delta, rotate)
            if kv_store is not None:
                k, v = kv_store.exchange(index, k, v)
            if index in watch:
                mixed, lse_BMN = attend_lse(q, k, v, bias)
                watched.append(AttentionInputs(q, k, lse_BMN))
            else:
                mixed = attend(q, k, v, bias)
            x, delta = layer.finish(x, mixed)
        return TransformerOutput(x if delta is None else x + delta, tuple(watched))


def attend(q_BMNF: Tensor, k_BGNF: Tensor, v_BGNF: Tensor, bias: Tensor | None) -> Tensor:
    """Compute attention; each of the G key heads serves M / G query heads."""
    # Where gradients are wanted, in training, torch chooses the kernel.
    if q_BMNF.is_cuda and not torch.is_grad_enabled():
        # Torch might choose another kernel than the one that gives the log-sum-exp, and reading the attention out
        # would then change the bits of the layer it is read from.
        return attend_lse(q_BMNF, k_BGNF, v_BGNF, bias)[0]
    k_BMNF, v_BMNF = _repeat_heads(k_BGNF, q_BMNF), _repeat_heads(v_BGNF, q_BMNF)
    return F.scaled_dot_product_attention(q_BMNF, k_BMNF, v_BMNF, attn_mask=bias)


def attend_lse(q_BMNF: Tensor, k_BGNF: Tensor, v_BGNF: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute attention, and the log-sum-exp of each query's scores, (B, M, N)."""
    if not q_BMNF.is_cuda:
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        mixed, lse_BMN = kernel(
            q_BMNF, _repeat_heads(k_BGNF, q_BMNF), _repeat_heads(v_BGNF, q_BMNF), 0.0, False, attn_mask=bias
        )
        return mixed, lse_BMN
    # These kernels read a bias of full shape; expanding takes no memory.
    wide = None if bias is None else bias.expand(*q_BMNF.shape[:3], k_BGNF.shape[2])
    if q_BMNF.dtype == torch.float32:
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention
        mixed, lse, *_ = kernel(q_BMNF, _repeat_heads(k_BGNF, q_BMNF), _repeat_heads(v_BGNF, q_BMNF), wide, True)
    else:
        # Three times as fast, but only for half precision. It spreads the key heads itself, with the same bits.
        mixed, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(q_BMNF, k_BGNF, v_BGNF, wide, True)
    return mixed, lse.flatten(2)[..., : q_BMNF.shape[2]]


def _repeat_heads(kv_BGNF: Tensor, q_BMNF: Tensor) -> Tensor:
    """Repeat each key or value head for the query heads that it serves."""
    each = q_BMNF.shape[1] // kv_BGNF.shape[1]
    return kv_BGNF if each == 1 else kv_BGNF.repeat_interleave(each, 1)
