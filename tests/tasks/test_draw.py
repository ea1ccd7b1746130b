"""Choices are functions of the key alone, fair, and the same on every machine."""

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError
from unmask.tasks.draw import Draw

KEYS = st.binary(max_size=100)

GOLDEN_WORDS = [2785575598020379534, 15034362722304468301, 15188520678218696593]
GOLDEN_BELOW = [253, 421, 246, 227, 518, 97, 19, 25, 98, 586]
GOLDEN_SHUFFLED = ["f", "g", "h", "b", "c", "d", "a", "e"]
GOLDEN_SAMPLE = [654673, 765222, 921620]
GOLDEN_CHANCES = [True, True, False, False, False, False, False, False, True, True, False, False]


def test_the_stream_of_a_known_key_never_changes() -> None:
    draw = Draw(b"a published key")
    assert [draw.bits(64) for _ in range(3)] == GOLDEN_WORDS
    assert [draw.index(1000) for _ in range(10)] == GOLDEN_BELOW
    assert draw.permute("abcdefgh") == GOLDEN_SHUFFLED
    assert draw.sample(range(10**6), 3) == GOLDEN_SAMPLE
    assert [draw.chance(0.3) for _ in range(12)] == GOLDEN_CHANCES


@given(KEYS, st.integers(1, 2**130))
def test_below_stays_below(key: bytes, n: int) -> None:
    assert all(0 <= Draw(key).index(n) < n for _ in range(3))


@each_case("n", [1, 2, 3, 5, 6, 7, 64, 100])
def test_below_is_fair(n: int) -> None:
    draw = Draw(b"fair")
    rounds = 400 * n
    counts = Counter(draw.index(n) for _ in range(rounds))
    assert len(counts) == n
    # Five standard deviations of a binomial count.
    assert all(abs(count - 400) < 5 * 400**0.5 for count in counts.values())


def test_every_order_is_as_likely() -> None:
    draw = Draw(b"orders")
    counts = Counter(tuple(draw.permute("abcd")) for _ in range(24 * 300))
    assert set(counts) == set(permutations("abcd"))
    assert all(abs(count - 300) < 5 * 300**0.5 for count in counts.values())


@given(KEYS, st.lists(st.integers(), max_size=30), st.data())
def test_a_sample_has_k_different_places(key: bytes, items: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(items)))
    places = Draw(key).sample(range(len(items)), k)
    assert len(set(places)) == k
    assert [items[at] for at in places] == Draw(key).sample(items, k)


@each_case(
    "ask",
    [
        lambda draw: draw.index(0),
        lambda draw: draw.choice([]),
        lambda draw: draw.sample([1, 2], 3),
        lambda draw: draw.sample([1, 2], -1),
        lambda draw: draw.integer(2, 1),
        lambda draw: draw.chance(1.5),
        lambda draw: draw.chance(float("nan")),
        lambda draw: draw.bits(-1),
    ],
)
def test_impossible_requests_are_refused(ask) -> None:
    with pytest.raises(ConfigError, match="allowed"):
        ask(Draw(b""))
