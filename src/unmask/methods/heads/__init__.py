"""Learned parts beside a denoiser: small networks on its hidden rows, stored with a hash and a card."""

from unmask.methods.heads.modules import HEADS, DependenceHead, PlannerHead
from unmask.methods.heads.store import AUTO, Head, HeadCard, LearnedPolicy, fitted, load_head, save_head, shipped

__all__ = [
    "AUTO",
    "HEADS",
    "DependenceHead",
    "Head",
    "HeadCard",
    "LearnedPolicy",
    "PlannerHead",
    "fitted",
    "load_head",
    "save_head",
    "shipped",
]
