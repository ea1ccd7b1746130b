"""Counts: the one rounding function, published schedules, k_min and thresholds."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.axes import Cardinality, cardinality
from unmask.core import Prediction, State, Statistics

MASK = 9


def state(masks: list[int], steps: list[int], step: list[int] | None = None) -> State:
    start = State.from_prompts([[1]] * len(masks), new_tokens=masks, steps=steps, mask_id=MASK)
    return start if step is None else replace(start, step_B=torch.tensor(step))


def confident(values: list[list[float]]) -> Prediction:
    confidence_BN = torch.tensor(values)
    zero_BNK = confidence_BN.new_zeros(*confidence_BN.shape, 2)
    statistics = Statistics(zero_BNK.long(), zero_BNK, confidence_BN * 0)
    return Prediction(
        wanted_BN=confidence_BN >= 0,
        token_BN=confidence_BN.long(),
        confidence_BN=confidence_BN,
        proposed_BN=confidence_BN,
        clean=statistics,
        filtered=statistics,
        logz_BN=confidence_BN * 0,
        vocab=4,
        token_BND=confidence_BN.long()[..., None],
        confidence_BND=confidence_BN[..., None],
    )


def every_pair():
    n, k = torch.meshgrid(torch.arange(513), torch.arange(513), indexing="ij")
    below = k <= n
    return k[below], n[below]


def test_reveal_count_undoes_fraction_for_every_pair():
    k, n = every_pair()
    assert len(k) == 513 * 514 // 2
    kappa = cardinality.reveal_fraction(k, n)
    assert kappa.dtype == torch.float64
    assert torch.equal(cardinality.reveal_count(kappa, n), k)
    assert torch.equal(cardinality.reveal_count(kappa.float(), n), k)
    # Naive ceil(kappa n) misses some of these: the reason this function exists.
    assert not torch.equal((kappa * n).ceil().long(), k)


def test_reveal_count_of_the_next_float_on_either_side():
    k, n = every_pair()
    kappa = cardinality.reveal_fraction(k, n)
    for toward in (0.0, 1.0):
        beside = torch.nextafter(kappa, torch.tensor(toward, dtype=torch.float64))
        assert torch.equal(cardinality.reveal_count(beside, n), k)


@given(kappa=st.floats(0, 1), n=st.integers(0, 5000))
def test_reveal_count_rounds_up_and_stays_in_range(kappa, n):
    k = int(cardinality.reveal_count(torch.tensor([kappa]).double(), torch.tensor([n])))
    assert 0 <= k <= n
    assert k - 1 <= kappa * n <= k + 1e-6 * n + 1e-9


def test_reveal_set():
    chosen = torch.tensor([[True, False, True], [False, False, False]])
    eligible = torch.tensor([[True, True, True], [False, True, True]])
    region_BL, kappa_B = cardinality.reveal_set(chosen, eligible)
    assert region_BL.tolist() == [[True, False, True], [False, True, True]]
    assert kappa_B.tolist() == [1.0, 0.0]


@given(masks=st.integers(1, 60), data=st.data())
def test_k_min_is_the_smallest_batch_that_finishes(masks, data):
    steps = data.draw(st.integers(1, masks))
    step = data.draw(st.integers(0, steps + 2))
    need = int(cardinality.k_min(state([masks], [steps], [step])))
    left = max(steps - step, 1)
    assert need * left >= masks
    assert (need - 1) * left < masks


def quotas(masks, steps):
    step_B = torch.arange(steps)
    return cardinality.llada_quota(torch.tensor(masks), torch.tensor(steps), step_B).tolist()


@given(masks=st.integers(0, 300), steps=st.integers(1, 300))
def test_llada_quotas_add_up_and_are_even(masks, steps):
    quota = quotas(masks, steps)
    assert sum(quota) == masks
    assert quota == sorted(quota, reverse=True)
    assert max(quota) - min(quota) <= 1


EPS = 1e-3


def test_dream_keeps_are_the_authors_to_the_bit():
    """Every step of every schedule up to 300 steps, and some longer ones."""
    for steps in [*range(1, 301), 512, 768, 1000, 1024]:
        timesteps = torch.linspace(1, EPS, steps + 1)
        got = cardinality.dream_keep_probability(torch.tensor(steps), torch.arange(steps))
        assert torch.equal(got, timesteps[1:] / timesteps[:-1]), steps


def test_dream_counts_for_every_number_of_masks():
    masks = torch.arange(1025)
    for steps in (7, 64, 100, 256):
        timesteps = torch.linspace(1, EPS, steps + 1)
        share = 1 - timesteps[1:] / timesteps[:-1]
        for i in range(steps - 1):
            want = (masks.float() * share[i]).long()
            assert torch.equal(cardinality.dream_count(masks, torch.tensor(steps), torch.tensor(i)), want)


def dream_run(masks, steps):
    counts = []
    for i in range(steps):
        counts.append(int(cardinality.dream_count(torch.tensor(masks), torch.tensor(steps), torch.tensor(i))))
        masks -= counts[-1]
    return counts


@given(masks=st.integers(1, 200), data=st.data())
def test_dream_reveals_everything_in_time(masks, data):
    assert sum(dream_run(masks, data.draw(st.integers(1, 40)))) == masks


def test_named_rules():
    start = state([4, 2], [2, 1])
    region = start.masked_BL
    seen = confident([[0, 0.95, 0.2, 0.9, 0.99], [0, 0.1, 0.2, 0.9, 0.9]])

    def kappa(text):
        return Cardinality.parse(text)(start, seen, region).tolist()

    assert kappa("schedule") == [0.5, 1.0]
    assert kappa("count:1") == [0.25, 0.5]
    assert kappa("count:3") == [0.75, 1.0]
    assert kappa("share:0.3") == kappa(0.3) == [0.3, 0.3]
    assert kappa("above:0.9") == [0.75, 0.5]
    assert kappa(1) == kappa("share:1") == [1.0, 1.0]
    assert kappa(0) == kappa("share:0") == [0.0, 0.0]


def test_counts_follow_the_region_not_the_masks():
    start = state([8], [2])
    region = start.masked_BL & (start.rank_BL < 5)
    seen = confident([[0.0] * 9])
    assert Cardinality.parse("count:2")(start, seen, region).tolist() == [2 / 5]
    assert Cardinality.parse("schedule")(start, seen, region).tolist() == [4 / 5]


@pytest.mark.parametrize("text", ["count:1", "share:0.1", 0.1, "above:1", "factor:0"])
def test_steps_bound_every_rule_unless_it_says_below(text):
    """8 masks in 4 steps and 3 in 1: no fewer than 2 and 3; the bare rule, only at the last step."""
    start = state([8, 3], [4, 1])
    seen = confident([[0.5] * 9] * 2)
    rule = Cardinality.parse(text)
    order_BL = torch.zeros(start.masked_BL.shape)

    def counts(rule):
        kappa_B = rule.within_steps(start, seen, start.masked_BL, order_BL)
        return cardinality.reveal_count(kappa_B, start.masked_BL.sum(-1)).tolist()

    assert counts(rule) == [2, 3]
    bare = Cardinality.parse(cardinality.allow_below_k_min(str(text)))
    assert bare == replace(rule, below=True)
    assert counts(bare) == [1, 3]
