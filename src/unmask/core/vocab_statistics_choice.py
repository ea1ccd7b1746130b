"""Which code computes the statistics over the vocabulary: the Triton kernels where they can, else the plain pass.

The kernels run on a GPU where Triton is installed. The plain pass is their oracle: tokens are equal, numbers differ by
the order of sums. `UNMASK_STATISTICS=plain` switches the kernels off; `fused` asks for them on any device (on a CPU
that takes Triton's interpreter). The choice has its own file so that a process without a GPU never imports Triton.
"""

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.base.errors import require, warn_once
from unmask.core.vocab_statistics import StatsRequest, VocabStats, vocab_stats

VARIABLE = "UNMASK_STATISTICS"

_failures: dict[object, str] = {}
"""Why a variant of the kernels cannot run here, empty for one that has run. A failed one is not tried again, because
its compilation takes seconds."""


@dataclass(frozen=True)
class StatisticsChoice:
    """The path that computes the statistics (`plain` or `fused`) and the reason for it."""

    path: str
    why: str


def choose_statistics(device: torch.device) -> StatisticsChoice:
    """Return which path takes requests without filters on this device. On a GPU one small pass tries the kernels."""
    stats = _try_kernels(torch.zeros(1, 8, device=device), StatsRequest())
    if isinstance(stats, str):
        return StatisticsChoice("plain", stats)
    return StatisticsChoice("fused", "fused kernels run here")


def fast_vocab_stats(logits_RV: Tensor, request: StatsRequest) -> VocabStats:
    """Compute the statistics of every packed row with the kernels where they can run, else with the plain pass."""
    stats = _try_kernels(logits_RV, request)
    return vocab_stats(logits_RV, request) if isinstance(stats, str) else stats


def _try_kernels(logits_RV: Tensor, request: StatsRequest) -> VocabStats | str:
    """Run the kernels, or return why the plain pass takes this request."""
    choice, device = os.environ.get(VARIABLE, "auto"), logits_RV.device
    if choice == "plain":
        return f"{VARIABLE}=plain"
    if choice == "auto" and device.type != "cuda":
        return f"{device} is not a CUDA device: no kernels there"
    require(choice in ("auto", "fused"), VARIABLE, choice, "auto or plain or fused", "leave it unset for auto")
    # Only here: a process without a GPU must not need Triton, which takes long to import and may be broken.
    from unmask.core import vocab_statistics_triton as kernels

    if not len(logits_RV) or not kernels.kernels_support(logits_RV, request):
        return "the kernels do not take this request"
    if kernels.TRITON_ERROR:
        return _warn_plain(f"Triton cannot be loaded ({kernels.TRITON_ERROR})")
    variant = kernels.KernelVariant.of(logits_RV, request)
    if _failures.get(variant):
        return _failures[variant]
    try:
        stats = kernels.run_kernels(variant, logits_RV, request)
    except Exception as error:
        # The first run of a variant compiles it: what an old GPU or driver cannot do shows there. Later errors, and
        # too little memory, are no reason to go on with the plain pass.
        if variant in _failures or isinstance(error, torch.OutOfMemoryError):
            raise
        why = f"the fused kernels cannot run on {device} ({type(error).__name__}: {str(error)[:200]})"
        _failures[variant] = _warn_plain(why)
        return why
    _failures[variant] = ""
    return stats


def _warn_plain(why: str) -> str:
    warn_once(f"statistics: the plain path runs, since {why}; same tokens, slower; {VARIABLE}=plain says it is wanted")
    return why
