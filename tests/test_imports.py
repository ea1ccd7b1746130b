"""Modules that a fresh Python loads, and the names in docs/architecture.md. `lint-imports` checks who imports whom."""

import re
from pathlib import Path

from tests.helpers.cases import each_case
from tests.helpers.fresh_python import fresh_python
from tests.helpers.paths import ROOT, SRC

PACKAGE = "unmask"

# These must load without torch; the package itself too, because `unmask --help` should be quick.
TORCH_FREE = ["base", "tasks", "stats", "api/options"]


def module_name(path: Path) -> str:
    """`unmask/axes/__init__.py` is `unmask.axes`, and `unmask/axes/score.py` is `unmask.axes.score`."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def load(*modules: str) -> set[str]:
    """Names of the modules that are loaded after a fresh Python imported the given ones."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    run = fresh_python(code)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_package_loads_no_torch():
    assert "torch" not in load(PACKAGE)


def test_loading_a_model_needs_no_tables_and_no_cluster():
    """It may name a cluster; hosts with little but torch have neither package."""
    assert not load(f"{PACKAGE}.api.load") & {"pyarrow", "ray", "typer"}


def test_loading_a_model_does_not_load_the_compiler():
    """It takes longer than all the rest of loading a small model."""
    run = fresh_python("import sys, unmask; unmask.load('mini', device='cpu'); print('torch._dynamo' in sys.modules)")
    assert run.stdout.split() == ["False"], run.stderr


@each_case("part", TORCH_FREE)
def test_light_part_loads_no_torch(part):
    home = SRC / PACKAGE / part
    modules = [module_name(path) for path in [home.with_suffix(".py"), *home.rglob("*.py")] if path.exists()]
    assert modules, f"{PACKAGE}.{part} does not exist: rename it in TORCH_FREE, too"
    assert "torch" not in load(*modules)


def test_the_page_on_architecture_names_packages_and_functions_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (SRC / PACKAGE).glob("*/__init__.py")}
    assert set(re.findall(r"^\|[^|`]*\| `(\w+)` \| [^`|]*", page, re.MULTILINE)) >= packages
    code = "".join(path.read_text(encoding="utf-8") for path in (SRC / PACKAGE).rglob("*.py"))
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for name in re.findall(r"`(?:\w+\.)?(\w+)` \(`[\w.]+`\)", "\n".join(rows)):
        assert f"def {name}(" in code, f"docs/architecture.md names {name}, which does not exist"
