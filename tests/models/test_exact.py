"""The exact denoiser and its joint distribution, against sums written out over all sequences."""

import itertools
from dataclasses import dataclass, replace
from math import log
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.joint_information import Information
from unmask.axes import score
from unmask.base.errors import ConfigError, DenoiserError
from unmask.core import Action, ModelInput, Needs, Noise, Policy, State
from unmask.engine import decode
from unmask.models import ExactDenoiser, JointDistribution
from unmask.models.exact import MAX_ENTRIES

JOINT = JointDistribution.random(5, 3, dependence=2.0, seed=1)
MASK = 3
ALL = Needs(revealed=True)
STRUCTURES = ("dense", "chain", "pairs", "far")
EVIDENCE = ({}, {0: 1}, {3: 2, 1: 0}, {0: 2, 1: 2, 2: 2, 3: 2})


def joint(seed=0, n=4, vocab=3, dependence=1.5, structure="dense"):
    return JointDistribution.random(n, vocab, dependence=dependence, seed=seed, structure=structure)


def slow_distribution(model, variables, evidence):
    """P(X_variables | evidence) as a dict, by walking over every sequence."""
    mass = {}
    for x in itertools.product(range(model.vocab), repeat=model.n):
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
def test_random_table_is_a_function_of_its_seed(structure):
    one, two = joint(seed=7, structure=structure), joint(seed=7, structure=structure)
    assert one.p.tobytes() == two.p.tobytes()
    assert one.p.shape == (3, 3, 3, 3)
    assert one.p.dtype == np.float64
    assert (one.p > 0).all()
    assert one.p.sum() == pytest.approx(1, abs=1e-12)
    assert joint(seed=8, structure=structure).p.tobytes() != one.p.tobytes()


@pytest.mark.parametrize("structure", STRUCTURES)
def test_zero_dependence_gives_independent_positions(structure):
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
def test_structure_couples_its_edges_and_no_others(structure, n, edges):
    model = joint(n=n, structure=structure, seed=3)
    info = Information(model)
    for i, j in itertools.combinations(range(n), 2):
        others = {k: 0 for k in range(n) if k not in (i, j)}
        direct = info.mutual_information((i,), (j,), evidence=others)
        assert (direct > 1e-6) == ((i, j) in edges), (i, j, direct)


@pytest.mark.parametrize("evidence", EVIDENCE)
def test_marginals_leave_a_variables_own_evidence_out(evidence):
    model = joint()
    rows = model.marginals(evidence)
    assert rows.shape == (4, 3)
    for i in range(4):
        rest = {k: token for k, token in evidence.items() if k != i}
        slow = slow_distribution(model, (i,), rest)
        np.testing.assert_allclose(rows[i], [slow[(v,)] for v in range(3)], rtol=1e-12)


@pytest.mark.parametrize(("given", "evidence"), [((), {}), ((2,), {}), ((), {2: 1}), ((2,), {1: 2})])
def test_mutual_information_by_definition(given, evidence):
    model = joint()
    info = Information(model)
    left, right = (0,), (3,) if 1 in evidence else (1, 3)
    slow = slow_information(model, left, right, given, evidence)
    assert info.mutual_information(left, right, given, evidence) == pytest.approx(slow, abs=1e-12)
    assert info.mutual_information(right, left, given, evidence) == pytest.approx(slow, abs=1e-12)
    assert slow > 1e-4


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


@pytest.mark.parametrize(("given", "evidence"), [((), {}), ((3,), {}), ((), {3: 1})])
def test_total_correlation_is_a_chain_of_mutual_information(given, evidence):
    model = joint()
    info = Information(model)
    chain = info.mutual_information((0,), (1,), given, evidence)
    chain += info.mutual_information((0, 1), (2,), given, evidence)
    assert info.total_correlation((0, 1, 2), given, evidence) == pytest.approx(chain, abs=1e-12)


def test_factorised_is_a_product_of_conditionals():
    model = joint()
    info = Information(model)
    q = info.factorised([(3, 0), (2,)], {1: 1})
    for a, b, c in itertools.product(range(3), repeat=3):
        first = slow_distribution(model, (0,), {1: 1})[(a,)] * slow_distribution(model, (3,), {1: 1})[(c,)]
        second = slow_distribution(model, (2,), {1: 1, 0: a, 3: c})[(b,)]
        assert q[a, b, c] == pytest.approx(first * second, rel=1e-12)
    assert q.sum() == pytest.approx(1)


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


