"""The program: its help, what it refuses, and how it ends."""

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import typer

import unmask.api.load
from tests.helpers import made_studies, tiny_demo
from tests.helpers.cases import each_case
from tests.helpers.fresh_python import fresh_python
from tests.helpers.paths import ROOT
from unmask.cli.app import COMMANDS, app, main


@contextmanager
def closed_pipe():
    """Where to write to when nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


def commands(command=None, words=()):
    """Every command with its words, groups included."""
    command = typer.main.get_command(app) if command is None else command
    yield words, command
    for name in getattr(command, "commands", ()):
        yield from commands(command.commands[name], (*words, name))


def examples():
    """Lines of all help texts that begin with `unmask`, without what is said of them."""
    for _, command in commands():
        for line in (command.help or "").splitlines():
            if line.strip().startswith("unmask "):
                yield clean(line)


def documented():
    """Lines of README and documents that begin with `unmask`; those with an ellipsis show a form only."""
    for page in [ROOT / "README.md", ROOT / "results" / "README.md", *(ROOT / "docs").glob("*.md")]:
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("unmask ") and "..." not in line.replace("<answer>...", ""):
                yield clean(line)


def clean(line):
    """A command without remarks, redirections and what follows it."""
    return re.split(r"\s{3,}|\s#|\s>\s|\s&&\s", line.strip())[0]


NEED_FILES = ("gate.json", "mine.", ".txt", ".npz", "out", "dream ", "llada", "head=", "--json", "data", "answers")


class TestHelp:
    def test_one_screen_names_every_command(self, command):
        shown = command("--help").out
        assert len(shown.splitlines()) <= 40
        assert all(f"\n  {name} " in shown for name in COMMANDS)

    @each_case("line", sorted({*examples(), *documented()}))
    def test_examples_and_documented_commands_parse(self, line):
        words = shlex.split(line)[1:]
        found = {path: command for path, command in commands() if path}
        path = max((path for path in found if words[: len(path)] == list(path)), key=len)
        found[path].make_context(path[-1], words[len(path) :])

    @each_case("line", sorted(set(examples())))
    def test_examples_run(self, line, command):
        """Those of the quick commands, unless they need a file or another model."""
        quick = re.match(r"unmask (generate|infill|likelihood|tasks|methods)", line)
        if quick and not any(word in line for word in NEED_FILES):
            words = [word for word in shlex.split(line)[1:] if word != "--watch"]
            assert command(*words).code == 0

    def test_nothing_asked_is_help(self, command):
        assert command().out == command("--help").out

    def test_version(self, command):
        assert command("--version").out == f"unmask {unmask.__version__}\n"

    def test_help_and_tasks_do_not_wait_for_torch(self, process):
        lines = ["generate --help", "models --help", "methods --help", "methods show selective", "tasks --json"]
        lines += ["tasks show html-close-tags -n 1"]
        code = f"import sys; from unmask.cli import main; bad = [c for c in {lines} if main(c.split())]; "
        code += "sys.exit(bad or 'torch' in sys.modules)"
        assert process(code=code).wait() == 0


class TestEnds:
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


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["methods", "show", "nonsense"], 2)])
def test_the_program_clears_up_and_ends_with_its_code(arguments, code):
    start = "import atexit; atexit.register(print, 'bye'); "
    ended = fresh_python(start + "from unmask.cli import start; start()", *arguments)
    assert ended.returncode == code
    assert ended.stdout.endswith("bye\n")
