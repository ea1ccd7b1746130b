"""The command line: what it prints, what it refuses, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import unmask.catalog
from unmask.cli import app as cli
from unmask.cli.options import pairs, parse_value
from unmask.core import Trajectory
from unmask.errors import ConfigError
from unmask.policies import METHODS

SRC = Path(__file__).resolve().parents[2] / "src"


class Ended:
    """Exit code and output of one command."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        assert self.code == 0, self.err
        return json.loads(self.out)


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = cli.main(list(arguments))
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return command


def process(*arguments, code=None, **options):
    """The same in a process of its own; `code` replaces `-m unmask.cli`."""
    path = os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH")]))
    head = ["-m", "unmask.cli"] if code is None else ["-c", code]
    return subprocess.Popen(
        [sys.executable, *head, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        text=True,
        # A shell that starts tests in the background has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


def without_config(document):
    return {key: value for key, value in document.items() if key != "config"}


class TestHelp:
    def test_names_all_commands(self):
        shown = CliRunner().invoke(cli.app, ["--help"])
        assert shown.exit_code == 0
        for name in ("generate", "infill", "methods", "tasks", "models", "demo"):
            assert name in shown.output

    @pytest.mark.parametrize("name", ["generate", "infill", "demo"])
    def test_commands_have_examples(self, name):
        shown = CliRunner().invoke(cli.app, [name, "--help"])
        assert f"\n    unmask {name} " in shown.output

    def test_nothing_asked_is_help(self, run):
        assert run().out == run("--help").out

    def test_version(self, run):
        assert run("--version").out == f"unmask {unmask.__version__}\n"

    def test_help_does_not_wait_for_torch(self):
        code = "import sys; from unmask.cli import main; main(['generate', '--help']); sys.exit('torch' in sys.modules)"
        assert process(code=code).wait() == 0

    def test_onednn_is_told_before_torch(self):
        assert os.environ["ONEDNN_MAX_CPU_ISA"]


class TestGenerate:
    def test_the_model_of_the_package_is_the_default(self, run):
        document = run("generate", "--json", "--max-new-tokens", "4").json
        assert document["config"]["model"]["name"] == "mini"

    def test_prompts_are_arguments_or_options(self, run):
        bare = run("generate", "a", "b", "-m", "exact", "--json").out
        assert bare == run("generate", "--prompt", "a", "--prompt", "b", "-m", "exact", "--json").out
        assert bare == run("generate", "a", "--prompt", "b", "-m", "exact", "--json").out

    def test_without_a_prompt(self, run):
        document = run("generate", "-m", "exact", "--policy", "llada", "--json").json
        assert document["config"]["default_prompt"] is True
        assert len(document["rows"][0]["text"]) == 7

    def test_same_seed_same_bytes(self, run):
        options = (
            "generate",
            "-m",
            "exact",
            "--temperature",
            "1",
            "--seed",
            "3",
            "--samples",
            "2",
            "--policy",
            "dream",
            "--json",
        )
        here = run(*options)
        assert here.code == 0
        assert run(*options).out == here.out
        out, err = process(*options).communicate()
        assert (out, err) == (here.out, "")

    def test_pretty(self, run):
        shown = run("generate", "-m", "exact", "--prompt", "ab", "--prompt", "c", "--steps", "3")
        assert shown.code == 0
        document = run("generate", "-m", "exact", "--prompt", "ab", "--prompt", "c", "--steps", "3", "--json").json
        for words in ("n=8 vocab=4", "remasking=low_confidence", "temperature=0.0", "steps=3"):
            assert words in shown.out
        assert all(row["text"] in shown.out for row in document["rows"])
        assert "13 tokens, 6 forwards: 2.17 tokens per forward" in shown.out

    def test_quiet(self, run):
        texts = [row["text"] for row in run("generate", "-m", "exact", "--samples", "2", "--json").json["rows"]]
        assert run("generate", "-m", "exact", "--samples", "2", "--quiet").out.splitlines() == texts

    def test_prompt_file(self, run, tmp_path, monkeypatch):
        (tmp_path / "prompts.txt").write_text("ab\nc\n", encoding="utf-8")
        wanted = run("generate", "-m", "exact", "--prompt", "ab", "--prompt", "c", "--json").out
        assert run("generate", "-m", "exact", "--prompt-file", "prompts.txt", "--json").out == wanted
        with (tmp_path / "prompts.txt").open(encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdin", file)
            assert run("generate", "-m", "exact", "--prompt-file", "-", "--json").out == wanted

    def test_settings(self, run):
        document = run(
            "generate", "-m", "exact", "--policy", "core", "--set", "window=[0, 1]", "--set", "tail=0", "--json"
        ).json
        assert document["config"]["policy"]["window"] == [0, 1]
        assert document["config"]["policy"]["tail"] == 0

    def test_save(self, run, tmp_path):
        document = run("generate", "-m", "exact", "--save", "run.npz", "--json").json
        saved = Trajectory.load(tmp_path / "run.npz")
        canvas = "".join("abcd"[token] for token in saved.state.tokens_BL[0])
        assert canvas == document["rows"][0]["canvas"]
        assert len(saved.steps) == 4

    def test_infill(self, run):
        shown = run("infill", "-m", "exact", "a__c", "[MASK]b", "--json").json
        assert [len(row["text"]) for row in shown["rows"]] == [4, 2]
        assert shown["rows"][1]["text"][1] == "b"


class TestWatch:
    def test_lines_where_there_is_no_terminal(self, run):
        shown = run("generate", "-m", "exact", "--prompt", "a", "--steps", "4", "--watch", "--quiet")
        lines = shown.err.splitlines()
        assert [line.split()[1] for line in lines] == ["1", "2", "3", "4"]
        assert [line.count("_") for line in lines] == [5, 3, 1, 0]
        assert f"a{shown.out.strip()}" in lines[-1]

    def test_json_stays_json(self, run):
        watched = run("generate", "-m", "exact", "--watch", "--json")
        assert watched.out == run("generate", "-m", "exact", "--json").out
        assert "step" in watched.err

    def test_on_stdout_otherwise(self, run):
        shown = run("generate", "-m", "exact", "--watch")
        assert shown.out.startswith("step")
        assert shown.err == ""


# What each option of `generate` is set to, and what else must be given for it to have an effect at temperature 0.
ENDS = ("--model-option", "eos=ac")
EFFECTS = {
    "--prompt": ("ab",),
    "--model-option": ("n=6",),
    "--policy": ("wino",),
    "--set": ("remasking=random",),
    "--max-new-tokens": ("4",),
    "--steps": ("2",),
    "--temperature": ("2",),
    "--top-p": ("0.4", "--policy", "dream"),
    "--top-k": ("1", "--policy", "dream"),
    "--sampler": ("gumbel", "--temperature", "2"),
    "--cfg-scale": ("3",),
    "--seed": ("1", "--temperature", "2"),
    "--samples": ("2",),
    "--eos-fill": ENDS,
    "--logits-eos-inf": ENDS,
    "--confidence-eos-eot-inf": ENDS,
    "--eos-penalty": ("3", *ENDS),
}
# These do not change what is decoded; other tests here show what they do.
OUTPUT_ONLY = {"--json", "--quiet", "--watch", "--delay", "--save", "--prompt-file", "--help"}
# These need a checkpoint: tests/test_catalog.py.
OF_CHECKPOINTS = {"--model", "--device", "--dtype", "--cache", "--cache-refresh"}
# These need a calibrated gate: tests/adapt/test_gate.py.
OF_GATES = {"--gate", "--force-gate"}


class TestEveryOption:
    def test_table_is_complete(self):
        command = typer.main.get_command(cli.app).commands["generate"]
        options = [p for p in command.params if p.param_type_name == "option"]
        long = {next(name for name in p.opts if name.startswith("--")) for p in options}
        assert long | {"--help"} == set(EFFECTS) | OUTPUT_ONLY | OF_CHECKPOINTS | OF_GATES

    @pytest.mark.parametrize("option", EFFECTS)
    def test_has_its_effect(self, option, run, tmp_path):
        value = EFFECTS[option]
        bare = value if option in ("--eos-fill", "--logits-eos-inf", "--confidence-eos-eot-inf") else value[1:]
        common = ["generate", "-m", "exact", "--json", "--save", "run.npz"]

        def decoded(*arguments):
            document = without_config(run(*common, *arguments).json)
            steps = Trajectory.load(tmp_path / "run.npz").steps
            return document, [step.revealed_BL.tolist() for step in steps]

        assert decoded(option, *value) != decoded(*bare)

    def test_delay_slows_a_terminal_only(self, run):
        assert run("generate", "-m", "exact", "--watch", "--delay", "3600", "--quiet").code == 0


class TestListings:
    def test_methods(self, run):
        found = run("methods", "--json").json
        assert [method["name"] for method in found] == list(METHODS)
        by_name = {method["name"]: method for method in found}
        assert by_name["llada"]["settings"] == {"block_length": None, "remasking": "low_confidence"}
        assert by_name["wino"]["commitment"] == "re-maskable"
        shown = run("methods").out
        assert all(name in shown for name in METHODS)
        assert "window=[0.25,0.75]" in shown

    def test_models(self, run):
        found = {model["name"]: model for model in run("models", "--json").json}
        assert set(found) >= {"exact", "llada", "llada-1.5", "dream", "masked-lm"}
        assert (found["exact"]["status"], found["exact"]["options"]["n"]) == ("ready", 8)
        assert "download" in found["llada-1.5"]["status"]
        assert found["dream"]["options"]["dtype"] == "auto"
        shown = run("models").out
        assert "dependence=1.5" in shown
        assert "GSAI-ML/LLaDA-8B-Instruct" in shown


REFUSED = [
    (["generate", "-m", "exact", "--prompt", ""], ["prompt is ''", "one character or more", "write a prompt"]),
    (["generate", "-m", "exact", "--max-new-tokens", "0"], ["max_new_tokens is 0", "1 to 7", "change it"]),
    (["generate", "-m", "exact", "--steps", "8"], ["steps of row 0 is 8", "1 to 7", "lower steps"]),
    (["generate", "-m", "exact", "--steps", "0"], ["steps of row 0 is 0", "1 to 7"]),
    (["generate", "-m", "exact", "--steps", "few"], ["--steps", "integer", "--help"]),
    (["generate", "-m", "exact", "--policy", "fixed", "--set", "kappa=1.5"], ["1.5", "[0, 1]", "e.g."]),
    (
        ["generate", "-m", "exact", "--policy", "fixed", "--set", "alpha=[1,1,0,0,0]"],
        ["[1.0, 1.0", "sum to 1", "divide"],
    ),
    (["generate", "-m", "exact", "--policy", "lada"], ["'lada'", "did you mean llada?", "known:"]),
    (
        ["generate", "-m", "exact", "--set", "block_lenght=4"],
        ["'block_lenght'", "did you mean block_length?", "known:"],
    ),
    (["generate", "-m", "exact", "--set", "block_length=four"], ["'four'", "int | None", "check"]),
    (["generate", "-m", "exact", "--set", "block_length"], ["'block_length'", "KEY=VALUE", "add the value"]),
    (["generate", "-m", "exact", "--set", "a=1", "--set", "a=2"], ["--set a", "given twice", "drop one"]),
    (["generate", "-m", "exact", "--set", "steps=3"], ["--set steps", "unmask methods", "--steps"]),
    (["generate", "-m", "exact", "--model", "exakt"], ["'exakt'", "did you mean exact?", "known:"]),
    (["generate", "-m", "exact", "--model-option", "size=3"], ["'size'", "known:", "vocab"]),
    (["generate", "-m", "exact", "--prompt", "axe"], ["'x'", "'abcd'", "larger vocab"]),
    (
        ["generate", "-m", "exact", "--prompt-file", "missing.txt"],
        ["'missing.txt'", "one prompt per line", "check the path"],
    ),
    (["generate", "-m", "exact", "--prompt-file", "latin.txt"], ["'latin.txt'", "not UTF-8", "check the path"]),
    (["generate", "-m", "exact", "--prompt-file", "gap.txt"], ["line 2", "'gap.txt'", "remove the line"]),
    (
        ["generate", "-m", "exact", "--prompt", "a", "--prompt-file", "gap.txt"],
        ["both given", "one of them", "drop one"],
    ),
    (
        ["generate", "-m", "exact", "--save", "missing/run.npz"],
        ["'missing/run.npz'", "an existing one", "make 'missing' first"],
    ),
    (["generate", "-m", "exact", "--save", "."], ["'.'", "a file", "add a name"]),
    (["generate", "-m", "exact", "--eos-fill"], ["eos_fill is True", "end-of-text", "leave the option out"]),
    (["generate", "-m", "exact", "--temperature", "nan"], ["temperature is nan", ">= 0"]),
    (["generate", "-m", "exact", "--surprise"], ["--surprise", "--help"]),
    (["generat"], ["'generat'", "generate", "--help"]),
    (["infill", "-m", "exact", "abc"], ["'abc'", "'_' or [MASK]", "mark"]),
    (["infill", "-m", "exact"], ["TEXT", "--help"]),
    (["demo"], ["--out", "--help"]),
    (["demo", "--out", "gap.txt"], ["'gap.txt'", "a folder", "choose another"]),
    (["demo", "--out", "gap.txt/deeper"], ["'gap.txt/deeper'", "choose another"]),
    (["demo", "--out", "new", "--seeds", "1"], ["--seeds", "2", "--help"]),
]


class TestEnds:
    @pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=[" ".join(a)[:60] for a, _ in REFUSED])
    def test_refusals(self, arguments, words, run, tmp_path):
        (tmp_path / "latin.txt").write_bytes(b"\xe9\xff")
        (tmp_path / "gap.txt").write_text("a\n\nb\n", encoding="utf-8")
        before = sorted(tmp_path.rglob("*"))
        as_json = [*arguments, "--json"] if arguments[0] == "generate" else arguments
        for ended in (run(*arguments), run(*as_json)):
            assert (ended.code, ended.out) == (2, "")
            assert ended.err.startswith("error: ")
            assert ended.err.count("\n") == 1
            assert all(word in ended.err for word in words), ended.err
        assert sorted(tmp_path.rglob("*")) == before

    def test_exit_codes_of_the_program(self):
        refused = process("generate", "-m", "exact", "--steps", "99")
        out, err = refused.communicate()
        assert (refused.returncode, out) == (2, "")
        assert err.startswith("error: steps of row 0 is 99")
        assert err.count("\n") == 1

    def test_unexpected_errors(self, run, monkeypatch):
        def broken(name, **options):
            raise RuntimeError("two\nlines")

        monkeypatch.setattr(unmask.catalog, "load", broken)
        ended = run("generate", "-m", "exact")
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.startswith("error: unexpected RuntimeError: two lines")
        assert ended.err.count("\n") == 1
        told = run("--debug", "generate", "-m", "exact")
        assert told.code == 1
        assert "Traceback" in told.err

    def test_debug_shows_where_a_refusal_comes_from(self, run):
        told = run("--debug", "generate", "-m", "exact", "--steps", "99")
        assert told.code == 2
        assert "Traceback" in told.err
        assert told.err.splitlines()[-1].startswith("error: ")

    def test_interrupted(self):
        # More than a pipe holds: once it is written, the program is reading, inside a command.
        started = process("generate", "-m", "exact", "--prompt-file", "-", stdin=subprocess.PIPE)
        assert started.stdin
        started.stdin.write("a\n" * 200_000)
        started.stdin.flush()
        # By then it has read all there is and waits for more: a signal that comes earlier may be noticed late.
        time.sleep(0.5)
        started.send_signal(signal.SIGINT)
        code = started.wait(30)
        out, err = started.stdout.read(), started.stderr.read()
        started.stdin.close()
        assert (code, out) == (130, "")
        assert "Traceback" not in err

    @pytest.mark.parametrize("arguments", [("models",), ("generate", "-m", "exact", "--json")])
    def test_closed_pipe(self, arguments):
        read, write = os.pipe()
        os.close(read)
        started = process(*arguments, stdout=write)
        os.close(write)
        _, err = started.communicate()
        assert (started.returncode, err) == (141, "")

    def test_a_save_that_fails_late(self, run, monkeypatch):
        def full(self, path):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Trajectory, "save", full)
        ended = run("generate", "-m", "exact", "--save", "run.npz", "--json")
        assert (ended.code, ended.out) == (2, "")
        assert "No space left on device" in ended.err


@pytest.mark.parametrize(
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


def test_set_of_a_part_with_dots(run):
    document = run("generate", "-m", "exact", "--policy", "revised", "--set", "operator.variant=cap", "--json").json
    assert document["config"]["policy"]["operator"]["variant"] == "cap"


class TestDemo:
    def test_report(self, run, tmp_path):
        ended = run("demo", "--out", "deep/report", "--problems", "1", "--seeds", "2")
        assert (ended.code, ended.err) == (0, "")
        names = [f"demo.{kind}" for kind in ("csv", "html", "md", "png")]
        assert sorted(path.name for path in (tmp_path / "deep" / "report").iterdir()) == names
        assert all(f"deep/report/{name}" in ended.out for name in names)
        assert "most probable answer" in ended.out
        assert "WINO" in ended.out

    def test_a_folder_that_cannot_be_made_costs_no_work(self, run, monkeypatch):
        monkeypatch.setattr("unmask.lab.demo", lambda *a, **k: pytest.fail("worked before it looked"))
        assert run("demo", "--out", "/dev/null/report").code == 2


def test_pairs_are_read_in_order():
    assert list(pairs("--set", ["b=1", "a=x=y"]).items()) == [("b", 1), ("a", "x=y")]
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        pairs("--set", ["=1"])
