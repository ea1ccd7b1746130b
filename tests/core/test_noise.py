"""Counter-based noise: what a number depends on, what it does not, and that it looks random."""

import hashlib
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from unmask.base.errors import ContractError
from unmask.core import ForbiddenNoise, Noise, State, Trajectory, row_key

KEYS = [11, -7, 2**62, 0]
STEP = torch.tensor([0, 3, 1, 500])
POSITION = torch.arange(9).expand(4, 9)
int64 = st.integers(-(2**63), 2**63 - 1)
counter = st.integers(0, 2**31)


def dense(keys=KEYS, step=STEP, position=POSITION, purpose="token"):
    return Noise.of(keys).uniform(step, position, purpose)


def number(key, step, position, purpose="token"):
    """One number, asked for alone."""
    return float(Noise.of([key]).uniform(torch.tensor([step]), torch.tensor([[position]]), purpose))


def test_golden_numbers():
    """Written down once: another machine, build or refactoring must reproduce recorded runs."""
    got = Noise.of([1, 2]).uniform(torch.tensor([0, 7]), torch.tensor([[0, 1, 2], [0, 1, 511]]), "token")
    assert got.tolist() == [
        [0.32138638146173915, 0.7704047435074791, 0.38783795676725263],
        [0.19683047045634872, 0.9005559903115242, 0.33739370900783017],
    ]
    at = (torch.tensor([4]), torch.tensor([5]), torch.tensor([0]))
    entries = Noise.of([1]).uniform_vocab(*at, 3, "token")
    assert entries.tolist() == [[0.42549052214901517, 0.7174901428154493, 0.7005215378799533]]


def test_golden_keys():
    assert [row_key(0, 0), row_key(0, "a"), row_key(0, b"a"), row_key(3, "a", stream=5)] == [
        4388076287921866625,
        8823640974085475524,
        -6790624178259011232,
        -1657868931367590088,
    ]


def splitmix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def slow_number(key, step, position, purpose):
    """The same hash in Python's unbounded integers."""
    digest = hashlib.blake2b(purpose.encode(), digest_size=8).digest()
    h = key % 2**64
    for part in (step, position, int.from_bytes(digest, "little")):
        h = splitmix(((h ^ part) + 0x9E3779B97F4A7C15) % 2**64)
    return ((h >> 12) + 0.5) / 2**52


@given(key=int64, step=counter, position=counter, purpose=st.sampled_from(["token", "order", "token/3"]))
def test_equals_splitmix_in_plain_python(key, step, position, purpose):
    assert number(key, step, position, purpose) == slow_number(key, step, position, purpose)


@given(st.lists(int64, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_neighbours_and_order_do_not_matter(keys, random):
    step = torch.arange(len(keys)) * 3
    position = POSITION[:1].expand(len(keys), 9)
    whole = dense(keys, step, position)
    order = list(range(len(keys)))
    random.shuffle(order)
    assert torch.equal(dense([keys[i] for i in order], step[order], position), whole[order])
    for row, key in enumerate(keys):
        assert torch.equal(dense([key], step[row : row + 1], position[:1]), whole[row : row + 1])


def test_padding_does_not_matter():
    state = State.from_prompts([[1, 2], [1]], new_tokens=[3, 5], steps=2, mask_id=9)
    short = Trajectory.start(state, Noise.of([5, 6])).uniform("order")
    padded = Trajectory.start(state.pad_to(20), Noise.of([5, 6])).uniform("order")
    assert torch.equal(padded[:, :6], short)
    alone = Trajectory.start(state.select(torch.tensor([1])), Noise.of([6])).uniform("order")
    assert torch.equal(alone, short[1:])


def test_packed_equals_dense():
    wanted = torch.rand(4, 9, generator=torch.Generator().manual_seed(0)) < 0.4
    row, slot = wanted.nonzero(as_tuple=True)
    packed = Noise.of(KEYS).uniform_packed(STEP[row], POSITION[row, slot], row, "token")
    assert len(packed) > 5
    assert torch.equal(packed, dense()[wanted])


@given(seed=st.integers(0, 10**6), prompt=st.one_of(st.text(), st.integers(), st.binary()), stream=counter)
def test_row_keys_fit_and_differ(seed, prompt, stream):
    key = row_key(seed, prompt, stream)
    assert -(2**63) <= key < 2**63
    assert key == row_key(seed, prompt, stream)
    assert key not in (row_key(seed + 1, prompt, stream), row_key(seed, prompt, stream + 1))


@pytest.mark.parametrize("axis", ["position", "step", "key", "vocab"])
def test_uniform_along_every_axis_and_uncorrelated(axis):
    count = 100_000
    many = torch.arange(count)
    zero = torch.zeros(count, dtype=torch.long)
    noise = Noise.of([row_key(0, i) for i in range(count)] if axis == "key" else [row_key(0, 0)])
    if axis == "vocab":
        u = noise.uniform_vocab(zero[:1], zero[:1], zero[:1], count, "token").flatten()
    else:
        step, position, row = ((many if axis == name else zero) for name in ("step", "position", "key"))
        u = noise.uniform_packed(step, position, row, "token")
    assert kstest(u.numpy(), "uniform").pvalue > 1e-3
    for lag in (1, 2, 64):
        correlation = float(torch.corrcoef(torch.stack((u[:-lag], u[lag:])))[0, 1])
        assert abs(correlation) < 4 / math.sqrt(count)
    # The low bits are random too: the fraction of 2^20 u is uniform.
    assert kstest((u * 2**20).frac().numpy(), "uniform").pvalue > 1e-3


def test_purposes_are_uncorrelated():
    position = torch.arange(100_000)[None]
    columns = [Noise.of([3]).uniform(torch.tensor([0]), position, p)[0] for p in ("token", "order", "token/1")]
    correlation = torch.corrcoef(torch.stack(columns)) - torch.eye(3)
    assert correlation.abs().max() < 4 / math.sqrt(100_000)


NO_DRAWS = {
    "uniform": lambda noise, at: noise.uniform(at, at[:, None], "order"),
    "uniform_packed": lambda noise, at: noise.uniform_packed(at, at, at, "order"),
    "uniform_vocab": lambda noise, at: noise.uniform_vocab(at, at, at, 4, "order"),
    "bits": lambda noise, at: noise.bits(at, at, at, "order"),
    "derive": lambda noise, at: noise.derive("order"),
}


@pytest.mark.parametrize("draw", NO_DRAWS)
def test_forbidden_noise_bars_every_draw(draw):
    at = torch.zeros(1, dtype=torch.long)
    NO_DRAWS[draw](Noise.of([1]), at)
    forbidden = ForbiddenNoise(torch.tensor([1, 2])).select(at)
    assert type(forbidden) is ForbiddenNoise
    with pytest.raises(ContractError, match=r"drew random numbers \('order'\) without saying so"):
        NO_DRAWS[draw](forbidden, at)


def test_every_public_way_to_a_number_is_barred():
    """A new method of `Noise` must be added to the cases above."""
    public = {name for name, value in vars(Noise).items() if callable(value) and not name.startswith("_")}
    assert public - {"of"} == set(NO_DRAWS)