# The denoiser.


def denoiser() -> ExactDenoiser:
    return ExactDenoiser(JOINT)


def view_of(canvases, needs=ALL) -> ModelInput:
    """Every position is part of the answer, so that revealed ones are predicted too."""
    blank = State.from_canvases(
        [[MASK] * len(c) for c in canvases], steps=1, mask_id=MASK, given=[[False] * len(c) for c in canvases]
    )
    width = blank.tokens_BL.shape[1]
    tokens_BL = torch.tensor([[*c, *[0] * (width - len(c))] for c in canvases])
    return ModelInput.of(replace(blank, tokens_BL=tokens_BL), needs)


def dense(answer, view):
    out = torch.full((*view.tokens_BN.shape, JOINT.vocab), float("nan"), dtype=torch.float64)
    out[view.wanted_BN] = answer.logits_RV.exp()
    return out.numpy()


def seen_in(canvas):
    return {i: t for i, t in enumerate(canvas) if t != MASK}


canvases = st.lists(st.integers(0, MASK), min_size=5, max_size=5)


@given(st.lists(canvases, min_size=1, max_size=3))
def test_posteriors_are_the_true_conditionals(rows):
    inputs = view_of(rows)
    p = dense(denoiser()(inputs, ALL), inputs)
    for b, canvas in enumerate(rows):
        np.testing.assert_allclose(p[b], JOINT.marginals(seen_in(canvas)), rtol=1e-12)


def test_only_wanted_positions_are_answered():
    inputs = view_of([[0, MASK, 2, MASK, 1]], Needs())
    assert inputs.wanted_BN.tolist() == [[False, True, False, True, False]]
    answer = denoiser()(inputs, Needs())
    assert answer.logits_RV.shape == (2, 3)
    assert answer.forwards == 1
    assert answer.attention_BNN is None
    assert answer.hidden_RH is None
    nothing = denoiser()(replace(inputs, wanted_BN=torch.zeros_like(inputs.wanted_BN)), Needs())
    assert nothing.logits_RV.shape == (0, 3)


def test_padding_is_not_read():
    rows = [[MASK, 1, MASK], [0, 1, 2, MASK, 0]]
    inputs = view_of(rows)
    padded = dense(denoiser()(inputs, ALL), inputs)
    alone = view_of(rows[:1])
    np.testing.assert_array_equal(padded[0, :3], dense(denoiser()(alone, ALL), alone)[0])
    # Not even nonsense in it.
    spoilt = inputs.tokens_BN.clone()
    spoilt[0, 3:] = 77
    np.testing.assert_array_equal(dense(denoiser()(replace(inputs, tokens_BN=spoilt), ALL), inputs), padded)


@given(canvas=canvases, seed=st.integers(0, 10**6))
def test_attention_mask_limits_the_evidence(canvas, seed):
    attend = np.random.default_rng(seed).random((5, 5)) < 0.5
    inputs = replace(view_of([canvas]), attend_BNN=torch.from_numpy(attend)[None])
    p = dense(denoiser()(inputs, ALL), inputs)[0]
    for i in range(5):
        readable = {j: t for j, t in seen_in(canvas).items() if attend[i, j]}
        np.testing.assert_allclose(p[i], JOINT.marginals(readable)[i], rtol=1e-12)


def with_shadows(canvas) -> ModelInput:
    """Masked copies of the whole canvas after it: a shadow may not read its original, nor be read."""
    inputs, n = view_of([canvas]), len(canvas)
    attend = torch.zeros(2 * n, 2 * n, dtype=torch.bool)
    attend[:, :n] = True
    attend[torch.arange(n, 2 * n), torch.arange(n)] = False
    return ModelInput(
        tokens_BN=torch.tensor([[*canvas, *[MASK] * n]]),
        position_BN=torch.cat((inputs.position_BN, inputs.position_BN), -1),
        valid_BN=torch.ones(1, 2 * n, dtype=torch.bool),
        fixed_BN=torch.zeros(1, 2 * n, dtype=torch.bool),
        wanted_BN=torch.ones(1, 2 * n, dtype=torch.bool),
        attend_BNN=attend[None],
    )


def test_shadows_predict_their_original_from_the_rest():
    canvas = [0, MASK, 2, MASK, 1]
    inputs = with_shadows(canvas)
    p = dense(denoiser()(inputs, ALL), inputs)[0]
    np.testing.assert_allclose(p[5:], JOINT.marginals(seen_in(canvas)), rtol=1e-12)


