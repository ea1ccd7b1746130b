"""Pages on studies, their files and clusters: examples are valid, and functions exist."""

import importlib
import re
import tomllib

import pytest

from tests.helpers.paths import DOCS
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
