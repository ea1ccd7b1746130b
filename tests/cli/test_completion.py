"""What the Tab key completes, in a real shell's protocol."""

import os
import subprocess
import sys

import pytest

from tests.helpers.fresh_python import environment
from unmask.api.load import MODELS
from unmask.cli import options
from unmask.methods import METHODS


def test_the_names_are_those_of_the_tables():
    assert set(options.MODEL_NAMES) == set(MODELS)
    assert set(options.METHOD_NAMES) == set(METHODS)


def completed(*words):
    """What bash is told for a command line whose last word is being typed."""
    asked = {"_UNMASK_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    code = "from unmask.cli import start; start()"
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment() | asked, capture_output=True, text=True, check=False
    )
    assert told.stderr == ""
    return told.stdout.split()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("unmask", "generate", "--model", "mi"), ["mini", "mini-dream"]),
        (("unmask", "generate", "--policy", "fast"), ["fast-dllm", "fast-dllm-dream"]),
        (("unmask", "compare", "--task", "carry"), ["carry-rtl"]),
        (("unmask", "methods", "show", "kl"), ["klass"]),
        (("unmask", "doc"), ["doctor"]),
    ],
)
def test_names_are_completed(words, names):
    assert completed(*words)[: len(names)] == names


def test_it_can_be_installed(tmp_path):
    """Into the files of the user's shell, here those of an empty home."""
    home = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "SHELL": "/bin/bash"}
    code = "from unmask.cli import start; start()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--install-completion", "bash"],
        env=environment() | home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file() and "_UNMASK_COMPLETE" in path.read_text()]
    assert len(written) == 1
    assert os.fspath(written[0]) in (tmp_path / ".bashrc").read_text()
