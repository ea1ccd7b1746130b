"""Remarks are made once, at the line of whoever called."""

import warnings

import pytest

from unmask.core.remarks import say_once


def test_a_remark_is_made_once_and_points_outside_the_package():
    with pytest.warns(UserWarning, match="^a remark of this test$") as caught:
        say_once("a remark of this test")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        say_once("a remark of this test")
