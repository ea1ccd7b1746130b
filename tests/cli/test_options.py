"""Dataclasses as commands, and command-line texts as values."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from tests.helpers.cases import each_case
from unmask.api.options import option, shared
from unmask.base.errors import ConfigError
from unmask.base.options import parse_settings, parse_value, split_commas
from unmask.cli.options import expanded, policy_of
from unmask.methods import ANY_FAMILY, KLASS, METHODS, compose


@dataclass(frozen=True, kw_only=True)
class Made:
    """Options of every kind."""

    needed: Annotated[int, typer.Option(help="No default.")]
    size: int = option(3, "How large.", min=1)
    flag: bool = option(False, "Or not.")
    other: str | None = option(None, "By two names.", alias="another")
    elsewhere: int = option(0, "Of another command.", only="elsewhere")
    hidden: int = option(7, "Of Python alone.", in_shell=False)
    seed: int = shared("seed", min=0)


class TestExpanded:
    @pytest.fixture
    def call(self):
        """Run a command; what it was given, or what is wrong."""
        seen: list[Any] = []

        @expanded
        def made(word: Annotated[str, typer.Argument()], options: Made) -> None:
            """A command."""
            seen.append((word, options))

        app = typer.Typer(rich_markup_mode=None)
        app.command()(made)

        def invoke(*arguments):
            result = CliRunner().invoke(app, [*arguments])
            return seen.pop() if result.exit_code == 0 and seen else result.output

        return invoke

    def test_a_field_is_an_option(self, call):
        assert call("w", "--needed", "1") == ("w", Made(needed=1))
        given = ("--size", "4", "--flag", "--other", "x", "--seed", "5")
        assert call("w", "--needed", "1", *given) == ("w", Made(needed=1, size=4, flag=True, other="x", seed=5))

    def test_an_alias_is_the_same_option(self, call):
        assert call("w", "--needed", "1", "--another", "x")[1].other == "x"

    @pytest.mark.parametrize(
        "wrong", [("--size", "0"), ("--seed", "-1"), ("--no-flag",), ("--elsewhere", "1"), ("--hidden", "1")]
    )
    def test_what_is_not_allowed(self, call, wrong):
        assert wrong[0] in call("w", "--needed", "1", *wrong)

    def test_a_field_without_a_default_is_needed(self, call):
        assert "--needed" in call("w")

    def test_help(self, call):
        shown = call("--help")
        for words in ("A command.", "How large.", "By two names.", "Seed of all"):
            assert words in shown
        assert "Of Python alone." not in shown


@each_case(
    ("text", "value"),
    [
        ("4", 4),
        ("-1", -1),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("none", None),
        ("None", None),
        ("null", None),
        ("random", "random"),
        ("count:4", "count:4"),
        ("'4'", "4"),
        ('"a b"', "a b"),
        ("[0.25, 0.75]", [0.25, 0.75]),
        ("{confidence = 0.5, margin = 0.5}", {"confidence": 0.5, "margin": 0.5}),
        (" 3 ", 3),
        ("", ""),
        ("1979-05-27", "1979-05-27"),
        ("1\nother = 2", "1\nother = 2"),
        ("[1,", "[1,"),
    ],
)
def test_values(text, value):
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_pairs_are_read_in_order():
    assert list(parse_settings(["b=1", "a=x=y"]).items()) == [("b", 1), ("a", "x=y")]
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_settings(["=1"])


def test_settings_of_a_policy():
    assert split_commas("") == []
    assert split_commas("a=1,b=[0.0, 1.0], c='x,y',d={p = 1, q = 2}") == [
        "a=1",
        "b=[0.0, 1.0]",
        "c='x,y'",
        "d={p = 1, q = 2}",
    ]
    found = parse_settings(split_commas("window=[0.0,1.0],region=block:8,n=4,x=none,y=true"), "--policy")
    assert found == {"window": [0.0, 1.0], "region": "block:8", "n": 4, "x": None, "y": True}
    with pytest.raises(ConfigError, match="twice"):
        parse_settings(["a=1", "a=2"], "--policy")


def test_a_composition_as_a_policy_is_typed():
    """No rule has a comma; weights in a table do, and brackets keep them together."""
    text = "composed:score=0.7*confidence+0.3*margin,region=sliding:8:16,cardinality=eb:0.1,commitment=none"
    assert policy_of(text) == compose("0.7*confidence+0.3*margin", "sliding:8:16", "eb:0.1", "none")
    table = policy_of("composed:score={confidence = 0.5, margin = 0.5},cardinality=0.5")
    assert table == compose({"confidence": 0.5, "margin": 0.5}, cardinality=0.5)


def test_a_preset_as_a_setting():
    dream = KLASS(**METHODS["klass"].presets["dream/math"])
    assert policy_of("klass:preset=math", family="dream") == dream
    assert policy_of("klass:preset=dream/math", family="llada") == dream
    assert policy_of("klass:preset=math,window=3", family="dream").window == 3
    assert policy_of("klass:preset=math", family=ANY_FAMILY).name == "klass"
    with pytest.raises(ConfigError, match="preset of klass is 'math'; allowed: llada/math, dream/math; say which"):
        policy_of("klass:preset=math")
    with pytest.raises(ConfigError, match="preset of remdm-llada is 'truthfulqa' with a model of the family dream"):
        policy_of("remdm-llada:preset=truthfulqa", family="dream")
