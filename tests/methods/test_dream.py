"""Dream against the authors' loop (`tests/golden/dream.json`) and against numbers computed by hand."""

import json
from math import log

import pytest
import torch

from tests.helpers import paths
from tests.helpers.cases import each_case
from tests.methods.worked import table
from unmask.axes import cardinality
from unmask.base.errors import ConfigError
from unmask.core import Needs, Noise, SamplingParams, State
from unmask.engine import decode
from unmask.methods import Dream

GOLDEN = json.loads((paths.GOLDEN / "dream.json").read_text())
SKIPPED = {"dream-11": "more steps than masks: State refuses that (see the next test)"}
NO_NOISE = Noise.of([0])


def policy(case):
    return Dream(case["alg"], case["alg_temp"] or 0.0, case["eps"])


@each_case("case", [c for c in GOLDEN["cases"] if c["id"] not in SKIPPED], ids=lambda c: c["id"])
def test_same_tokens_as_the_authors(case, replay):
    sampling = SamplingParams(case["temperature"], case["top_p"] or 1.0, case["top_k"] or 0)
    ours = replay(case, policy(case), sampling)
    assert ours.canvases == case["canvases"]
    assert ours.final == case["final"]
    assert ours.forwards == case["forward_calls"]
    assert not ours.unused()
    assert [int(step.revealed_BL.sum()) for step in ours.traj.steps] == case["counts"]


@pytest.mark.parametrize("case", [c for c in GOLDEN["cases"] if c["id"] in SKIPPED], ids=lambda c: c["id"])
def test_more_steps_than_masks_is_refused(case, replay):
    with pytest.raises(ConfigError, match=r"steps of row 0 is 24; allowed: 1 to 16"):
        replay(case, policy(case))


def counts(masks, steps):
    """The counts of a run in which nothing but the schedule reveals."""
    found, left = [], masks
    for step in range(steps):
        found.append(int(cardinality.dream_count(*(torch.tensor([v]) for v in (left, steps, step)))))
        left -= found[-1]
    return found


@pytest.mark.parametrize(
    ("masks", "steps", "expected"),
    [(8, 4, [1, 2, 2, 3]), (16, 4, [3, 4, 4, 5]), (6, 3, [1, 2, 3]), (8, 8, [0, 1, 1, 1, 1, 1, 1, 2])],
)
def test_counts(masks, steps, expected):
    assert counts(masks, steps) == expected


@pytest.mark.parametrize("masks", [8, 24, 32, 128, 256, 512])
def test_as_many_steps_as_masks_wastes_the_first_and_doubles_the_last(masks):
    assert counts(masks, masks) == [0, *[1] * (masks - 2), 2]


def test_two_per_step_starts_one_short_and_ends_one_over():
    assert counts(256, 128) == [1, *[2] * 126, 3]


@pytest.mark.parametrize(("steps", "grid"), [(4, [1, 0.75025, 0.5005, 0.25075, 0.001]), (3, [1, 0.667, 0.334, 0.001])])
def test_time_grid(steps, grid):
    """The grid shows as products of its ratios."""
    keep_B = cardinality.dream_keep(torch.full((steps,), steps), torch.arange(steps))
    assert keep_B.dtype == torch.float32
    assert keep_B.double().cumprod(0).tolist() == pytest.approx(grid[1:], rel=1e-5)


@each_case("steps", [1, 2, 3, 7, 8, 24, 100, 128, 333, 512])
def test_time_grid_is_the_float32_one_bit_for_bit(steps):
    grid = torch.linspace(1, 1e-3, steps + 1)
    keep_B = cardinality.dream_keep(torch.full((steps,), steps), torch.arange(steps))
    assert torch.equal(keep_B, grid[1:] / grid[:-1])


@each_case("steps", [3, 5, 7, 8, 10, 13, 32, 128])
def test_counts_are_computed_in_float32(steps):
    """Every number of masks at every step but the last, against the formula in the authors' number type."""
    grid = torch.linspace(1, 1e-3, steps + 1)
    masks_M = torch.arange(1, 4097)
    for step in range(steps - 1):
        expected_M = (masks_M.float() * (1 - grid[step + 1] / grid[step])).int()
        found_M = cardinality.dream_count(masks_M, torch.full_like(masks_M, steps), torch.full_like(masks_M, step))
        assert torch.equal(found_M, expected_M.long())


(ABC,) = table("dream")
SCORES = {
    "maskgit_plus": [0.55, 0.50, 0.53],
    "topk_margin": [0.11, 0.33, 0.06],
    "entropy": [-0.736093, -1.242252, -0.691346],
}


def logs(probabilities):
    return [log(p) if p else float("-inf") for p in probabilities]


@pytest.mark.parametrize("alg", SCORES)
def test_scores(alg, scripted):
    denoiser = scripted(lambda tokens, slot, call: logs(ABC[slot]), vocab=4)
    # Three masks in two steps: one position goes first.
    state = State.from_canvases([[4] * 3], steps=2, mask_id=4)
    end = decode(denoiser, Dream(alg), state, noise=NO_NOISE)
    seen = end.steps[0].prediction
    scores = {
        "maskgit_plus": seen.proposed_BN,
        "topk_margin": seen.filtered.margin_BN,
        "entropy": -seen.filtered.entropy_BN,
    }
    assert scores[alg][0].tolist() == pytest.approx(SCORES[alg], abs=5e-7)


