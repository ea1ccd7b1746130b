"""Refusals have one wording; a warning is given once and points to the caller's line."""

import warnings

import pytest

from unmask.base.errors import ConfigError, UnknownName, format_value, require, warn_once


class Shy:
    def __repr__(self):
        raise RuntimeError


def test_a_refusal_names_value_allowed_and_next_step():
    require(True, "steps", 3, "1 or more", "raise it")
    with pytest.raises(ConfigError, match=r"^steps is 0; allowed: 1 or more; raise it$"):
        require(False, "steps", 0, "1 or more", "raise it")
    assert str(UnknownName("method", "klas", ["klass", "dus"])) == (
        "unknown method 'klas'; did you mean klass? known: dus, klass"
    )
    assert len(str(UnknownName("method", "x" * 10_000, ["a"]))) < 500


def test_any_value_fits_into_a_message():
    assert format_value("a") == "'a'"
    assert format_value("a" * 1000).endswith("... (1002 characters)")
    assert format_value(10**5000) == "a int that cannot be written out"
    assert format_value(Shy()) == "a Shy that cannot be written out"


def test_a_warning_is_given_once_and_points_outside_the_package():
    with pytest.warns(UserWarning, match="^a remark of this test$") as caught:
        warn_once("a remark of this test")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_once("a remark of this test")
