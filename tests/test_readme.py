"""What the README shows runs as printed."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from tests.helpers.fresh_python import environment
from tests.helpers.paths import ROOT
from unmask.cli.app import main

README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)
OWN = re.findall(r"^## Your own task\n.*?```sh\n(.*?)```", README, re.S | re.M)
"""Lines that need each other, and a folder to themselves."""
COMMANDS = re.findall(r"^\.venv/bin/unmask (.*?)(?:\s+#.*)?$", README.replace("".join(OWN), ""), re.M)


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


def test_the_own_task_runs_as_pasted(tmp_path):
    (block,) = OWN
    command = tmp_path / ".venv" / "bin" / "unmask"
    command.parent.mkdir(parents=True)
    code = "import sys; from unmask.cli.app import main; sys.exit(main())"
    command.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-c", code])} "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    # One thread: on a machine that does other things, two wait for each other.
    env = environment()
    done = subprocess.run(["bash", "-ec", block], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # What the text below the block says of it.
    assert "calibrated on 5 validation prompts" in done.stdout
    assert "No opportunity found: the gate never opens" in done.stdout
    assert "Decoded end to end, the same prompts score" in done.stdout
    assert "</li></ul>" in done.stdout
    assert len((tmp_path / "mine.jsonl").read_text(encoding="utf-8").splitlines()) == 10


def test_the_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert all((ROOT / link).exists() for link in links if not link.startswith("http"))


def test_the_pictures_are_small_and_say_what_they_show():
    pictures = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", README)
    assert "docs/images/demo.png" in dict(map(reversed, pictures))
    for words, path in pictures:
        assert len(words) > 40
        assert (ROOT / path).stat().st_size < 250_000


def test_make_demo_is_unmask_demo():
    """One command: what the README shows in `make` is what the program does by itself."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^demo:.*\n((?:\t.*\n)+)", makefile, re.M)
    assert recipe == "\t$(BIN)/unmask demo --out $(DEMO_OUT)\n"
    assert re.search(r"^DEMO_OUT \?= out/demo$", makefile, re.M)


def test_the_commands_of_the_first_minute_are_shown():
    assert "make demo" in README
    assert "make test" in README
    assert len(COMMANDS) >= 5
