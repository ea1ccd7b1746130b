"""Which code a user's scoring function is: a hash of its file and of all local files that it imports.

Local is what neither Python, nor an installed package, nor this one brings. What is imported under a name that is put
together at run time is not seen.
"""

import ast
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any


def code_hash(function: Any) -> str:
    """Of the file that a function is written in and the local modules it imports; empty where there is no file.

    A run that goes on must not mix two rules of one name.
    """
    written = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    try:
        path = inspect.getsourcefile(written)
    except TypeError:
        return ""
    if not path or not Path(path).is_file():
        return ""
    digest = hashlib.sha256()
    for name, file in sorted(_local_files(str(getattr(written, "__module__", "")), Path(path)).items()):
        source = _source(file)
        digest.update(f"{name}\n{len(source)}\n".encode())
        digest.update(source)
    return digest.hexdigest()


def _local_files(module: str, path: Path) -> dict[str, Path]:
    """A module and, over and over, the local ones that are imported, by name."""
    files = {module: path}
    todo = [(module, path)]
    while todo:
        for name in _imported(*todo.pop()):
            found = None if name in files else _file_of(name)
            if found is not None:
                files[name] = found
                todo.append((name, found))
    return files


def _imported(module: str, path: Path) -> Iterator[str]:
    """Names of modules that a file may import, at any depth; parents first, since importing runs them."""
    try:
        tree = ast.parse(_source(path))
    except (SyntaxError, ValueError):
        return
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # What is imported from a package may be a module of it.
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1) if all(parts[:n]))


def _file_of(name: str) -> Path | None:
    """The source of a module, if it is local; nothing is imported to find it."""
    if name in sys.modules:
        origin = getattr(sys.modules[name], "__file__", None)
    else:
        spec = _spec(name)
        origin = None if spec is None else spec.origin
    if origin is None or not origin.endswith(".py"):
        return None
    path = Path(origin).resolve()
    return path if path.is_file() and not any(path.is_relative_to(home) for home in _homes()) else None


def _spec(name: str) -> ModuleSpec | None:
    parent = name.rpartition(".")[0]
    if not parent:
        return PathFinder.find_spec(name)
    above = _spec(parent)
    if above is None or above.submodule_search_locations is None:
        return None
    return PathFinder.find_spec(name, above.submodule_search_locations)


def _homes() -> tuple[Path, ...]:
    """Where nothing is local: Python's own library, installed packages, this one."""
    paths = sysconfig.get_paths()
    installed = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    site = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    return tuple(Path(path).resolve() for path in [*installed, *site, str(Path(__file__).parent.parent)])


def _source(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n")
