"""The exact denoiser: its logits are the joint's own conditionals, whatever the view and the batch."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.joint_information import Information
from unmask.axes import commitment, score
from unmask.base.errors import DenoiserError
from unmask.core import Action, ModelInput, Needs, Noise, Policy, State
from unmask.engine import decode
from unmask.models import ExactDenoiser, JointDistribution

JOINT = JointDistribution.random(5, 3, dependence=2.0, seed=1)
MASK = 3
ALL = Needs(revealed=True)


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


def brute_force(joint, evidence, i):
    """P(X_i | evidence on the others) by adding up the table's cells."""
    total = np.zeros(joint.vocab)
    for x in np.ndindex(joint.p.shape):
        if all(x[j] == t for j, t in evidence.items() if j != i):
            total[x[i]] += joint.p[x]
    return total / total.sum()


canvases = st.lists(st.integers(0, MASK), min_size=5, max_size=5)


@given(st.lists(canvases, min_size=1, max_size=3))
def test_posteriors_are_the_marginals(rows):
    inputs = view_of(rows)
    p = dense(denoiser()(inputs, ALL), inputs)
    for b, canvas in enumerate(rows):
        np.testing.assert_allclose(p[b], JOINT.marginals(seen_in(canvas)), rtol=1e-12)


def test_masked_and_revealed_positions_by_brute_force():
    """A revealed position is predicted from the others, never from itself."""
    canvas = [0, MASK, 2, MASK, 1]
    inputs = view_of([canvas])
    p = dense(denoiser()(inputs, ALL), inputs)[0]
    for i in range(5):
        np.testing.assert_allclose(p[i], brute_force(JOINT, seen_in(canvas), i), rtol=1e-12)
        if canvas[i] != MASK:
            assert p[i][canvas[i]] < 1


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


def test_shorter_canvases_use_the_marginal():
    canvas = [MASK, 1, MASK]
    inputs = view_of([canvas])
    p = dense(denoiser()(inputs, ALL), inputs)[0]
    np.testing.assert_allclose(p, JOINT.prefix(3).marginals({1: 1}), rtol=1e-12)


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
def test_the_attention_mask_is_honoured(canvas, seed):
    attend = np.random.default_rng(seed).random((5, 5)) < 0.5
    inputs = replace(view_of([canvas]), attend_BNN=torch.from_numpy(attend)[None])
    p = dense(denoiser()(inputs, ALL), inputs)[0]
    for i in range(5):
        readable = {j: t for j, t in seen_in(canvas).items() if attend[i, j]}
        np.testing.assert_allclose(p[i], JOINT.marginals(readable)[i], rtol=1e-12)


def test_an_open_attention_mask_changes_no_bit():
    inputs = view_of([[0, MASK, 2, MASK, 1]])
    everything = replace(inputs, attend_BNN=torch.ones(1, 5, 5, dtype=torch.bool))
    assert torch.equal(denoiser()(inputs, ALL).logits_RV, denoiser()(everything, ALL).logits_RV)


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


def test_positions_say_which_variable_a_slot_is():
    inputs = view_of([[0, MASK]])
    moved = replace(inputs, position_BN=torch.tensor([[4, 2]]))
    p = dense(denoiser()(moved, ALL), moved)[0]
    np.testing.assert_allclose(p[1], JOINT.marginals({4: 0})[2], rtol=1e-12)


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


def test_attention_of_independent_variables_is_uniform():
    independent = ExactDenoiser(JointDistribution.random(4, 3, dependence=0.0, seed=0))
    inputs = view_of([[MASK, 0, MASK, MASK]])
    got = independent(inputs, Needs(attention=True)).attention_BNN[0]
    np.testing.assert_allclose(got, (1 - np.eye(4)) / 3, rtol=1e-12)


def test_attention_of_shadows_sums_to_one():
    inputs = with_shadows([0, MASK, 2, MASK, 1])
    got = denoiser()(inputs, Needs(attention=True)).attention_BNN[0]
    np.testing.assert_allclose(got.sum(-1), 1, rtol=1e-12)
    assert (torch.diagonal(got) == 0).all()


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


def test_a_full_memory_starts_over(monkeypatch):
    monkeypatch.setattr("unmask.models.exact._MEMO_LIMIT", 2)
    small, large = denoiser(), denoiser()
    for first in range(3):
        for second in range(3):
            inputs = view_of([[first, second, MASK, MASK, MASK]])
            assert torch.equal(small(inputs, ALL).logits_RV, large(inputs, ALL).logits_RV)
    assert len(small._memo) <= 2


def test_answers_are_not_aliases_of_the_memory():
    inputs, used = view_of([[0, MASK, 2, MASK, 1]]), denoiser()
    before = used(inputs, ALL).logits_RV.clone()
    used(inputs, ALL).logits_RV.zero_()
    assert torch.equal(used(inputs, ALL).logits_RV, before)


def test_hidden_rows_belong_to_the_wanted_slots():
    inputs = view_of([[0, MASK, 2, MASK, 1]], Needs())
    answer = denoiser()(inputs, Needs(hidden=True))
    assert torch.equal(answer.hidden_RH, answer.logits_RV)


def test_vocabulary():
    exact = ExactDenoiser(JOINT, eos_ids=(2,))
    assert exact.mask_id == exact.vocabulary.mask_id == exact.vocabulary.size == 3
    assert exact.vocabulary.eos_ids == (2,)
    assert ExactDenoiser(JOINT) == ExactDenoiser(JOINT)


@pytest.mark.parametrize("token", [4, 100, -1])
def test_a_token_out_of_range(token):
    with pytest.raises(DenoiserError, match=rf"token {token}; allowed: 0 to 2, or 3 for a mask; encode"):
        denoiser()(view_of([[0, MASK, token]]), ALL)


def test_a_canvas_too_long():
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
        alpha_BJ = score.rows("confidence", state)
        return Action(alpha_BJ, region_BL, kappa_B, commitment.commit_all(state), tokens_BL=tokens_BL)


@pytest.mark.parametrize("given", [{}, {0: 2}, {0: 1, 3: 0}])
@pytest.mark.parametrize("place", [1, 4])
def test_the_mean_drift_is_the_information_that_was_revealed(given, place):
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
