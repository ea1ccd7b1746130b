"""Which code runs the pass over the vocabulary: the fused kernels where they can, else the plain path.

The kernels (`statistics_kernel`) are used on a GPU where Triton is there. The plain path (`statistics.one_pass`) is
their oracle: tokens are equal, numbers differ by the order of sums. `UNMASK_STATISTICS=plain` switches them off,
`fused` asks for them on any device (on a CPU that takes Triton's interpreter).
"""

import importlib
import os
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from unmask.base.errors import require, warn_once
from unmask.core.statistics import Pass, PassOptions, one_pass

VARIABLE = "UNMASK_STATISTICS"
CHOICES = ("auto", "plain", "fused")

PIECE = 4096
"""Tokens that one program reads; fewer only where the vocabulary is smaller. Part of every row's rounding."""
WARPS = 4
"""Warps of a program that reads a piece. Part of every row's rounding too."""
MOST_K = 16
"""Most probable tokens that the kernels look for; more take the plain path."""
_SUMS, _NUMBERS = 14, 7
"""As many numbers as `statistics_kernel` leaves for a piece and for a row, besides the tokens' own."""
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def statistics(logits_RV: Tensor, request: PassOptions) -> Pass:
    """Statistics of every packed row."""
    choice = os.environ.get(VARIABLE, "auto")
    if choice == "plain" or (choice == "auto" and logits_RV.device.type != "cuda"):
        return one_pass(logits_RV, request)
    require(choice in CHOICES, VARIABLE, choice, " or ".join(CHOICES), "leave it unset for auto")
    if not len(logits_RV) or not fits(logits_RV, request):
        return one_pass(logits_RV, request)
    kernels = _kernels()
    variant = Variant.of(logits_RV, request)
    if isinstance(kernels, str) or variant in _broken:
        return one_pass(logits_RV, request)
    if variant in _proven:
        return run(kernels, variant, logits_RV, request)
    return _first(kernels, variant, logits_RV, request)


@dataclass(frozen=True)
class StatisticsChoice:
    """The path of the pass over the vocabulary and the reason for it."""

    path: str
    why: str


def choose_statistics(device: torch.device) -> StatisticsChoice:
    """Which path takes requests without filters on this device; on a GPU one small pass shows it."""
    choice = os.environ.get(VARIABLE, "auto")
    require(choice in CHOICES, VARIABLE, choice, " or ".join(CHOICES), "leave it unset for auto")
    if choice == "plain":
        return StatisticsChoice("plain", f"{VARIABLE}=plain")
    if choice == "auto" and device.type != "cuda":
        return StatisticsChoice("plain", f"{device} is not a CUDA device: no kernels there")
    kernels, request, logits_RV = _kernels(), PassOptions(), torch.zeros(1, 8, device=device)
    if isinstance(kernels, str):
        return StatisticsChoice("plain", kernels)
    statistics(logits_RV, request)
    lacking = _broken.get(Variant.of(logits_RV, request))
    return StatisticsChoice("plain", lacking) if lacking else StatisticsChoice("fused", "fused kernels run here")


def fits(logits_RV: Tensor, request: PassOptions) -> bool:
    """Whether the kernels can answer.

    Not with filters that act (they need a sorted row), more than `MOST_K` tokens, float64, or noise that is not the
    counter-based one.
    """
    draw, previous = request.draw, request.previous
    tempered = draw.temperature > 0
    old = () if previous is None else (previous.logits_RV,)
    return (
        not (draw.filters and (tempered or request.filtered))
        and not (tempered and draw.uniform_RD is None and draw.bits_RD is None)
        and request.top_k <= MOST_K
        and all(z_RV.dtype in _DTYPES for z_RV in (logits_RV, *old))
    )


