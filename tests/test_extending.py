"""docs/extending.md runs from top to bottom."""

import re

import pytest

from tests.helpers.paths import DOCS
from unmask.models.checkpoints import FAMILIES

PAGE = (DOCS / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.fixture
def families():
    known = dict(FAMILIES)
    yield
    FAMILIES.clear()
    FAMILIES.update(known)


def test_the_examples_run(families, capsys):
    names: dict[str, object] = {"__name__": "extending"}
    for block in BLOCKS:
        exec(compile(block, "extending.md", "exec"), names)
    method, search, task, diagnostic, family = capsys.readouterr().out.split()
    assert 1 <= int(method) <= 7
    assert len(search) == 7
    assert float(task) == 1.0
    assert 1 <= int(diagnostic) <= 7
    assert int(family) == 64


def test_each_kind_of_extension_has_a_section_with_an_example():
    sections = {part.splitlines()[0]: "```python" in part for part in PAGE.split("\n## ")[1:]}
    wanted = ["A method", "A search", "A task", "A diagnostic", "A model family"]
    assert all(sections[name] for name in wanted)
