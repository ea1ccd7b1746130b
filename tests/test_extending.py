"""The Python blocks and commands of docs/extending.md and docs/methods.md run as printed."""

import re
import shlex

import pytest

from tests.helpers.paths import DOCS
from unmask.cli.app import main
from unmask.models.checkpoints import FAMILIES

EXTENDING = (DOCS / "extending.md").read_text(encoding="utf-8")
METHODS = (DOCS / "methods.md").read_text(encoding="utf-8")


def blocks(page, language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.S | re.M)
    return [text for name, text in found if name == language]


def commands(page):
    return re.findall(r"^unmask (.*)$", "".join(blocks(page, "")), re.M)


@pytest.fixture
def families():
    known = dict(FAMILIES)
    yield
    FAMILIES.clear()
    FAMILIES.update(known)


def test_the_examples_of_extending_run(families, capsys):
    names: dict[str, object] = {"__name__": "extending"}
    for block in blocks(EXTENDING, "python"):
        exec(compile(block, "extending.md", "exec"), names)
    method, search, task, diagnostic, family = capsys.readouterr().out.split()
    assert 1 <= int(method) <= 7
    assert len(search) == 7
    assert float(task) == 1.0
    assert 1 <= int(diagnostic) <= 7
    assert family == "my-llada"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=pytest.mark.slow if command.startswith("compare") else ())
        for command in commands(EXTENDING)
    ],
)
def test_the_commands_of_extending_run_on_a_file_with_its_classes(command, tmp_path, monkeypatch):
    method, search, *_ = blocks(EXTENDING, "python")
    classes = (block.partition("\n\n\ncheck_")[0] for block in (method, search.partition("\n\n\ncheck_")[0]))
    (tmp_path / "mine.py").write_text("\n".join(classes), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) == 0


@pytest.mark.parametrize("command", commands(METHODS))
def test_the_commands_of_the_methods_page_run(command, capsys):
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out


def test_the_examples_of_the_methods_page_run(capsys):
    for block in blocks(METHODS, "python"):
        exec(compile(block, "methods.md", "exec"), {})
    assert len(capsys.readouterr().out.strip()) == 6


def test_each_kind_of_extension_has_a_section_with_an_example():
    sections = {part.splitlines()[0]: "```python" in part for part in EXTENDING.split("\n## ")[1:]}
    wanted = ["A method", "A search", "A task", "A diagnostic", "A model family"]
    assert all(sections[name] for name in wanted)
