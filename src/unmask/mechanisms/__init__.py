"""The four axis theorems as functions: what each diagnostic is a proxy for."""

from unmask.mechanisms.cardinality import context_balance
from unmask.mechanisms.commitment import flip_radius, revision_value, switching_radius
from unmask.mechanisms.region import cut, robust_value, switching_threshold
from unmask.mechanisms.score import (
    best_mixture,
    closed_form,
    misranking_bound,
    psi,
    robust_margin,
    schur_increment,
)

__all__ = [
    "best_mixture",
    "closed_form",
    "context_balance",
    "cut",
    "flip_radius",
    "misranking_bound",
    "psi",
    "revision_value",
    "robust_margin",
    "robust_value",
    "schur_increment",
    "switching_radius",
    "switching_threshold",
]
