"""The enumerable joint against sums written out over all sequences."""

import itertools
from math import log

import numpy as np
import pytest

from tests.helpers.cases import each_case
from tests.helpers.joint_information import Information
from unmask.base.errors import ConfigError, UnknownName
from unmask.models import JointDistribution
from unmask.models.exact import MAX_ENTRIES

STRUCTURES = ("dense", "chain", "pairs", "far")
EVIDENCE = ({}, {0: 1}, {3: 2, 1: 0}, {0: 2, 1: 2, 2: 2, 3: 2})


def joint(seed=0, n=4, vocab=3, dependence=1.5, structure="dense"):
    return JointDistribution.random(n, vocab, dependence=dependence, seed=seed, structure=structure)


def sequences(model):
    return itertools.product(range(model.vocab), repeat=model.n)


def slow_distribution(model, variables, evidence):
    """P(X_variables | evidence) as a dict, by walking over every sequence."""
    mass = {}
    for x in sequences(model):
        if all(x[i] == token for i, token in evidence.items()):
            key = tuple(x[i] for i in variables)
            mass[key] = mass.get(key, 0.0) + model.prob(x)
    total = sum(mass.values())
    return {key: value / total for key, value in mass.items()}


def slow_information(model, left, right, given, evidence):
    """E log P(a, b | g) / (P(a | g) P(b | g)), straight from the definition."""
    total = 0.0
    for key, p in slow_distribution(model, (*left, *right, *given), evidence).items():
        a, b, g = key[: len(left)], key[len(left) : len(left) + len(right)], key[len(left) + len(right) :]
        p_ag = slow_distribution(model, (*left, *given), evidence)[a + g]
        p_bg = slow_distribution(model, (*right, *given), evidence)[b + g]
        p_g = slow_distribution(model, given, evidence)[g]
        total += p * log(p * p_g / (p_ag * p_bg))
    return total


@pytest.mark.parametrize("structure", STRUCTURES)
def test_random_is_a_positive_table_and_repeats_byte_for_byte(structure):
    one, two = joint(seed=7, structure=structure), joint(seed=7, structure=structure)
    assert one.p.tobytes() == two.p.tobytes()
    assert one.p.shape == (3, 3, 3, 3)
    assert one.p.dtype == np.float64
    assert (one.p > 0).all()
    assert one.p.sum() == pytest.approx(1, abs=1e-12)
    assert joint(seed=8, structure=structure).p.tobytes() != one.p.tobytes()


def test_the_table_cannot_be_changed_through_the_joint_or_its_source():
    source = np.full((2, 2), 0.25)
    model = JointDistribution(source)
    source[0, 0] = 9
    assert model.prob((0, 0)) == 0.25
    with pytest.raises(ValueError, match="read-only"):
        model.p[0, 0] = 9


@pytest.mark.parametrize("structure", STRUCTURES)
def test_zero_dependence_means_independent_positions(structure):
    model = joint(dependence=0.0, structure=structure)
    product = np.ones(())
    for row in model.marginals({}):
        product = np.multiply.outer(product, row)
    np.testing.assert_allclose(model.p, product, rtol=1e-12)
    np.testing.assert_array_equal(model.coupling({}), (1 - np.eye(4)) / 3)


@pytest.mark.parametrize(
    ("structure", "n", "edges"),
    [
        ("dense", 4, {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}),
        ("chain", 4, {(0, 1), (1, 2), (2, 3)}),
        ("pairs", 5, {(0, 1), (2, 3)}),
        ("far", 4, {(0, 2), (1, 3)}),
        ("far", 5, {(0, 2), (1, 3), (2, 4)}),
    ],
)
def test_structure_couples_exactly_its_edges(structure, n, edges):
    model = joint(n=n, structure=structure, seed=3)
    info = Information(model)
    for i, j in itertools.combinations(range(n), 2):
        others = {k: 0 for k in range(n) if k not in (i, j)}
        direct = info.mutual_information((i,), (j,), evidence=others)
        assert (direct > 1e-6) == ((i, j) in edges), (i, j, direct)


def test_more_dependence_means_more_total_correlation():
    totals = [Information(joint(dependence=d)).total_correlation(range(4)) for d in (0.0, 0.3, 1.0, 2.0)]
    assert totals[0] == pytest.approx(0, abs=1e-12)
    assert totals == sorted(totals)
    assert totals[-1] > 0.1


