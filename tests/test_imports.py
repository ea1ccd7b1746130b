"""The package's parts import each other in one direction, and its light parts load no torch."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.fresh_python import fresh_python
from tests.helpers.paths import SRC

PACKAGE = "unmask"

# Each part may import the parts above it. A new file or folder directly under src/unmask gets its line here.
ORDER = [
    "errors",
    "text",
    "by_name",
    "displayed",
    "threads",
    "strict_json",
    "plain_files",
    "atomic",
    "own_code",
    "options",
    "versions",
    "stats",
    "core",
    "axes",
    "mechanisms",
    "transition",
    "search",
    "runner",
    "past",
    "recorded",
    "decode",
    "denoisers",
    "checkpoints",
    "policies",
    "diagnostics",
    "adapt",
    "decode_options",
    "tasks",
    "request",
    "resolve",
    "oracle",
    "likelihood",
    "lab",
    "train",
    "look",
    "report",
    "api",
    "remote",
    "catalog",
    "codecs",
    "notebook",
    "view",
    "cli",
    "__main__",
]
# These promise more than their place in the order asks for: here is all they may import of ours.
ONLY = {"tasks": ["errors", "text", "strict_json", "plain_files", "atomic", "own_code"], "stats": []}
# These must load without torch; the package itself too, because `unmask --help` should be quick.
TORCH_FREE = [
    "errors",
    "text",
    "by_name",
    "displayed",
    "threads",
    "strict_json",
    "plain_files",
    "own_code",
    "tasks",
    "stats",
    "decode_options",
]


def module_name(path: Path) -> str:
    """`unmask/axes/__init__.py` is `unmask.axes`, and `unmask/axes/score.py` is `unmask.axes.score`."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything the source imports, at any depth: a lazy import is an import."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                up = node.level - 1 if is_package else node.level
                base = ".".join([*parents[: len(parents) - up], *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def complaints(source: str, module: str, is_package: bool = False) -> list[str]:
    """What is wrong with the imports of one module; empty if nothing is."""
    part = module.split(".")[1]
    if part not in ORDER:
        return [
            f"{module}: '{part}' is a new part of the package; add it to ORDER in tests/test_imports.py, "
            "below everything it imports and above everything that imports it"
        ]
    allowed = ONLY.get(part, ORDER[: ORDER.index(part)])
    found = []
    for line, name in imported(source, module, is_package):
        root, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if root != PACKAGE or target in (part, "__version__"):
            continue
        if target not in ORDER:
            found.append(
                f"{module}:{line} imports '{name}' through the package itself, which hides its origin; "
                "import it from the module that defines it (a new part goes into ORDER in this test)"
            )
        elif target not in allowed:
            may = ", ".join(allowed) or "nothing of ours"
            found.append(f"{module}:{line} imports '{name}', but '{part}' may import only: {may}")
    return found


def modules() -> dict[str, Path]:
    return {module_name(path): path for path in sorted((SRC / PACKAGE).rglob("*.py"))}


def graph(sources: dict[str, tuple[str, bool]]) -> dict[str, set[str]]:
    """Which module imports which, lazy imports included; a name of a package counts as the package."""
    edges: dict[str, set[str]] = {}
    for module, (source, is_package) in sources.items():
        names = {name for _, name in imported(source, module, is_package)}
        targets = {name if name in sources else name.rpartition(".")[0] for name in names}
        edges[module] = {target for target in targets if target in sources} - {module}
    return edges


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle; empty if there are none."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for target in sorted(edges[module]):
            if circle := walk(target, [*path, module]):
                return circle
        done.add(module)
        return []

    return next((circle for module in sorted(edges) if (circle := walk(module, []))), [])


def load(*modules: str) -> set[str]:
    """Names of the modules that are loaded after a fresh Python imported the given ones."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    run = fresh_python(code)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_order_of_imports():
    paths = sorted((SRC / PACKAGE).rglob("*.py"))
    assert paths, f"no modules found under {SRC / PACKAGE}"
    found = []
    for path in paths:
        if path != SRC / PACKAGE / "__init__.py":
            found += complaints(path.read_text(encoding="utf-8"), module_name(path), path.name == "__init__.py")
    assert not found, "\n" + "\n".join(found)


def test_no_module_imports_itself_in_a_circle():
    sources = {
        name: (path.read_text(encoding="utf-8"), path.name == "__init__.py")
        for name, path in modules().items()
        if name != PACKAGE
    }
    assert not cycle(graph(sources))


def test_what_runs_a_study_never_imports_its_analysis():
    for name, path in modules().items():
        if name.startswith(("unmask.lab.store", "unmask.lab.branch", "unmask.lab.run", "unmask.lab.choose")):
            names = [n for _, n in imported(path.read_text(encoding="utf-8"), name, path.name == "__init__.py")]
            assert not [n for n in names if n.startswith("unmask.lab.analysis")], name


def test_no_import_of_ours_waits_inside_a_function():
    """Commands are there without torch and optional packages may be missing; anything else would hide a circle."""
    late = {
        f"{name}:{node.lineno}"
        for name, path in modules().items()
        if not name.startswith("unmask.cli")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").partition(".")[0] == PACKAGE)
    }
    assert not late


def test_a_circle_is_seen():
    sources = {
        "unmask.a": ("from unmask.b import x", False),
        "unmask.b": ("def f():\n    from unmask import c", False),
        "unmask.c": ("from unmask.a import y", False),
    }
    assert cycle(graph(sources)) == ["unmask.a", "unmask.b", "unmask.c", "unmask.a"]
    assert not cycle(graph({**sources, "unmask.c": ("import os", False)}))


def test_package_loads_no_torch():
    assert "torch" not in load(PACKAGE)


def test_loading_a_model_needs_no_tables_and_no_cluster():
    """It may name a cluster; hosts with little but torch have neither package."""
    assert not load(f"{PACKAGE}.catalog") & {"pyarrow", "ray", "typer"}


@pytest.mark.parametrize("part", TORCH_FREE)
def test_light_part_loads_no_torch(part):
    home = SRC / PACKAGE
    modules = [module_name(path) for path in [home / f"{part}.py", *(home / part).rglob("*.py")] if path.exists()]
    if not modules:
        pytest.skip(f"{PACKAGE}.{part} is not written yet")
    assert "torch" not in load(*modules)


@pytest.mark.parametrize(
    ("source", "module", "is_package"),
    [
        ("from unmask.lab import study", "unmask.decode", False),
        ("import unmask.lab.study as s", "unmask.decode", False),
        ("from unmask import lab", "unmask.decode", False),
        ("from .lab import study", "unmask.decode", False),
        ("from ..lab import study", "unmask.policies.fixed", False),
        ("from .. import lab", "unmask.policies", True),
        ("def f():\n    from ..lab import study", "unmask.policies.fixed", False),
        ("class C:\n    def f(self):\n        import unmask.cli.app", "unmask.policies.fixed", False),
        ("if TYPE_CHECKING:\n    from unmask.decode import decode", "unmask.transition", False),
        ("importlib.import_module('unmask.lab')", "unmask.core.state", False),
        ("from unmask.core import State", "unmask.tasks.gsm8k", False),
        ("from unmask.errors import UnmaskError", "unmask.stats.bootstrap", False),
        ("import unmask", "unmask.cli.app", False),
        ("from unmask import load", "unmask.cli.app", False),
        ("from unmask.surprise import x", "unmask.cli.app", False),
    ],
)
def test_checker_sees_wrong_import(source, module, is_package):
    assert len(complaints(source, module, is_package)) == 1


@pytest.mark.parametrize(
    ("source", "module", "is_package"),
    [
        ("from unmask.core import State\nfrom unmask.axes import score", "unmask.transition", False),
        ("from . import score\nimport unmask.axes.score", "unmask.axes.region", False),
        ("from .score import pure\nfrom ..core import State", "unmask.axes", True),
        ("from ..errors import SchemaError", "unmask.tasks.gsm8k", False),
        ("from . import bootstrap\nimport numpy as np", "unmask.stats.ranking", False),
        ("from unmask import __version__\nfrom unmask.api import load", "unmask.cli.app", False),
        ("import unmaskable.lab\nimport torch", "unmask.core.rng", False),
    ],
)
def test_checker_accepts_right_import(source, module, is_package):
    assert complaints(source, module, is_package) == []


def test_checker_names_the_place_for_a_new_part():
    (complaint,) = complaints("", "unmask.extras.thing")
    assert "'extras'" in complaint
    assert "ORDER in tests/test_imports.py" in complaint
