"""A user's own code by its name: `package.module:Name`, or `path/to/file.py:Name`.

Naming code runs it: the module is imported, or the file executed, with the rights of whoever typed the name. Nothing
else is taken for code: a path must end in `.py`, and a module's name is made of identifiers.
"""

import ast
import hashlib
import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
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


def own_frame(error: BaseException, code: Any) -> traceback.FrameSummary | None:
    """Where in somebody's code an error was raised: the innermost of its frames that lies in the code's own files."""
    path = _source_file(code)
    local = _local_files(str(code.__module__), path) if path else {}
    files = {file.resolve() for file in local.values()}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() in files]
    return frames[-1] if frames else None


def place_of(error: BaseException, written: Any) -> str:
    """Where somebody's own code raised, as `mine.py, line 12`, or else the file that `written` is in.

    Empty for what came with this package.
    """
    if is_ours(written):
        return ""
    frame = own_frame(error, written)
    if frame is not None:
        return storable(f"{Path(frame.filename).name}, line {frame.lineno}")
    path = _source_file(written)
    return storable(f"{written.__qualname__} of {path.name}") if path else str(written.__qualname__)


def _source_file(code: Any) -> Path | None:
    """Where a function or a class is written; None where there is no such file, as in a shell or a notebook."""
    try:
        path = inspect.getsourcefile(code)
    except (TypeError, OSError):
        return None
    return Path(path) if path and Path(path).is_file() else None


def code_hash(function: Any) -> str:
    """Of the file that a function or a class is written in and the local modules it imports, however deep.

    Local is what neither Python, nor an installed package, nor this one brings; what is imported under a name that is
    put together at run time is not seen. Empty where there is no file, as in a shell.
    """
    written = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    path = _source_file(written)
    if path is None:
        return ""
    digest = hashlib.sha256()
    for name, file in sorted(_local_files(str(getattr(written, "__module__", "")), path).items()):
        source = _source(file)
        digest.update(f"{name}\n{len(source)}\n".encode())
        digest.update(source)
    return digest.hexdigest()[:16]


def local_modules(loaded: Iterable[str]) -> dict[str, Path]:
    """Of some loaded modules those that are local, and the local ones that they import, however deep; by name."""
    files: dict[str, Path] = {}
    for name in loaded:
        path = _file_of(name)
        if path is not None:
            files |= {inner or name: file for inner, file in _local_files(name, path).items()}
    return files


def _local_files(module: str, path: Path) -> dict[str, Path]:
    """A module and, over and over, the local ones that are imported, by name."""
    # Not under its name: a file that was run by its path is called after its content.
    files = {"": path}
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
    return tuple(Path(path).resolve() for path in [*installed, *site, str(Path(__file__).parent)])


def _source(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n")


def is_ours(written: Any) -> bool:
    """Whether a class or function came with this package."""
    return str(written.__module__).partition(".")[0] == __name__.partition(".")[0]