def test_dense_couplings_shrink_with_the_number_of_variables():
    """log p has variance 1 per unary term and dependence^2 / (n - 1) per pair, up to the shared constant."""
    n, vocab, dependence = 5, 4, 3.0
    pair_variance = []
    for seed in range(20):
        logp = np.log(joint(seed=seed, n=n, vocab=vocab, dependence=dependence).p)
        corner = logp[:, :, 0, 0, 0]
        twice_centred = corner - corner.mean(0) - corner.mean(1, keepdims=True) + corner.mean()
        pair_variance.append((twice_centred**2).sum() / (vocab - 1) ** 2)
    assert np.mean(pair_variance) == pytest.approx(dependence**2 / (n - 1), rel=0.25)


@pytest.mark.parametrize("evidence", EVIDENCE)
def test_marginals_leave_a_variables_own_evidence_out(evidence):
    model = joint()
    rows = model.marginals(evidence)
    assert rows.shape == (4, 3)
    for i in range(4):
        rest = {k: token for k, token in evidence.items() if k != i}
        slow = slow_distribution(model, (i,), rest)
        np.testing.assert_allclose(rows[i], [slow[(v,)] for v in range(3)], rtol=1e-12)


def test_marginals_repeat_byte_for_byte_whatever_the_order_of_evidence():
    model = joint()
    one, two = model.marginals({3: 2, 1: 0}), model.marginals({1: 0, 3: 2})
    assert one.tobytes() == two.tobytes()


def test_prefix_is_the_marginal_of_the_first_variables():
    model = joint()
    head = model.prefix(2)
    slow = slow_distribution(model, (0, 1), {})
    for x in itertools.product(range(3), repeat=2):
        assert head.prob(x) == pytest.approx(slow[x], rel=1e-12)
    assert model.prefix(4).p.tobytes() == model.p.tobytes()


def test_probabilities_of_sequences():
    model = joint()
    assert sum(model.prob(x) for x in sequences(model)) == pytest.approx(1)
    assert model.log_prob((0, 1, 2, 0)) == pytest.approx(log(model.p[0, 1, 2, 0]))


@pytest.mark.parametrize("evidence", [{}, {2: 1}])
def test_entropy_by_definition(evidence):
    model = joint()
    info = Information(model)
    slow = -sum(p * log(p) for p in slow_distribution(model, (0, 3), evidence).values())
    assert info.entropy((0, 3), evidence=evidence) == pytest.approx(slow, abs=1e-12)
    chained = info.entropy((0,), evidence=evidence) + info.entropy((3,), given=(0,), evidence=evidence)
    assert chained == pytest.approx(slow, abs=1e-12)


def test_entropy_of_a_known_table():
    model = JointDistribution(np.array([[0.4, 0.1], [0.1, 0.4]]))
    info = Information(model)
    assert info.entropy((0,)) == pytest.approx(log(2))
    h2 = -(0.8 * log(0.8) + 0.2 * log(0.2))
    assert info.entropy((1,), given=(0,)) == pytest.approx(h2)
    assert info.mutual_information((0,), (1,)) == pytest.approx(log(2) - h2)
    assert info.total_correlation((0, 1)) == pytest.approx(log(2) - h2)


@pytest.mark.parametrize(("given", "evidence"), [((), {}), ((2,), {}), ((), {2: 1}), ((2,), {1: 2})])
def test_mutual_information_by_definition(given, evidence):
    model = joint()
    info = Information(model)
    left, right = (0,), (3,) if 1 in evidence else (1, 3)
    slow = slow_information(model, left, right, given, evidence)
    assert info.mutual_information(left, right, given, evidence) == pytest.approx(slow, abs=1e-12)
    assert info.mutual_information(right, left, given, evidence) == pytest.approx(slow, abs=1e-12)
    assert slow > 1e-4


@pytest.mark.parametrize(("given", "evidence"), [((), {}), ((3,), {}), ((), {3: 1})])
def test_total_correlation_is_a_chain_of_mutual_information(given, evidence):
    model = joint()
    info = Information(model)
    chain = info.mutual_information((0,), (1,), given, evidence)
    chain += info.mutual_information((0, 1), (2,), given, evidence)
    assert info.total_correlation((0, 1, 2), given, evidence) == pytest.approx(chain, abs=1e-12)


