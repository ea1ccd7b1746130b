"""Which code computes the statistics over the vocabulary: the Triton kernels where they can, else the plain pass.

The kernels run on a GPU where Triton is installed. The plain pass is their oracle: tokens are equal, numbers differ by
the order of sums. `UNMASK_STATISTICS=plain` switches the kernels off; `fused` asks for them on any device (on a CPU
that takes Triton's interpreter). The choice has its own file so that a process without a GPU never imports Triton.
"""

import importlib
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from unmask.base.errors import require, warn_once
from unmask.core.vocab_statistics import StatsRequest, VocabStats, vocab_stats

VARIABLE = "UNMASK_STATISTICS"
CHOICES = ("auto", "plain", "fused")

_proven: set[object] = set()
"""Variants of the kernels that have run."""
_broken: dict[object, str] = {}
"""Variants that cannot run here, and why. They are not tried again: a failed compilation takes seconds."""


def fast_vocab_stats(logits_RV: Tensor, request: StatsRequest) -> VocabStats:
    """Compute the statistics of every packed row with the kernels where they can run, else with the plain pass."""
    choice = os.environ.get(VARIABLE, "auto")
    if choice == "plain" or (choice == "auto" and logits_RV.device.type != "cuda"):
        return vocab_stats(logits_RV, request)
    _check_choice(choice)
    kernels = _load_kernels()
    if not len(logits_RV) or not kernels.kernels_support(logits_RV, request) or _triton_missing():
        return vocab_stats(logits_RV, request)
    variant = kernels.KernelVariant.of(logits_RV, request)
    if variant in _broken:
        return vocab_stats(logits_RV, request)
    if variant in _proven:
        return kernels.run_kernels(variant, logits_RV, request)
    # The first run of a variant compiles it: what an old GPU or driver cannot do shows here.
    try:
        stats = kernels.run_kernels(variant, logits_RV, request)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        why = f"the fused kernels cannot run on {variant.device} ({type(error).__name__}: {str(error)[:200]})"
        _broken[variant] = why
        _warn_plain(why)
        return vocab_stats(logits_RV, request)
    _proven.add(variant)
    return stats


@dataclass(frozen=True)
class StatisticsChoice:
    """The path that computes the statistics (`plain` or `fused`) and the reason for it."""

    path: str
    why: str


def choose_statistics(device: torch.device) -> StatisticsChoice:
    """Return which path takes requests without filters on this device. On a GPU one small pass tries the kernels."""
    choice = os.environ.get(VARIABLE, "auto")
    _check_choice(choice)
    if choice == "plain":
        return StatisticsChoice("plain", f"{VARIABLE}=plain")
    if choice == "auto" and device.type != "cuda":
        return StatisticsChoice("plain", f"{device} is not a CUDA device: no kernels there")
    if missing := _triton_missing():
        return StatisticsChoice("plain", missing)
    request, logits_RV = StatsRequest(), torch.zeros(1, 8, device=device)
    fast_vocab_stats(logits_RV, request)
    broken = _broken.get(_load_kernels().KernelVariant.of(logits_RV, request))
    return StatisticsChoice("plain", broken) if broken else StatisticsChoice("fused", "fused kernels run here")


def _check_choice(choice: str) -> None:
    require(choice in CHOICES, VARIABLE, choice, " or ".join(CHOICES), "leave it unset for auto")


@cache
def _load_kernels() -> Any:
    return importlib.import_module("unmask.core.vocab_statistics_triton")


@cache
def _triton_missing() -> str:
    """Return why Triton cannot be loaded, with a warning at the first call; empty where it can."""
    if not (error := _load_kernels().TRITON_ERROR):
        return ""
    _warn_plain(why := f"Triton cannot be loaded ({error})")
    return why


def _warn_plain(why: str) -> None:
    warn_once(f"statistics: the plain path runs, since {why}; same tokens, slower; {VARIABLE}=plain says it is wanted")
