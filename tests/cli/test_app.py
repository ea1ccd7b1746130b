"""The program: its help, what it refuses, and how it ends."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

import unmask.api.load
from tests.helpers import made_studies, tiny_demo
from tests.helpers.fresh_python import environment, fresh_python
from unmask.cli.app import app, main


@contextmanager
def closed_pipe():
    """Where to write to when nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


class TestHelp:
    def test_names_all_commands(self):
        shown = CliRunner().invoke(app, ["--help"])
        assert shown.exit_code == 0
        for name in ("generate", "infill", "methods", "tasks", "models", "demo", "verify"):
            assert name in shown.output

    @pytest.mark.parametrize("name", ["generate", "infill", "demo", "verify"])
    def test_commands_have_examples(self, name):
        shown = CliRunner().invoke(app, [name, "--help"])
        assert f"\n    unmask {name} " in shown.output

    def test_nothing_asked_is_help(self, command):
        assert command().out == command("--help").out

    def test_version(self, command):
        assert command("--version").out == f"unmask {unmask.__version__}\n"

    def test_help_does_not_wait_for_torch(self, process):
        code = "import sys; from unmask.cli import main; main(['generate', '--help']); sys.exit('torch' in sys.modules)"
        assert process(code=code).wait() == 0

    def test_onednn_is_told_before_torch(self):
        assert os.environ["ONEDNN_MAX_CPU_ISA"]


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
    (["generate", "-m", "exact", "--set", "block_length=four"], ["'four'", "or None", "check"]),
    (
        ["generate", "-m", "exact", "--policy", "best-of:base=lookum"],
        ["base of best-of is 'lookum'; allowed: a method that decides step by step, e.g. llada"],
    ),
    (["generate", "--model-option", "invariant=maybe"], ["invariant of mini is 'maybe'; allowed: true or false"]),
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
    (["demo", "--out", "gap.txt"], ["'gap.txt'", "a folder", "choose another"]),
    (["demo", "--out", "gap.txt/deeper"], ["'gap.txt/deeper'", "choose another"]),
    (["demo", "--out", "new", "--seeds", "1"], ["--seeds", "2", "--help"]),
]


class TestEnds:
    @pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=[" ".join(a)[:60] for a, _ in REFUSED])
    def test_refusals(self, arguments, words, command, tmp_path):
        (tmp_path / "latin.txt").write_bytes(b"\xe9\xff")
        (tmp_path / "gap.txt").write_text("a\n\nb\n", encoding="utf-8")
        before = sorted(tmp_path.rglob("*"))
        as_json = [*arguments, "--json"] if arguments[0] == "generate" else arguments
        for ended in (command(*arguments), command(*as_json)):
            assert (ended.code, ended.out) == (2, "")
            assert ended.err.startswith("error: ")
            assert ended.err.count("\n") == 1
            assert all(word in ended.err for word in words), ended.err
        assert sorted(tmp_path.rglob("*")) == before

    def test_exit_codes_of_the_program(self, process):
        refused = process("generate", "-m", "exact", "--samples", "0")
        out, err = refused.communicate()
        assert (refused.returncode, out) == (2, "")
        assert err.startswith("error: samples is 0")
        assert err.count("\n") == 1

    def test_unexpected_errors(self, command, monkeypatch):
        def broken(name, **options):
            raise RuntimeError("two\nlines")

        monkeypatch.setattr(unmask.api.load, "load", broken)
        ended = command("generate", "-m", "exact")
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.startswith("error: unexpected RuntimeError: two lines")
        assert ended.err.count("\n") == 1
        shown = command("--debug", "generate", "-m", "exact")
        assert shown.code == 1
        assert "Traceback" in shown.err

    def test_a_full_disk_is_said_as_what_it_is(self, command, monkeypatch):
        with suppress(OSError), open("/dev/full", "w", encoding="utf-8") as stdout:
            monkeypatch.setattr(sys, "stdout", stdout)
            ended = command("tasks", "--json")
        assert ended.code == 2
        assert ended.err == "error: No space left on device; make room, and run the same command\n"

    def test_debug_shows_where_a_refusal_comes_from(self, command):
        shown = command("--debug", "generate", "-m", "exact", "--steps", "99")
        assert shown.code == 2
        assert "Traceback" in shown.err
        assert shown.err.splitlines()[-1].startswith("error: ")

    def test_interrupted(self, process):
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
    def test_closed_pipe(self, arguments, capsys, monkeypatch):
        """As a table, and as a text."""
        with closed_pipe() as write, open(write, "w", encoding="utf-8", closefd=False) as stdout:
            monkeypatch.setattr(sys, "stdout", stdout)
            assert main(list(arguments)) == 141
        assert capsys.readouterr().err == ""

    def test_nobody_who_reads_errors(self, process):
        """Progress and warnings are for whoever looks on: the result does not depend on it."""
        with closed_pipe() as write:
            started = process("generate", "-m", "exact", "--samples", "0", stderr=write)
        assert started.communicate()[0] == ""
        assert started.returncode == 2

    def test_closed_pipe_of_the_program(self, process):
        """The interpreter, which flushes once more as it ends, has nothing to add."""
        with closed_pipe() as write:
            started = process("tasks", "--json", stdout=write)
        _, err = started.communicate()
        assert (started.returncode, err) == (141, "")