@dataclass(frozen=True)
class Variant:
    """What the kernels are compiled for."""

    device: torch.device
    dtype: torch.dtype
    vocab: int
    top_k: int
    edits: int
    untrusted: int
    old: bool
    old_edits: int
    filtered: bool
    draws: int
    """0: the most probable token."""
    gumbel: bool
    asked: bool

    @classmethod
    def of(cls, logits_RV: Tensor, request: PassOptions) -> "Variant":
        draw, previous = request.draw, request.previous
        tempered = draw.temperature > 0
        uniform_RD = draw.bits_RD if draw.uniform_RD is None else draw.uniform_RD
        old = previous is not None and request.previous_R is not None and len(previous.logz_R) > 0
        return cls(
            device=logits_RV.device,
            dtype=logits_RV.dtype,
            vocab=logits_RV.shape[1],
            top_k=min(request.top_k, logits_RV.shape[1]),
            edits=len(request.edit.ids),
            untrusted=len(request.untrusted),
            old=old,
            old_edits=len(previous.edit.ids) if old and previous is not None else 0,
            filtered=request.filtered and tempered,
            draws=uniform_RD.shape[1] if tempered and uniform_RD is not None else 0,
            gumbel=tempered and draw.uniform_RD is None,
            asked=request.given_R is not None,
        )

    @property
    def drawn(self) -> int:
        return max(self.draws, 1)

    @property
    def size(self) -> int:
        """Tokens per piece."""
        return min(PIECE, _power(self.vocab))

    @property
    def pieces(self) -> int:
        return -(-self.vocab // self.size)


def run(kernels: Any, variant: Variant, logits_RV: Tensor, request: PassOptions) -> Pass:
    """The kernels' answers; the variant is of these logits and this request."""
    rows, k = len(logits_RV), variant.top_k
    logits_RV = _aligned(logits_RV)
    settings = _settings(_values(variant, request), variant.device)
    draw, previous = request.draw, request.previous
    noise = draw.bits_RD if variant.gumbel else draw.uniform_RD
    noise = settings if noise is None else noise.contiguous()
    old = (settings, settings, settings)
    if previous is not None and request.previous_R is not None and variant.old:
        old = (_aligned(previous.logits_RV), previous.logz_R.contiguous(), request.previous_R.contiguous())
    new = partial(torch.empty, device=variant.device)
    numbers = new(rows, variant.pieces, _SUMS + 2 * k, dtype=torch.float32)
    places = new(rows, variant.pieces, 2 * k + variant.draws, dtype=torch.int32)
    wide = new(rows, variant.pieces, variant.drawn, dtype=torch.float64)
    tokens = new(2 * k + variant.drawn, rows, dtype=torch.int64)
    answers = new(2 * k + variant.drawn + _NUMBERS, rows, dtype=torch.float32)
    shape = {"V": variant.vocab, "PIECES": variant.pieces, "K": k, "EDITS": variant.edits}
    kind = {
        "UNTRUSTED": variant.untrusted,
        "FILTERED": variant.filtered,
        "DRAWS": variant.draws,
        "GUMBEL": variant.gumbel,
    }
    lanes = {"WIDE": max(2, _power(variant.pieces))}
    with torch.cuda.device_of(logits_RV):
        kernels.read_pieces[(rows * variant.pieces,)](
            *(logits_RV, settings, noise, *old, numbers, places, wide),
            **(
                shape
                | kind
                | {"SIZE": variant.size, "OLD": variant.old, "OLD_EDITS": variant.old_edits, "num_warps": WARPS}
            ),
        )
        kernels.put_together[(rows,)](
            *(logits_RV, settings, noise, numbers, places, wide, tokens, answers, rows),
            **(shape | kind | lanes | {"SIZE": variant.size, "WIDE_K": max(2, _power(k))}),
            num_warps=8 if variant.draws and not variant.gumbel else 1,
        )
        if variant.asked or variant.old:
            given = settings if request.given_R is None else request.given_R.contiguous()
            kernels.compare[(rows,)](
                *(logits_RV, settings, given, *old[1:], numbers, answers[2 * k + variant.drawn :], rows),
                **(shape | lanes | {"ASKED": variant.asked, "OLD": variant.old, "num_warps": 1}),
            )
    return _pass(variant, tokens, answers)


def _pass(variant: Variant, tokens: Tensor, answers: Tensor) -> Pass:
    k, end = variant.top_k, 2 * variant.top_k + variant.drawn
    entropy_R, logz_R, proposed_R, warm_entropy_R, given_R, drift_R, displacement_R = answers[end:].unbind(0)
    top_RK, p_RK = tokens[:k].T, answers[:k].T
    filtered = (tokens[k : 2 * k].T, answers[k : 2 * k].T, warm_entropy_R)
    filtered_top_RK, filtered_p_RK, filtered_entropy_R = filtered if variant.filtered else (top_RK, p_RK, entropy_R)
    return Pass(
        top_RK=top_RK,
        p_RK=p_RK,
        entropy_R=entropy_R,
        logz_R=logz_R,
        token_RD=tokens[2 * k :].T,
        confidence_RD=answers[2 * k : end].T,
        proposed_R=proposed_R,
        filtered_top_RK=filtered_top_RK,
        filtered_p_RK=filtered_p_RK,
        filtered_entropy_R=filtered_entropy_R,
        given_R=given_R,
        drift_R=drift_R,
        displacement_R=displacement_R,
    )


def _values(variant: Variant, request: PassOptions) -> tuple[float, ...]:
    """What the kernels read as numbers, in their order."""
    old = request.previous.edit if request.previous is not None and variant.old else None
    return (
        request.draw.temperature,
        *(*request.edit.ids, *request.edit.deltas),
        *request.untrusted,
        *((*old.ids, *old.deltas) if old is not None else ()),
    )


@cache
def _settings(values: tuple[float, ...], device: torch.device) -> Tensor:
    """On the device once for all: a graph that reads them is replayed long after."""
    return torch.tensor(values, dtype=torch.float64, device=device)


def _aligned(z_RV: Tensor) -> Tensor:
    """Rows behind each other from a round address: how a piece is read, and with it its rounding, follows from that."""
    z_RV = z_RV.contiguous()
    return z_RV if z_RV.data_ptr() % 16 == 0 else z_RV.clone()


def _power(count: int) -> int:
    """The next power of two."""
    return 1 << (count - 1).bit_length()


_proven: set[Variant] = set()
_broken: dict[Variant, str] = {}
"""What the kernels cannot do, and why."""


def _first(kernels: Any, variant: Variant, logits_RV: Tensor, request: PassOptions) -> Pass:
    """The first run of a variant, in which it is compiled: what an old GPU or driver cannot do shows here."""
    try:
        answer = run(kernels, variant, logits_RV, request)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        why = f"the fused kernels cannot run on {variant.device} ({type(error).__name__}: {str(error)[:200]})"
        _broken[variant] = why
        _say(why)
        return one_pass(logits_RV, request)
    _proven.add(variant)
    return answer


@cache
def _kernels() -> ModuleType | str:
    """The kernels, or why there are none: Triton is missing."""
    try:
        return importlib.import_module("unmask.core.statistics_kernel")
    except ImportError as error:
        _say(why := f"Triton cannot be loaded ({error})")
        return why


def _say(why: str) -> None:
    warn_once(f"statistics: the plain path runs, since {why}; same tokens, slower; {VARIABLE}=plain says it is wanted")
