"""Pages on studies, their files and clusters: examples are valid, and commands and functions exist."""

import importlib
import re
import shlex
import tomllib

import pytest
import typer

from tests.helpers.paths import DOCS
from unmask.cli.app import app
from unmask.lab.study.config import StudyFile

PAGES = ("study.md", "formats.md", "cluster.md")
MODULES = (
    "study.config",
    "study.prompts",
    "study.jobs",
    "study.validation",
    "study.arms",
    "study.protocol",
    "analysis",
)


def blocks(page, language=""):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def test_the_study_file_is_valid():
    (example,) = blocks("study.md", "toml")
    study = StudyFile(**tomllib.loads(example))
    assert study.own["mine"].horizon == 32
    assert study.splits.evaluation.split == "fresh"


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_compile(page):
    for block in blocks(page, "python"):
        compile(block, page, "exec")


@pytest.mark.parametrize("page", ["study.md", "cluster.md"])
def test_commands_and_their_options_exist(page):
    lines = [line for block in blocks(page) for line in block.splitlines() if line.startswith("unmask ")]
    assert lines
    for line in lines:
        words = shlex.split(re.split(r"  +", line)[0])[1:]
        command = typer.main.get_command(app)
        while words and hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_functions_of_the_flow_exist():
    text = (DOCS / "study.md").read_text(encoding="utf-8")
    flow = text[text.index("## The flow") : text.index("## The file")]
    names = {
        name for row in re.findall(r"^\| \w[\w ]* \| (.*?) \|", flow, re.M) for name in re.findall(r"`(\w+)`", row)
    }
    modules = [
        importlib.import_module(f"unmask.lab.{name}") for name in (*MODULES, "branching.graph", "branching.states")
    ]
    assert len(names) >= 9
    assert [name for name in sorted(names) if not any(hasattr(module, name) for module in modules)] == []