def test_attention_is_the_joints_coupling():
    rows = [[0, MASK, 2, MASK, 1], [MASK] * 5, [0, 1, MASK]]
    inputs = view_of(rows)
    got = denoiser()(inputs, Needs(attention=True)).attention_BNN
    for b, canvas in enumerate(rows):
        n = len(canvas)
        np.testing.assert_allclose(got[b, :n, :n], JOINT.prefix(n).coupling(seen_in(canvas)), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(got[b, :n].sum(-1), 1, rtol=1e-12)
        assert (got[b, n:] == 0).all()
        assert (got[b, :, n:] == 0).all()


def test_bitwise_independent_of_batch_order_and_history():
    rows = [[0, MASK, 2, MASK, 1], [MASK] * 5, [1, 1, MASK, 0], [0, MASK, 2, MASK, 1]]
    needs = Needs(revealed=True, attention=True)
    used = denoiser()
    inputs = view_of(rows)
    whole = dense(used(inputs, needs), inputs)
    attention = used(inputs, needs).attention_BNN
    for b, canvas in enumerate(rows):
        alone, n = view_of([canvas]), len(canvas)
        for who in (used, denoiser()):
            answer = who(alone, needs)
            np.testing.assert_array_equal(dense(answer, alone)[0], whole[b, :n])
            assert torch.equal(answer.attention_BNN[0], attention[b, :n, :n])
    order = [2, 0, 3, 1]
    shuffled = view_of([rows[b] for b in order])
    np.testing.assert_array_equal(dense(used(shuffled, needs), shuffled), whole[order])


@pytest.mark.parametrize("token", [4, 100, -1])
def test_inputs_outside_the_joint_are_refused(token):
    with pytest.raises(DenoiserError, match=rf"token {token}; allowed: 0 to 2, or 3 for a mask; encode"):
        denoiser()(view_of([[0, MASK, token]]), ALL)
    with pytest.raises(DenoiserError, match=r"position 5; allowed: 0 to 4.*shorten"):
        denoiser()(view_of([[MASK] * 6]), ALL)


@dataclass(frozen=True)
class Tell(Policy):
    """Reveals one position, row b as token b, and keeps what the model says before and after."""

    name: ClassVar[str] = "tell"
    needs = Needs(divergence=True)
    past_steps = 1
    place: int
    said: list

    def act(self, traj, look_ahead):
        state = traj.state
        self.said.append(traj.current_prediction)
        only_BL = torch.zeros_like(state.masked_BL)
        only_BL[:, self.place] = True
        region_BL = only_BL & state.masked_BL if len(self.said) == 1 else state.masked_BL
        tokens_BL = torch.arange(len(state.tokens_BL))[:, None].expand_as(state.tokens_BL)
        kappa_B = torch.ones(len(state.tokens_BL), dtype=torch.float64)
        alpha_BJ = score.alpha_rows("confidence", state)
        return Action(alpha_BJ, region_BL, kappa_B, torch.ones_like(state.fixed_BL), tokens_BL=tokens_BL)


@pytest.mark.parametrize("given", [{}, {0: 2}, {0: 1, 3: 0}])
@pytest.mark.parametrize("place", [1, 4])
def test_mean_drift_is_the_mutual_information(given, place):
    """E[KL(p(x | y, z) || p(x | z))] = I(X; Y | Z), y drawn from p(y | z): new posterior first. The other direction has
    another mean, so a diagnostic that took it would not measure information."""
    canvas, said = [given.get(i, MASK) for i in range(JOINT.n)], []
    start = State.from_canvases([canvas] * JOINT.vocab, steps=2, mask_id=MASK)
    decode(denoiser(), Tell(place, said), start, noise=Noise.of(range(JOINT.vocab)))
    weights_V = JOINT.marginals(given)[place]
    others = [i for i in range(JOINT.n) if i not in (*given, place)]
    for i in others:
        mean = float((weights_V * said[1].drift_BN[:, i].double().numpy()).sum())
        information = Information(JOINT).mutual_information([i], [place], evidence=given)
        assert mean == pytest.approx(information, rel=1e-4, abs=1e-7)
        reverse = float((weights_V * said[1].displacement_BN[:, i].double().numpy()).sum())
        assert abs(reverse - information) > 1e-3 * information
