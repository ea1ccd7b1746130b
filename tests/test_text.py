"""Text from outside is made storable without changing what already is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.text import storable


@pytest.mark.slow
@given(st.text())
def test_text_that_utf8_holds_is_not_changed(text: str) -> None:
    assert storable(text) == text


@given(st.lists(st.integers(0, 0x10FFFF)).map(lambda codes: "".join(map(chr, codes))))
def test_whatever_comes_in_can_be_stored(text: str) -> None:
    storable(text).encode("utf-8")


@pytest.mark.parametrize(
    ("text", "stored"),
    [("\ud800", "�"), ("a\udc00b", "a�b"), ("\ud83d\ude00", "\U0001f600"), ("", ""), ("x\x00", "x\x00")],
)
def test_halves_of_characters(text: str, stored: str) -> None:
    """Two halves that belong together are one character; a half alone is the replacement character."""
    assert storable(text) == stored
