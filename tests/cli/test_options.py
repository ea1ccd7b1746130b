"""Options as flags, and command-line texts as values."""

from typing import Annotated, Any

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from unmask.api.options import DecodeOptions
from unmask.base.errors import ConfigError
from unmask.base.options import Options
from unmask.cli.options import ClusterOptions, options_as_flags
from unmask.lab.cluster import Ray
from unmask.methods import ANY_FAMILY, KLASS, METHODS, compose, parse_policy


class Group(Options):
    """Options that only a command line has."""

    needed: int = Field(description="No default.")
    word: str = Field("w", description="A word.")


class TestOptionsAsFlags:
    @pytest.fixture
    def call(self):
        """Run a command; what it was given, or what is wrong."""
        seen: list[Any] = []

        @options_as_flags
        def infill(text: Annotated[str, typer.Argument()], group: Group, options: DecodeOptions) -> None:
            """A command."""
            seen.append((text, group, options))

        app = typer.Typer(rich_markup_mode=None)
        app.command()(infill)

        def invoke(*arguments):
            result = CliRunner().invoke(app, ["t", "--needed", "1", *arguments])
            return seen.pop() if result.exit_code == 0 and seen else f"{result.output} {result.exception}"

        return invoke

    def test_a_field_is_a_flag(self, call):
        assert call() == ("t", Group(needed=1), DecodeOptions())
        given = ("--word", "x", "--steps", "4", "--eos-fill", "-p", "llada", "--set", "block_length=4")
        options = DecodeOptions(steps=4, eos_fill=True, policy="llada", block_length=4)
        assert call(*given) == ("t", Group(needed=1, word="x"), options)

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            (["--samples", "0"], "samples is 0; allowed: 1 to 100000"),
            (["--no-eos-fill"], "--no-eos-fill"),
            (["--max-new-tokens", "1"], "--max-new-tokens"),
            (["--record", "1"], "--record"),
            (["--needed", "x"], "--needed"),
            (["--set", "seed=1"], "--set seed=... names no setting of a policy"),
        ],
    )
    def test_what_is_not_allowed(self, call, wrong, words):
        assert words in call(*wrong)

    def test_help(self, call):
        shown = call("--help")
        for words in ("A command.", "No default.", "Denoising steps.", "--set"):
            assert words in shown
        assert "--on-step" not in shown


def test_a_composition_as_a_policy_is_typed():
    """No rule has a comma; weights in a table do, and brackets keep them together."""
    text = "composed:score=0.7*confidence+0.3*margin,region=sliding:8:16,cardinality=eb:0.1,commitment=none"
    assert parse_policy(text) == compose("0.7*confidence+0.3*margin", "sliding:8:16", "eb:0.1", "none")
    table = parse_policy("composed:score={confidence = 0.5, margin = 0.5},cardinality=0.5")
    assert table == compose({"confidence": 0.5, "margin": 0.5}, cardinality=0.5)


def test_a_preset_as_a_setting():
    dream = KLASS(**METHODS["klass"].presets["dream/math"])
    assert parse_policy("klass:preset=math", family="dream") == dream
    assert parse_policy("klass:preset=dream/math", family="llada") == dream
    assert parse_policy("klass:preset=math,window=3", family="dream").window == 3
    assert parse_policy("klass:preset=math", family=ANY_FAMILY).name == "klass"
    with pytest.raises(ConfigError, match="preset of klass is 'math'; allowed: llada/math, dream/math; say which"):
        parse_policy("klass:preset=math")
    with pytest.raises(ConfigError, match="preset of remdm-llada is 'truthfulqa' with a model of the family dream"):
        parse_policy("remdm-llada:preset=truthfulqa", family="dream")


def test_where_work_runs():
    assert ClusterOptions().cluster is None
    assert ClusterOptions(ray="local").cluster == Ray()
    assert ClusterOptions(ray="host:6379", gpus_per_worker=0.5, workers=3).cluster == Ray("host:6379", 0.5, 3)
    with pytest.raises(ConfigError, match="--workers is 2; allowed: nothing without --ray"):
        _ = ClusterOptions(workers=2).cluster
    with pytest.raises(ConfigError, match="address is 'slurm'; allowed: auto, or HOST:PORT"):
        _ = ClusterOptions(ray="slurm").cluster
