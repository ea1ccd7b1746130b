"""A user's own code by its name: `package.module:Name`, or `path/to/file.py:Name`.

Naming code runs it: the module is imported, or the file executed, with the rights of whoever typed the name. Nothing
else is taken for code: a path must end in `.py`, and a module's name is made of identifiers.
"""

import ast
import hashlib
import importlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from unmask.errors import ConfigError, UnknownName
from unmask.plain_files import open_file, shown_path, why_not
from unmask.text import storable

FORMS = "package.module:Name, or a file path.py:Name"


def names_code(name: str) -> bool:
    """Whether a text has the form of a name of code; nothing is run to find out."""
    place, colon, attribute = name.rpartition(":")
    dotted = [*([] if place.endswith(".py") else place.split(".")), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() for part in dotted)


def find_code(name: str, folder: Path | None = None) -> Any:
    """What a name stands for. The current folder is importable, as under `python -m`, and so is a file's own.

    Files are looked for in `folder`, if one is given.
    """
    if not names_code(name):
        raise ConfigError(f"{shown_path(name)} names no code; allowed: {FORMS}; check the spelling")
    place, _, attribute = name.rpartition(":")
    module = _run_file((folder or Path()) / place, name) if place.endswith(".py") else _import_module(place, name)
    value: Any = module
    for part in attribute.split("."):
        if part not in dir(value):
            raise UnknownName(f"name in {place}", attribute, [n for n in dir(value) if not n.startswith("_")])
        value = getattr(value, part)
    return value


def code_hash(written: Any) -> str:
    """Of the file that a class or function is written in and of the local modules it imports, however deep.

    Installed packages are left out: their versions stand elsewhere. Empty where there is no file, as in a shell.
    """
    module = sys.modules.get(written.__module__)
    start = getattr(module, "__file__", None)
    if start is None or not Path(start).is_file():
        return ""
    files: dict[str, str] = {}
    waiting = [(start, getattr(module, "__package__", None) or "")]
    while waiting:
        file, package = waiting.pop()
        source = Path(file).read_bytes()
        if file not in files:
            files[file] = hashlib.sha256(source).hexdigest()
            waiting += [place for name in _imported(source, package) for place in _local_files(name)]
    parts = sorted(f"{Path(file).name} {digest}" for file, digest in files.items())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _run_file(path: Path, name: str) -> ModuleType:
    """The module of a file, run once for its bytes; what Python has cached of another state of it is not read."""
    shown = shown_path(name)
    try:
        with open_file(path) as file:
            source = file.read()
    except OSError as error:
        raise ConfigError(
            f"the file of {shown} cannot be read ({why_not(error)}); allowed: {FORMS}; check the path"
        ) from error
    place = path.resolve()
    known_as = f"{path.stem}-{hashlib.sha256(os.fsencode(place) + source).hexdigest()[:16]}"
    if known_as in sys.modules:
        return sys.modules[known_as]
    module = ModuleType(known_as)
    module.__file__ = str(place)
    module.__package__ = ""
    _make_importable(str(place.parent))
    sys.modules[known_as] = module
    try:
        exec(compile(source, str(place), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[known_as]
        raise ConfigError(f"the file of {shown} cannot be run ({described(error)}); correct it") from error
    return module


def _import_module(place: str, name: str) -> ModuleType:
    _make_importable(os.getcwd())
    importlib.invalidate_caches()
    first, dot, _ = place.partition(".")
    outermost = PathFinder.find_spec(first) if dot and first not in sys.modules else None
    if outermost is not None and outermost.submodule_search_locations is None:
        # The import would run it before it found nothing inside: `setup.cfg` is no reason to run setup.py.
        raise ConfigError(f"{first!r} of {name!r} is a module, not a package; allowed: {FORMS}; check the spelling")
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}.")
        why = "is not found" if missing else f"cannot be imported ({described(error)})"
        raise ConfigError(
            f"module {place!r} of {name!r} {why}; allowed: an installed one, or one in the current folder; check it"
        ) from error


def _make_importable(folder: str) -> None:
    if folder not in sys.path and not (folder == os.getcwd() and "" in sys.path):
        sys.path.insert(0, folder)


def described(error: BaseException) -> str:
    """What somebody's code raised, on one line."""
    return f"{type(error).__name__}: {said(error)}"


def said(error: BaseException) -> str:
    """What an exception says, on one line; not even its text is sure to be there."""
    try:
        return storable(" ".join(str(error).split()))
    except Exception:
        return "(no message)"


def _imported(source: bytes, package: str) -> Iterator[str]:
    """Dotted names that a source imports, at any depth of it; a name that is no module is found to be none later."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join(filter(None, [*above, node.module]))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _local_files(name: str) -> Iterator[tuple[str, str]]:
    """Files of a module and of the packages it is in, each with its package, where they are no installed ones."""
    parts = name.split(".")
    for at in range(1, len(parts) + 1):
        full = ".".join(parts[:at])
        if full in sys.modules:
            file, package = getattr(sys.modules[full], "__file__", None), sys.modules[full].__package__
        else:
            # Not loaded yet: an import inside a function.
            spec = PathFinder.find_spec(full) if at == 1 else None
            file, package = (spec.origin, spec.parent) if spec else (None, "")
        if file and file.endswith(".py") and Path(file).is_file() and not _is_installed(file):
            yield file, package or ""


def _is_installed(file: str) -> bool:
    here = str(Path(__file__).resolve().parent)
    homes = [here, *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib"))]
    return any(Path(file).resolve().is_relative_to(home) for home in homes) or "site-packages" in Path(file).parts


def is_ours(written: Any) -> bool:
    """Whether a class or function came with this package."""
    return str(written.__module__).partition(".")[0] == __name__.partition(".")[0]
