"""ReMDM's re-masking rates against the authors' sampler (`tests/golden/remdm.json`) and against numbers by hand."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import paths
from tests.helpers.cases import each_case
from unmask.axes import ReMDM, remasking
from unmask.core import State

GOLDEN = json.loads((paths.GOLDEN / "remdm.json").read_text())


def shared(variant, alpha_t, alpha_s, eta):
    return ReMDM(variant, eta).sigma_per_row(1 - alpha_t, alpha_t, alpha_s)


def number(x):
    return torch.tensor(x, dtype=torch.float64)


def posterior(sampler):
    rows = [row for row in GOLDEN["posterior"] if row["sampler"] == sampler]
    return each_case("row", rows, ids=lambda r: f"t{r['t']}-s{r['s']}-eta{r['eta']}")


def check_row(row, alpha_t, alpha_s, sigma):
    assert sigma.item() == pytest.approx(row["sigma"], abs=1e-11)
    assert sigma.item() == pytest.approx(row["remask"], abs=1e-11)
    reveal = remasking.reveal_probability(alpha_t, alpha_s, sigma)
    assert reveal.item() == pytest.approx(row["reveal"], abs=1e-10)
    assert 1 - reveal.item() == pytest.approx(row["stay_masked"], abs=1e-10)


@posterior("mdlm")
def test_no_revision_is_mdlm(row):
    alpha_t, alpha_s = number(1 - row["t"]), number(1 - row["s"])
    check_row(row, alpha_t, alpha_s, shared("cap", alpha_t, alpha_s, 0.0))
    check_row(row, alpha_t, alpha_s, shared("rescale", alpha_t, alpha_s, 0.0))


@posterior("remdm-cap")
def test_cap_as_the_authors(row):
    alpha_t, alpha_s = number(1 - row["t"]), number(1 - row["s"])
    check_row(row, alpha_t, alpha_s, shared("cap", alpha_t, alpha_s, row["eta"]))


@posterior("remdm-rescale")
def test_rescale_as_the_authors(row):
    alpha_t, alpha_s = number(1 - row["t"]), number(1 - row["s"])
    check_row(row, alpha_t, alpha_s, shared("rescale", alpha_t, alpha_s, row["eta"]))


@posterior("remdm-conf")
def test_conf_as_the_authors(row):
    psi = GOLDEN["inputs"]["psi"]
    revealed_BL = torch.tensor([[p is not None for p in psi]])
    psi_BL = torch.tensor([[float("inf") if p is None else p for p in psi]], dtype=torch.float64)
    alpha_t_B, alpha_s_B = number([1 - row["t"]]), number([1 - row["s"]])
    sigma_BL = ReMDM("conf").sigma_at(alpha_t_B, alpha_t_B, alpha_s_B, psi_BL, revealed_BL)
    assert sigma_BL[revealed_BL].tolist() == pytest.approx(row["remask_revealed"], abs=1e-11)
    assert (sigma_BL[~revealed_BL] == 0).all()
    reveal_BL = remasking.reveal_probability(alpha_t_B[:, None], alpha_s_B[:, None], sigma_BL)
    assert reveal_BL[~revealed_BL].tolist() == pytest.approx(row["reveal_masked"], abs=1e-11)


@posterior("remdm-loop")
def test_loop_as_the_authors(row):
    """Within a phase. A step that crosses an edge keeps, in their code, the alpha line of the phase it began in."""
    phases = row["t_on"], row["t_off"], row["a_on"]
    t, s = number(row["t"]), number(row["s"])
    alpha_t, alpha_s = remasking.loop_alpha(t, *phases), remasking.loop_alpha(s, *phases)
    if row["t"] > row["t_on"] > row["s"]:
        assert "note" in row
        alpha_s = (1 - s) * row["a_on"] / (1 - row["t_on"])
    elif row["t"] > row["t_off"] > row["s"]:
        alpha_s = alpha_t
    check_row(row, alpha_t, alpha_s, ReMDM("loop", row["eta"], *phases).sigma_per_row(t, alpha_t, alpha_s))


def test_loop_by_hand():
    phases = 0.55, 0.05, 0.9
    t = number([1, 0.8, 0.6, 0.55, 0.3, 0.05, 0.025, 0])
    alpha = remasking.loop_alpha(t, *phases)
    assert alpha.tolist() == pytest.approx([0, 0.4, 0.8, 0.9, 0.9, 0.9, 0.95, 1], abs=1e-12)
    sigma = ReMDM("loop").sigma_per_row(t, alpha, alpha)
    assert sigma.tolist() == [0, 0, 0, 0.02, 0.02, 0, 0, 0]
    reveal = remasking.reveal_probability(number(0.9), number(0.9), number(0.02))
    assert reveal.item() == pytest.approx(0.18)
    assert 0.1 * reveal.item() == pytest.approx(0.9 * 0.02), "balanced"


@given(
    alpha=st.tuples(st.floats(0.0, 0.99), st.floats(0.0, 1.0)).map(sorted),
    share=st.floats(0.0, 1.0),
)
def test_marginals_stay_at_alpha_s_for_any_valid_sigma(alpha, share):
    alpha_t, alpha_s = number(alpha[0]), number(alpha[1])
    sigma = share * remasking.sigma_max(alpha_t, alpha_s)
    reveal = remasking.reveal_probability(alpha_t, alpha_s, sigma)
    assert -1e-12 <= reveal.item() <= 1 + 1e-12
    clean = alpha_t * (1 - sigma) + (1 - alpha_t) * reveal
    assert clean.item() == pytest.approx(alpha_s.item(), abs=1e-12)


@given(alpha=st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 1.0)).map(sorted), eta=st.floats(0.0, 1.0))
def test_published_rates_are_valid(alpha, eta):
    alpha_t, alpha_s = number(alpha[0]), number(alpha[1])
    limit = remasking.sigma_max(alpha_t, alpha_s)
    for variant in ("cap", "rescale"):
        assert 0 <= shared(variant, alpha_t, alpha_s, eta) <= limit


def some_state(step=4, horizon=10):
    """Two given tokens, then committed, revisable, revisable and masked; the second row is all masks."""
    start = State.from_prompts([[1, 2], [1, 2]], new_tokens=10, steps=horizon, mask_id=9)
    tokens_BL, committed_BL = start.tokens_BL.clone(), start.committed_BL.clone()
    tokens_BL[0, 2:5] = torch.tensor([3, 4, 5])
    committed_BL[0, 2] = True
    return replace(start, tokens_BL=tokens_BL, committed_BL=committed_BL, step_B=torch.tensor([step, step]))


def psi_of(state):
    """Surer to the right."""
    return torch.where(state.revealed_BL, torch.linspace(0, 0.9, 12, dtype=torch.float64), float("inf"))


@pytest.mark.parametrize("variant", remasking.VARIANTS)
def test_only_revisable_positions_can_be_re_masked(variant):
    state = some_state(step=5)
    operator = ReMDM(variant, eta=0.1)
    sigma_BL = operator.sigma(state, psi_of(state))
    assert (sigma_BL[0, 3:5] > 0).all()
    sigma_BL[0, 3:5] = 0
    assert (sigma_BL == 0).all(), "prompt, committed and masked positions"
    remask_BL = operator.remask(state, psi_of(state), torch.full(state.tokens_BL.shape, 1e-12, dtype=torch.float64))
    assert torch.equal(remask_BL, state.revisable_BL)
    certain_BL = torch.full(state.tokens_BL.shape, 1 - 1e-12, dtype=torch.float64)
    assert not operator.remask(state, psi_of(state), certain_BL).any()


@pytest.mark.parametrize("variant", remasking.VARIANTS)
def test_nothing_is_re_masked_on_the_last_step_or_after(variant):
    for step in (9, 10, 11):
        state = some_state(step)
        assert (ReMDM(variant, eta=0.1, t_off=0.0).sigma(state, psi_of(state)) == 0).all()
    state = some_state(8)
    assert (ReMDM(variant, eta=0.1, t_off=0.0).sigma(state, psi_of(state)) > 0).any()


def test_rates_by_step():
    """alpha_t = step / horizon: 4 of 10, then 5 of 10, so sigma_max = min(1, 0.5 / 0.4) = 1; at 8 it is 0.125."""
    for step, limit in ((4, 1.0), (6, 0.5), (8, 0.125)):
        state = some_state(step)
        psi_BL = psi_of(state)
        revisable = ReMDM("rescale", eta=0.5).sigma(state, psi_BL)[0, 3:5]
        assert revisable.tolist() == pytest.approx([0.5 * limit] * 2)
        assert ReMDM("cap", eta=0.2).sigma(state, psi_BL)[0, 3].item() == pytest.approx(min(0.2, limit))
        conf = ReMDM("conf").sigma(state, psi_BL)[0]
        assert conf.sum().item() == pytest.approx(limit)
        assert conf[3] > conf[4], "the less sure goes first"
        assert ReMDM("conf", eta=0.3).sigma(state, psi_BL)[0].sum().item() == pytest.approx(0.3 * limit)


@pytest.mark.parametrize(("horizon", "first", "last"), [(20, 9, 18), (40, 18, 37), (100, 45, 94), (1000, 450, 949)])
def test_the_edges_of_the_loop_do_not_suffer_from_rounding(horizon, first, last):
    """t = t_on = 0.55 loops, t = t_off = 0.05 does not, whatever 1 - step / horizon rounds to."""
    start = State.from_canvases([[9] * horizon], steps=horizon, mask_id=9)
    start = replace(start, tokens_BL=torch.zeros_like(start.tokens_BL))
    psi_BL = torch.zeros(start.tokens_BL.shape, dtype=torch.float64)

    def loops(step):
        return bool(ReMDM("loop").sigma(replace(start, step_B=torch.tensor([step])), psi_BL).any())

    assert [loops(first - 1), loops(first), loops(last), loops(last + 1)] == [False, True, True, False]


def test_conf_with_nothing_revealed_is_zero_and_not_nan():
    state = some_state()
    sigma_BL = ReMDM("conf").sigma(state, torch.full(state.tokens_BL.shape, float("inf"), dtype=torch.float64))
    assert not sigma_BL.isnan().any()
    assert (sigma_BL[1] == 0).all()
    start = some_state(step=0)
    assert (ReMDM("conf").sigma(start, psi_of(start))[1] == 0).all()


def test_published_settings_are_the_defaults():
    assert [ReMDM(v).effective_eta for v in ("cap", "rescale", "conf", "loop")] == [0.008, 0.015, 1.0, 0.02]
    assert ReMDM("cap", eta=0.0).effective_eta == 0
    loop = ReMDM("loop")
    assert (loop.t_on, loop.t_off, loop.alpha_on) == (0.55, 0.05, 0.9)


@pytest.mark.parametrize(
    "operator",
    [ReMDM("conf"), ReMDM("cap", eta=0.02), ReMDM("rescale", eta=0.02), ReMDM("loop")],
    ids=lambda o: o.variant,
)
def test_expected_re_masks_are_what_sigma_adds_up_to(operator):
    """Along a run on schedule in which all that is revealed stays revisable."""
    positions, steps, total = 24, 12, 0.0
    for step in range(steps):
        shown = positions * step // steps
        state = State.from_prompts([[1]], new_tokens=positions, steps=steps, mask_id=9)
        tokens_BL = state.tokens_BL.clone()
        tokens_BL[:, 1 : 1 + shown] = 2
        committed_BL = torch.zeros_like(state.committed_BL)
        state = replace(state, tokens_BL=tokens_BL, committed_BL=committed_BL, step_B=torch.tensor([step]))
        total += float(operator.sigma(state, torch.rand(tokens_BL.shape)).sum())
    assert total > 0
    assert operator.expected_remasks(positions, steps) == pytest.approx(total, rel=1e-9)