class TestOddTerminals:
    """Whatever the terminal can hold, and however narrow it is: the work is done, so it is shown."""

    @pytest.fixture
    def shown(self, monkeypatch, tmp_path):
        """The exit code of a command, and its output on a narrow terminal that holds nothing but ASCII."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "20")
        monkeypatch.setenv("NO_COLOR", "1")

        def call(*arguments):
            raw = io.BytesIO()
            with monkeypatch.context() as patched:
                stream = io.TextIOWrapper(raw, encoding="ascii")
                patched.setattr(sys, "stdout", stream)
                code = main([str(argument) for argument in arguments])
                stream.flush()
            return code, raw.getvalue().decode("ascii")

        return call

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--help"],
            ["--version"],
            ["models"],
            ["methods"],
            ["tasks"],
            ["tasks", "show", "carry-rtl"],
            ["tasks", "show", "unique-list-commit", "--json"],
            ["generate", "-m", "exact", "ab"],
            ["generate", "-m", "exact", "ab", "--watch"],
            ["generate", "-m", "exact", "ab", "--quiet"],
            ["infill", "-m", "exact", "a__b", "--json"],
            ["demo", "--out", "ä", "--problems", "1", "--seeds", "2", "--study", "study.toml"],
            ["study", "report", "study"],
            ["study", "status", "study"],
            ["calibrate", "--help"],
            ["verify", "--help"],
        ],
        ids=" ".join,
    )
    def test_every_command(self, shown, arguments):
        if arguments[:1] == ["study"]:
            made_studies.store(Path("study"), made_studies.known())
        if arguments[:1] == ["demo"]:
            tiny_demo.write(Path())
        code, out = shown(*arguments)
        assert code == 0
        assert out

    def test_a_text_of_the_user_comes_back_in_another_spelling(self, shown, scaled, tmp_path):
        model = scaled.llada(tmp_path / "llada")
        given = ("generate", "-m", model, "--device", "cpu", "--max-new-tokens", "4", "Größe 😀")
        code, out = shown(*given)
        assert code == 0
        assert "\\xf6" in out
        code, out = shown(*given, "--json")
        assert code == 0
        assert json.loads(out)["config"]["rows"][0]["prompt"] == "Größe 😀"

    def test_compare(self, shown, scaled, tmp_path):
        model = scaled.llada(tmp_path / "llada")
        given = (
            "compare",
            "-m",
            model,
            "--device",
            "cpu",
            "--task",
            "csv-missing-cells",
            "--prompts",
            "2",
            "--steps",
            "2",
        )
        code, out = shown(*given, "--axis", "score", "--out", "ä")
        assert code == 0
        assert "better" in out
        assert out.splitlines()[-1] == "\\xe4/figure-time.svg"
        code, out = shown(*given, "--json", "--quiet")
        assert json.loads(out)["split"] == "development"

    def test_a_refusal(self, shown, capsys):
        assert shown("generate", "-m", "模型")[0] == 2
        assert "error: unknown model" in capsys.readouterr().err

    @pytest.mark.slow
    @pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
    def test_the_program(self, process, tmp_path, variables):
        made_studies.store(tmp_path / "study", made_studies.known())
        started = process("study", "report", str(tmp_path / "study"), env=environment(**variables))
        out, err = started.communicate()
        assert (started.returncode, err) == (0, "")
        assert "How much" in out

    @pytest.mark.slow
    @pytest.mark.parametrize("closed", [1, 2])
    def test_a_closed_stream(self, process, closed):
        code = (
            f"import os, sys; os.close({closed}); sys.{'stdout' if closed == 1 else 'stderr'} = None; "
            "from unmask.cli import main; sys.exit(main(['generate', '-m', 'exact', 'a', '--quiet']))"
        )
        started = process(code=code)
        out, err = started.communicate()
        assert (started.returncode, err) == (0, "")
        assert bool(out) is (closed == 2)


def test_a_path_that_no_file_system_takes_is_refused_in_words(command):
    ended = command("calibrate", "--model", "exact", "--task", "carry-rtl", "--axis", "region", "--out", "n" * 5000)
    assert ended.code == 2
    assert "File name too long; check the path" in ended.err
    assert len(ended.err) < 600


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["methods", "show", "nonsense"], 2)])
def test_the_program_clears_up_and_ends_with_its_code(arguments, code):
    start = "import atexit; atexit.register(print, 'bye'); "
    ended = fresh_python(start + "from unmask.cli import start; start()", *arguments)
    assert ended.returncode == code
    assert ended.stdout.endswith("bye\n")


@pytest.mark.parametrize("place", ["/dev/zero", "pipe"])
def test_a_gate_that_never_ends_is_not_read(command, tmp_path, place):
    os.mkfifo(tmp_path / "pipe")
    ended = command("generate", "--model", "exact", "ab", "--gate", place)
    assert ended.code == 2
    assert "cannot be read" in ended.err