@pytest.mark.slow
def test_draw_probabilities_of_positions(scripted):
    """alg_temp 0.1 on maskgit_plus scores: 20 000 rows draw their first position."""
    rows = 20_000
    denoiser = scripted(lambda tokens, slot, call: logs(ABC[slot]), vocab=4)
    state = State.from_canvases([[4] * 3] * rows, steps=2, mask_id=4)
    policy = Dream("maskgit_plus", alg_temp=0.1)
    end = decode(denoiser, policy, state, noise=Noise(torch.arange(rows)), sampling=SamplingParams())
    drawn_BL = end.steps[0].revealed_BL
    assert (drawn_BL.sum(-1) == 1).all()
    expected = torch.tensor([0.412327, 0.250089, 0.337585], dtype=torch.float64)
    chi_square = (rows * (drawn_BL.double().mean(0) - expected) ** 2 / expected).sum()
    assert chi_square < 13.8, "two degrees of freedom: one run in a thousand"


def test_draw_is_without_replacement(scripted, constant):
    """Two of three positions by their keys score / alg_temp + Gumbel, each position once."""
    denoiser = scripted(lambda tokens, slot, call: logs(ABC[slot % 3]), vocab=4)
    state = State.from_canvases([[4] * 6], steps=2, mask_id=4)
    uniforms = [0.30, 0.90, 0.20, 0.80, 0.10, 0.70]
    keys = [s / 0.1 - log(-log(u)) for s, u in zip(SCORES["maskgit_plus"] * 2, uniforms, strict=True)]
    best = sorted(range(6), key=lambda i: -keys[i])[:2]
    end = decode(denoiser, Dream("maskgit_plus", alg_temp=0.1), state, noise=constant({"order": uniforms}))
    assert end.steps[0].revealed_BL[0].nonzero().flatten().tolist() == sorted(best)


def test_temperature_then_nucleus(predict, constant):
    needs = Needs(filtered=True, top_k=4)
    noise = constant({"token": [0.5]})
    row = [logs([0.5, 0.3, 0.15, 0.05])]
    tempered = predict(row, SamplingParams(temperature=0.5), needs, noise).filtered
    assert tempered.p_BNK[0, 0].tolist() == pytest.approx([0.684932, 0.246575, 0.061644, 0.006849], abs=5e-7)
    assert tempered.p_BNK[0, 0].cumsum(0).tolist() == pytest.approx([0.684932, 0.931507, 0.993151, 1], abs=1e-6)
    kept = predict(row, SamplingParams(temperature=0.5, top_p=0.95), needs, noise).filtered.p_BNK[0, 0]
    assert (kept > 0).tolist() == [True, True, True, False]
    assert kept[:3].tolist() == pytest.approx([p / 0.993151 for p in (0.684932, 0.246575, 0.061644)], abs=2e-6)


def test_the_token_that_reaches_top_p_exactly_does_not_close_the_nucleus(predict):
    """Only mass above top_p does: two tokens alike, top_p = 1/2, both stay."""
    kept = predict([[0.0, 0.0]], SamplingParams(top_p=0.5), Needs(filtered=True)).filtered.p_BNK[0, 0]
    assert kept.tolist() == pytest.approx([0.5, 0.5])


def test_scores_are_those_of_the_filtered_distribution(scripted):
    """At temperature 0 the token is the same, but top_p moves the score: B keeps two of its four tokens."""
    denoiser = scripted(lambda tokens, slot, call: logs(ABC[slot]), vocab=4)
    state = State.from_canvases([[4] * 3], steps=2, mask_id=4)
    end = decode(denoiser, Dream("maskgit_plus"), state, noise=NO_NOISE, sampling=SamplingParams(top_p=0.6))
    seen = end.steps[0].prediction
    assert seen.proposed_BN[0].tolist() == pytest.approx([0.55 / 0.99, 0.50 / 0.67, 0.53], abs=1e-9)
    assert seen.confidence_BN[0].tolist() == pytest.approx([0.55, 0.50, 0.53], abs=1e-9)
    assert end.steps[0].revealed_BL[0].nonzero().flatten().tolist() == [1]


def test_origin_reveals_by_coin_and_everything_at_the_end(scripted, constant):
    denoiser = scripted(lambda tokens, slot, call: logs(ABC[slot]), vocab=4)
    state = State.from_canvases([[4] * 3], steps=2, mask_id=4)
    noise = constant({"order": [0.4994, 0.4996, 0.999]})
    end = decode(denoiser, Dream("origin"), state, noise=noise)
    # 1 - s/t is 0.4995 at the first of two steps.
    assert [step.revealed_BL[0].nonzero().flatten().tolist() for step in end.steps] == [[0], [1, 2]]


def test_each_row_counts_its_own_masks(scripted):
    """The authors' loop averages over the batch; ours must not."""
    denoiser = scripted(lambda tokens, slot, call: logs(ABC[slot % 3]), vocab=4)
    state = State.from_canvases([[4] * 8, [0, *[4] * 3]], steps=[4, 2], mask_id=4)
    end = decode(denoiser, Dream("entropy"), state, noise=Noise.of([0, 1]))
    revealed = [[int(s.revealed_BL.sum()) for s in end.row(b).steps] for b in (0, 1)]
    assert revealed == [[1, 2, 2, 3], [1, 2]]
