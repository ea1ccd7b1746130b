"""The README: its commands and code run as printed, and its links lead somewhere."""

import re
import shlex
import subprocess
import sys

import pytest

from tests.helpers.cases import each_case
from tests.helpers.fresh_python import environment
from tests.helpers.paths import ROOT
from unmask.cli.app import main

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)
PYTHON = [text for kind, text in BLOCKS if kind == "python"]
(OWN_TASK,) = (text for kind, text in BLOCKS if "mine.jsonl" in text)
COMMANDS = [
    line
    for _, text in BLOCKS
    if text != OWN_TASK
    for line in re.findall(r"^unmask (.*?)(?:\s+#.*)?$", text, re.M)
    if "llada" not in line.split() and "weights" not in line and "paper" not in line
]
"""Commands that need no downloaded checkpoint and no GPU."""


def test_python_blocks_run(capsys):
    names: dict[str, object] = {"__name__": "readme"}
    for block in PYTHON:
        exec(compile(block, "README.md", "exec"), names)
    assert len(capsys.readouterr().out.strip()) == 7


@each_case("command", COMMANDS)
def test_commands_run(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The comparison at its full size is the slow test's.
    small = ["--prompts", "1", "--steps", "4"] if command.startswith("compare") else []
    assert main([*shlex.split(command), *small]) == 0
    assert capsys.readouterr().out


@pytest.mark.slow
def test_the_own_task_runs_as_pasted(tmp_path):
    command = tmp_path / "unmask"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m unmask "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    env = environment()
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    run = ["bash", "-ec", OWN_TASK]
    done = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # What the text below the block says of it.
    assert "calibrated on 5 validation prompts" in done.stdout
    assert "No opportunity found: the gate never opens" in done.stdout
    assert (tmp_path / "out" / "mine" / "compare.html").is_file()
    assert "</li></ul>" in done.stdout


def test_links_and_pictures_exist():
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README)]
    assert links
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []
    for words, path in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", README):
        assert len(words) > 40
        assert (ROOT / path).stat().st_size < 250_000


def test_the_first_screen_says_what_was_not_run():
    assert "published 8B weights were never run here" in "".join(README.splitlines(keepends=True)[:16])
    assert len(README.splitlines()) < 120


def test_make_demo_is_unmask_demo():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^demo:.*\n((?:\t.*\n)+)", makefile, re.M)
    assert recipe == "\t$(BIN)/unmask demo --out $(DEMO_OUT)\n"
