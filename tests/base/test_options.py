"""Options, settings and files of the wrong type are refused where they enter, in one wording."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from typing import Any, Literal, Self

import pytest
from pydantic import Field, model_validator

from unmask.base.errors import ConfigError, require
from unmask.base.options import (
    Options,
    check_annotations,
    check_keys,
    parse_dataclass,
    parse_integer,
    parse_names,
    parse_number,
    parse_policy_spec,
    parse_text,
    read_toml,
)


class Inner(Options):
    size: int = Field(1, ge=1, le=16)
    share: float = 0.5


class Outer(Options):
    """One field of each kind that options have."""

    scale: float = Field(0.0, ge=0, json_schema_extra={"allowed": "a number >= 0", "hint": "0 means no guidance"})
    top: int = Field(0, ge=0, le=16)
    weight: float = Field(1.0, gt=0)
    name: Literal["llada", "dream"] | None = None
    whole: int | None = None
    flag: bool = False
    pair: tuple[float, float] = (0.0, 1.0)
    lengths: tuple[int, ...] = ()
    inner: Inner = Inner()
    more: tuple[Inner, ...] = ()
    sources: Mapping[str, Inner] = Field(default_factory=dict)
    anything: Any = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(self.top != 13, "top", self.top, "not 13", "take another")
        return self


class Required(Options):
    must: int
    may: int = 1


class TestOptions:
    def test_defaults_and_what_was_given(self):
        options = Outer(top=3, inner={"size": 2}, more=[{"size": 3}], sources={"a": {}})
        assert (options.top, options.scale, options.inner.size, options.more[0].size) == (3, 0.0, 2, 3)
        assert options.sources == {"a": Inner()}
        assert options.model_fields_set == {"top", "inner", "more", "sources"}
        with pytest.raises(ValueError, match="frozen"):
            options.top = 4

    @pytest.mark.parametrize("build", [lambda **given: Outer(**given), lambda **given: Outer.from_table(given, "x")])
    def test_a_whole_number_in_a_float_field_is_recorded_as_it_was_given(self, build):
        """`temperature=1` stands in configurations and hashes as 1; 1.0 would be another text."""
        options = build(weight=1, pair=[0, 2], inner={"share": 1}, sources={"a": {"share": 0}}, top=2)
        assert json.dumps([options.weight, options.pair, options.inner.share, options.sources["a"].share]) == (
            "[1, [0, 2], 1, 0]"
        )
        assert options == build(
            weight=1.0, pair=(0.0, 2.0), inner=Inner(share=1.0), sources={"a": Inner(share=0)}, top=2
        )

    def test_lists_become_tuples_where_a_field_asks_for_them_and_nowhere_else(self):
        options = Outer(lengths=[1, 2], anything=[1, [2]])
        assert (options.lengths, options.anything) == ((1, 2), [1, [2]])

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"scale": -1}, "scale is -1; allowed: a number >= 0; 0 means no guidance"),
            ({"scale": float("nan")}, "scale is nan; allowed: a number >= 0; 0 means no guidance"),
            ({"top": 17}, "top is 17; allowed: 0 to 16; change it"),
            ({"weight": 0}, "weight is 0; allowed: above 0; change it"),
            ({"weight": True}, "weight is True; allowed: float; check its type"),
            ({"weight": "1"}, "weight is '1'; allowed: float; check its type"),
            ({"whole": 1.0}, "whole is 1.0; allowed: int | None; check its type"),
            ({"whole": True}, "whole is True; allowed: int | None; check its type"),
            ({"flag": 1}, "flag is 1; allowed: true or false; check its type"),
            ({"name": "x"}, "name is 'x'; allowed: 'llada' or 'dream'; choose one of these"),
            ({"pair": (1,)}, "pair[1] is (1,); allowed: tuple[float, float]; check its type"),
            ({"lengths": [1, "a"]}, "lengths[1] is 'a'; allowed: tuple[int, ...]; check its type"),
            ({"inner": {"size": 17}}, "inner.size is 17; allowed: 1 to 16; change it"),
            ({"inner": 3}, "inner is 3; allowed: a table of keys: size, share; check its type"),
            ({"more": [{}, {"size": "a"}]}, "more[1].size is 'a'; allowed: int; check its type"),
            ({"sources": {"a": {"size": "b"}}}, "sources.a.size is 'b'; allowed: int; check its type"),
            ({"topp": 1}, "unknown option 'topp'; did you mean top? known: "),
            ({"sources": {"a": {"sice": 1}}}, "unknown key of sources.a 'sice'; did you mean size? known: share, size"),
            ({"top": 13}, "top is 13; allowed: not 13; take another"),
        ],
    )
    def test_a_refusal_says_what_was_given_what_is_allowed_and_what_to_do(self, given, message):
        with pytest.raises(ConfigError) as caught:
            Outer(**given)
        assert str(caught.value).startswith(message)

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            ({"must": "x"}, "must of [a] of b.toml is 'x'; allowed: int; check its type"),
            ({"may": 2}, "[a] of b.toml has no 'must'; allowed: every one of must, for none has a default; add it"),
            ({"must": 1, "my": 2}, "unknown key of [a] of b.toml 'my'; did you mean may? known: may, must"),
            (3, "[a] of b.toml is 3; allowed: a table of keys: must, may; write it so"),
        ],
    )
    def test_tables_of_files_are_named(self, table, message):
        with pytest.raises(ConfigError) as caught:
            Required.from_table(table, "[a] of b.toml")
        assert str(caught.value) == message

    def test_a_check_of_several_fields_is_named_too(self):
        with pytest.raises(ConfigError, match=r"^\[a\]: top is 13; allowed: not 13; take another$"):
            Outer.from_table({"top": 13}, "[a]")


def test_a_spec_is_a_name_and_settings():
    assert parse_policy_spec("llada") == ("llada", {})
    assert parse_policy_spec("klass:block_length=4, n=none") == ("klass", {"block_length": 4, "n": None})
    assert parse_policy_spec("mine.py:Rule:window=[0.0,1.0],region=block:8") == (
        "mine.py:Rule",
        {"window": [0.0, 1.0], "region": "block:8"},
    )
    with pytest.raises(ConfigError, match=r"--policy ':a=1' names no policy; allowed: .*; begin with a name"):
        parse_policy_spec(":a=1")
    with pytest.raises(ConfigError, match=r"--policy a is given twice"):
        parse_policy_spec("x:a=1,a=2")


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
        ("a", Literal["a", 1], True),
        ([1, 2, 3], tuple[int, ...], True),
        ([1, "x"], tuple[int, ...], False),
        ({"a": 1}, dict[str, int], True),
        ({"a": 1}, dict, True),
        ({"a": "x"}, dict[str, int], False),
    ],
)
def test_types_of_settings(value, hint, expected):
    kind = make_dataclass("Kind", [("part", hint)])
    if expected:
        check_annotations(kind, {"part": value}, "it")
    else:
        with pytest.raises(ConfigError, match="part of it is"):
            check_annotations(kind, {"part": value}, "it")


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
        assert parse_dataclass(Shape, raw["shape"], "shape", required=("width",)) == Shape(3)

    def test_a_byte_order_mark_is_dropped(self, tmp_path):
        (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfname = 'x'")
        assert read_toml(tmp_path / "a.toml", "shape file") == {"name": "x"}

    def test_broken_files_are_refused(self, tmp_path):
        for content in (b"name = ", b"a = '\xff'"):
            (tmp_path / "a.toml").write_bytes(content)
            with pytest.raises(ConfigError, match=r"shape file '.*a\.toml' is not TOML"):
                read_toml(tmp_path / "a.toml", "shape file")
        for path in ("a\0b", "x" * 5000, ".", tmp_path / "none.toml"):
            with pytest.raises(ConfigError, match="cannot be read") as caught:
                read_toml(path, "shape file")
            assert len(str(caught.value)) < 500

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: check_keys("shape", {"width": 1, "hight": 1}, ("width",), ("height",)), "did you mean height"),
            (
                lambda: check_keys("shape", {}, ("width",), ("height",)),
                "shape has no 'width'; allowed: every one of",
            ),
            (
                lambda: check_keys("shape", 3, ("width",), ("height",)),
                "shape is 3; allowed: a table of keys: width",
            ),
            (lambda: parse_dataclass(Shape, {"width": 1}, "shape"), "shape has no 'height'"),
            (
                lambda: parse_dataclass(Shape, {"width": "a", "height": 1}, "shape"),
                "width of shape is 'a'",
            ),
            (lambda: parse_dataclass(Shape, {"width": 0, "height": 1}, "[a]"), r"^\[a\]: width of shape is 0"),
            (lambda: parse_text("name", ""), "name is ''; allowed: a text"),
            (lambda: parse_integer("seed", True, 0), "seed is True; allowed: a whole number, 0 or more"),
            (lambda: parse_integer("seed", 0, 1), "a whole number, 1 or more"),
            (lambda: parse_number("share", "1", 0.0), "a number, 0 or more"),
            (lambda: parse_number("share", float("inf"), 0.0), "a number, 0 or more"),
            (lambda: parse_names("axes", []), "a list of names"),
            (lambda: parse_names("axes", ["a", "a"]), "none twice"),
        ],
    )
    def test_wrong_tables_and_values_are_refused(self, call, words):
        with pytest.raises(ConfigError, match=words):
            call()