def test_observed_variables_carry_no_information():
    model = joint()
    info = Information(model)
    assert info.entropy((0, 1), evidence={1: 2}) == pytest.approx(info.entropy((0,), evidence={1: 2}))
    assert info.mutual_information((0,), (1,), evidence={1: 2}) == pytest.approx(0, abs=1e-12)
    assert info.entropy(range(4), evidence={0: 0, 1: 0, 2: 0, 3: 0}) == 0


@pytest.mark.parametrize("evidence", EVIDENCE)
def test_coupling_rows_are_information_shares(evidence):
    model = joint()
    weight = model.coupling(evidence)
    for j in range(4):
        information = np.zeros(4)
        for i in set(range(4)) - {j}:
            rest = {k: token for k, token in evidence.items() if k not in (i, j)}
            information[i] = slow_information(model, (j,), (i,), (), rest)
        np.testing.assert_allclose(weight[j], information / information.sum(), rtol=1e-9)
    np.testing.assert_array_equal(np.diag(weight), 0)
    assert not np.allclose(weight, weight.T)


def test_coupling_of_a_lone_pair_points_at_its_partner():
    weight = joint(n=5, structure="pairs").coupling({})
    assert weight[0, 1] == weight[1, 0] == weight[2, 3] == weight[3, 2] == 1
    np.testing.assert_array_equal(weight[4], [0.25, 0.25, 0.25, 0.25, 0])
    np.testing.assert_array_equal(JointDistribution.random(1, 3, dependence=1.0, seed=0).coupling({}), [[0]])


def test_factorised_is_a_product_of_conditionals():
    model = joint()
    info = Information(model)
    q = info.factorised([(3, 0), (2,)], {1: 1})
    for a, b, c in itertools.product(range(3), repeat=3):
        first = slow_distribution(model, (0,), {1: 1})[(a,)] * slow_distribution(model, (3,), {1: 1})[(c,)]
        second = slow_distribution(model, (2,), {1: 1, 0: a, 3: c})[(b,)]
        assert q[a, b, c] == pytest.approx(first * second, rel=1e-12)
    assert q.sum() == pytest.approx(1)


def test_one_at_a_time_loses_nothing():
    model = joint()
    info = Information(model)
    np.testing.assert_allclose(info.factorised([(2,), (0,), (3,), (1,)]), model.p, rtol=1e-11)
    assert info.schedule_loss([(2,), (0,), (3,), (1,)]) == pytest.approx(0, abs=1e-12)


def test_schedule_loss_puts_the_truth_first():
    model = JointDistribution(np.array([[0.7, 0.1], [0.1, 0.1]]))
    info = Information(model)
    q = np.outer([0.8, 0.2], [0.8, 0.2])
    forward = float((model.p * np.log(model.p / q)).sum())
    backward = float((q * np.log(q / model.p)).sum())
    assert info.schedule_loss([(0, 1)]) == pytest.approx(forward)
    assert abs(forward - backward) > 1e-3


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"n": 0}, "n is 0"),
        ({"vocab": 1}, "vocab is 1"),
        ({"dependence": -0.1}, "dependence is -0.1"),
        ({"dependence": float("nan")}, "dependence is nan"),
        ({"n": 23, "vocab": 2}, "2\\*\\*23"),
        ({"n": 10**9, "vocab": 10**9}, str(MAX_ENTRIES)),
        ({"dependence": 1e5}, "lower the dependence"),
    ],
)
def test_bad_settings_are_named(settings, named):
    with pytest.raises(ConfigError, match=named):
        joint(**settings)


def test_an_unknown_structure_is_answered_with_the_known_ones():
    with pytest.raises(UnknownName, match="chain"):
        joint(structure="chian")


def test_the_largest_table_is_allowed():
    assert joint(n=22, vocab=2, structure="chain").p.size == MAX_ENTRIES


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (np.full((2, 3), 1 / 6), "shape"),
        (np.array([0.5, 0.5, 0.0]), "smallest entry"),
        (np.array([0.5, 0.6]), "sum"),
    ],
)
def test_bad_tables_are_refused(table, named):
    with pytest.raises(ConfigError, match=named):
        JointDistribution(table)


@each_case(
    "call",
    [
        lambda m: m.marginals({4: 0}),
        lambda m: m.marginals({0: 3}),
        lambda m: m.marginals({0: -1}),
        lambda m: m.prob((0, 0)),
        lambda m: m.prefix(0),
        lambda m: m.prefix(5),
    ],
)
def test_bad_questions_are_refused(call):
    with pytest.raises(ConfigError):
        call(joint())
