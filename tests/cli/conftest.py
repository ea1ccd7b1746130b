"""Commands, called here or started as programs, and a configuration that trains in a fraction of a second."""

import json
import signal
import subprocess
import sys

import pytest

from tests.helpers.fresh_python import environment
from tests.helpers.tiny_training import cache, config, data, tables
from unmask.cli.app import main

__all__ = ["cache", "config", "data", "tables"]


class Ended:
    """Exit code and output of one command."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        assert self.code == 0, self.err
        return json.loads(self.out)


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """Run a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return call


@pytest.fixture
def process():
    """The same in a process of its own; `code` replaces `-m unmask`."""

    def start(*arguments, code=None, **options):
        head = ["-m", "unmask"] if code is None else ["-c", code]
        return subprocess.Popen(
            [sys.executable, *head, *arguments],
            text=True,
            # A shell that starts tests in the background has them ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **{"env": environment(), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    return start
