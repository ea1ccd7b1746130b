"""Settings of the wrong type are refused before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pytest

from tests.helpers.cases import each_case
from unmask.errors import ConfigError, UnknownName, require
from unmask.options import (
    check_keys,
    check_types,
    fits,
    parse_names,
    parse_number,
    parse_part,
    parse_text,
    parse_whole,
    read_toml,
)
from unmask.policies import LLaDA, Revised, make


@each_case(
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
        ("a", Literal["a", 1], True),
        (True, Literal["a", 1], False),
        ([1, 2, 3], tuple[int, ...], True),
        ([1, "x"], tuple[int, ...], False),
        ({"a": 1}, dict[str, int], True),
        ({"a": 1}, dict, True),
        ({"a": "x"}, dict[str, int], False),
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


@dataclass(frozen=True)
class Shape:
    width: int
    height: int = 1

    def __post_init__(self) -> None:
        require(self.width > 0, "width of shape", self.width, "1 or more", "raise it")


class TestStrictFiles:
    def test_content(self, tmp_path):
        (tmp_path / "a.toml").write_text("[shape]\nwidth = 3\n", encoding="utf-8")
        raw = read_toml(tmp_path / "a.toml", "shape file")
        assert parse_part(Shape, raw["shape"], "shape", required=("width",)) == Shape(3)

    def test_a_byte_order_mark_is_dropped(self, tmp_path):
        (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfname = 'x'")
        assert read_toml(tmp_path / "a.toml", "shape file") == {"name": "x"}

    @pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "."])
    def test_paths_that_cannot_be_read(self, path):
        with pytest.raises(ConfigError, match=r"cannot be read .*check the path") as caught:
            read_toml(path, "shape file")
        assert len(str(caught.value)) < 500

    @pytest.mark.parametrize(("content", "words"), [(b"name = ", "is not TOML"), (b"a = '\xff'", "is not TOML")])
    def test_no_toml(self, tmp_path, content, words):
        (tmp_path / "a.toml").write_bytes(content)
        with pytest.raises(ConfigError, match=rf"shape file '.*a\.toml' {words} \(.*\); correct that line"):
            read_toml(tmp_path / "a.toml", "shape file")

    def test_no_file(self, tmp_path):
        with pytest.raises(ConfigError, match=r"shape file '.*' cannot be read \(No such file.*\); check the path"):
            read_toml(tmp_path / "none.toml", "shape file")

    def test_keys(self):
        check_keys("shape", {"width": 1}, ("width",), ("height",))
        with pytest.raises(UnknownName, match="unknown key of shape 'hight'; did you mean height"):
            check_keys("shape", {"width": 1, "hight": 1}, ("width",), ("height",))
        with pytest.raises(ConfigError, match="shape has no 'width'; allowed: every one of width, for none has a"):
            check_keys("shape", {}, ("width",), ("height",))
        with pytest.raises(ConfigError, match="shape is 3; allowed: a table of keys: width, height"):
            check_keys("shape", 3, ("width",), ("height",))

    def test_parts(self):
        with pytest.raises(ConfigError, match="shape has no 'height'"):
            parse_part(Shape, {"width": 1}, "shape")
        with pytest.raises(ConfigError, match="width of shape is 'wide'; allowed: int"):
            parse_part(Shape, {"width": "wide", "height": 1}, "shape")
        with pytest.raises(ConfigError, match=r"^\[shape\] of a.toml: width of shape is 0"):
            parse_part(Shape, {"width": 0, "height": 1}, "[shape] of a.toml")

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: parse_text("name", ""), "name is ''; allowed: a text"),
            (lambda: parse_whole("seed", True, 0), "seed is True; allowed: a whole number, 0 or more"),
            (lambda: parse_whole("seed", 0, 1), "a whole number, 1 or more"),
            (lambda: parse_number("share", "1", 0.0), "a number, 0 or more"),
            (lambda: parse_number("share", float("inf"), 0.0), "a number, 0 or more"),
            (lambda: parse_names("axes", []), "a list of names"),
            (lambda: parse_names("axes", ["a", "a"]), "none twice"),
        ],
    )
    def test_values(self, call, words):
        with pytest.raises(ConfigError, match=words):
            call()
