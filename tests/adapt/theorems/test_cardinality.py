"""Theorem `thm:cardinality_regime` on enumerable joints: losses by enumeration, information by entropies."""

import numpy as np
import pytest

from tests.helpers.cases import each_case
from tests.helpers.joint_information import Information
from tests.helpers.theorems.cardinality import context_balance
from unmask.models import JointDistribution

EVIDENCE = ({}, {4: 1}, {0: 2, 3: 0})


def random_schedule(rng, variables):
    order = rng.permutation(variables).tolist()
    cuts = sorted(rng.choice(range(1, len(order)), size=rng.integers(0, len(order)), replace=False).tolist())
    return [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]


def sum_of_total_correlations(model, batches, evidence):
    before, total = [], 0.0
    for batch in batches:
        total += model.total_correlation(batch, given=before, evidence=evidence)
        before += batch
    return total


@each_case("evidence", EVIDENCE)
@each_case("structure", ["dense", "chain", "far"])
@each_case("seed", range(3))
def test_loss_is_the_sum_of_total_correlations(seed, structure, evidence):
    model = Information(JointDistribution.random(5, 3, dependence=1.5, seed=seed, structure=structure))
    rng = np.random.default_rng(seed)
    free = [i for i in range(5) if i not in evidence]
    for batches in [random_schedule(rng, free) for _ in range(5)] + [[free], [[i] for i in free]]:
        loss = model.schedule_loss(batches, evidence)
        assert loss == pytest.approx(sum_of_total_correlations(model, batches, evidence), abs=1e-12)


@each_case("evidence", [{}, {5: 1}])
@each_case("seed", range(6))
def test_moving_a_position_changes_the_loss_by_the_context_balance(seed, evidence):
    model = Information(JointDistribution.random(6, 2, dependence=2.0, seed=seed))
    rng = np.random.default_rng(100 + seed)
    largest = 0.0
    for _ in range(4):
        x, *rest = rng.permutation([i for i in range(6) if i not in evidence]).tolist()
        split = int(rng.integers(0, len(rest)))
        batch, next_batch, later = rest[:split], rest[split:-1], rest[-1:]
        postponed = model.schedule_loss([batch, [*next_batch, x], later], evidence)
        advanced = model.schedule_loss([[*batch, x], next_batch, later], evidence)
        balance = context_balance(model, x, batch, next_batch, evidence)
        assert postponed - advanced == pytest.approx(balance, abs=1e-12)
        largest = max(largest, abs(balance))
    assert largest > 1e-4


def test_balance_is_positive_for_a_provider_and_negative_for_a_receiver():
    """The middle of a chain informs both ends: it should go early, and must not go together with an end."""
    model = Information(JointDistribution.random(3, 3, dependence=2.0, seed=1, structure="chain"))
    assert context_balance(model, 1, [], [0, 2], {}) > 0.01
    assert context_balance(model, 1, [0], [], {}) < -0.01
