"""Settings of the wrong type are refused before anything runs."""

from collections.abc import Mapping, Sequence

import pytest

from unmask.errors import ConfigError
from unmask.options import check_types, fits
from unmask.policies import LLaDA, Revised, make


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, int, True),
        (1, float, True),
        (True, int, False),
        (1.5, int, False),
        (None, int | None, True),
        ("x", int | None, False),
        ([0.1, 0.9], tuple[float, float], True),
        ([0.1], tuple[float, float], False),
        ({"a": 1}, Mapping[str, float], True),
        ({"a": "x"}, Mapping[str, float], False),
        ((1, 2), Sequence[float], True),
        ("ab", Sequence[float], False),
    ],
)
def test_fits(value, hint, expected):
    assert fits(value, hint) is expected


def test_the_message_names_setting_owner_value_and_type():
    with pytest.raises(ConfigError, match=r"block_length of llada is 'four'; allowed: int \| None"):
        check_types(LLaDA, {"block_length": "four"}, "llada")


def test_a_policy_refuses_settings_of_the_wrong_type():
    with pytest.raises(ConfigError, match="block_length of llada"):
        make("llada", block_length="four")
    with pytest.raises(ConfigError, match=r"eta of revised\.operator"):
        make("revised", **{"operator.eta": "much"})
    with pytest.raises(ConfigError, match="no parts"):
        make("llada", **{"block_length.x": 1})


def test_a_part_that_is_a_policy_may_be_named():
    policy = make("revised", base="llada", **{"base.block_length": 2, "operator.variant": "cap"})
    assert isinstance(policy, Revised)
    assert policy.base == LLaDA(block_length=2)
    assert policy.operator.variant == "cap"


def test_the_word_none_reaches_settings_that_know_it():
    """A command line reads `none` as None; where None makes no sense the word is meant."""
    assert make("fixed", commit=None) == make("fixed", commit="none")
    assert make("info-gain", threshold=None).threshold is None
    with pytest.raises(ConfigError, match="remasking"):
        make("llada", remasking=None)
