"""What the README shows runs as printed."""

import json
import re
import shlex
from pathlib import Path

import pytest

from unmask.cli import main

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)
COMMANDS = re.findall(r"^\.venv/bin/unmask (.*?)(?:\s+#.*)?$", README, re.M)


def test_the_python_blocks_run_in_order(capsys):
    names: dict[str, object] = {}
    for block in PYTHON:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert len(PYTHON) == 2
    text, forwards = printed[0].split()
    assert (len(text), forwards) == (7, "4")
    assert len(printed) == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(command, capsys):
    assert main(shlex.split(command)) == 0
    out = capsys.readouterr().out
    assert out
    if "--json" in command:
        assert json.loads(out)["config"]["policy"]["name"] == "llada"


def test_the_links_lead_somewhere():
    root = Path(__file__).resolve().parents[1]
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert all((root / link).exists() for link in links if not link.startswith("http"))


def test_the_commands_of_the_first_minute_are_shown():
    assert "make demo" in README
    assert "make test" in README
    assert len(COMMANDS) >= 5
