"""User code by name, `package.module:Name` or `path/to/file.py:Name`: load it, hash it, and locate its errors.

Loading runs the code: a module is imported, a file is executed, with the rights of the user. Nothing else is taken for
code: a path must end in `.py`, and the name of a module must consist of identifiers.
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
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from unmask.base.errors import ConfigError, UnknownName
from unmask.base.files import format_path, open_file, os_error_text, replace_surrogates

CODE_FORMS = "package.module:Name, or a file path.py:Name"


def is_code_name(name: str) -> bool:
    """Whether a text could name user code, such as "path.py:Name" or "package.module:Name". Nothing is run."""
    place, colon, attribute = name.rpartition(":")
    dotted = [*([] if place.endswith(".py") else place.split(".")), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() for part in dotted)


def load_user_code(name: str, folder: Path | None = None) -> Any:
    """Load the class or function that a name such as "path.py:Name" or "package.module:Name" stands for.

    A relative path starts in `folder`. Modules in the current folder can be imported, as with `python -m`, and so can
    modules beside a file.
    """
    if not is_code_name(name):
        raise ConfigError(f"{format_path(name)} names no code; allowed: {CODE_FORMS}; check the spelling")
    place, _, attribute = name.rpartition(":")
    value: Any
    if place.endswith(".py"):
        value = _run_file((folder or Path()) / place, name)
    else:
        value = _import_module(place, name)
    for part in attribute.split("."):
        if part not in dir(value):
            raise UnknownName(f"name in {place}", attribute, [n for n in dir(value) if not n.startswith("_")])
        value = getattr(value, part)
    return value


def _run_file(path: Path, name: str) -> ModuleType:
    """Run a file, once for each content that it has had. Python's own cache goes by name and would miss a change."""
    try:
        with open_file(path) as file:
            source = file.read()
    except OSError as error:
        raise ConfigError(
            f"the file of {format_path(name)} cannot be read ({os_error_text(error)}); allowed: {CODE_FORMS}; check "
            "the path"
        ) from error
    place = path.resolve()
    module_name = f"{path.stem}-{hashlib.sha256(os.fsencode(place) + source).hexdigest()[:16]}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    module = ModuleType(module_name)
    module.__file__ = str(place)
    module.__package__ = ""
    _add_to_import_path(str(place.parent))
    sys.modules[module_name] = module
    try:
        exec(compile(source, str(place), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise ConfigError(
            f"the file of {format_path(name)} cannot be run ({describe_error(error)}); correct it"
        ) from error
    return module


def _import_module(place: str, name: str) -> ModuleType:
    _add_to_import_path(os.getcwd())
    importlib.invalidate_caches()
    first, dot, _ = place.partition(".")
    outermost = PathFinder.find_spec(first) if dot and first not in sys.modules else None
    if outermost is not None and outermost.submodule_search_locations is None:
        # The import would run the module before it fails: `setup.cfg:x` would run setup.py.
        raise ConfigError(
            f"{first!r} of {name!r} is a module, not a package; allowed: {CODE_FORMS}; check the spelling"
        )
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}.")
        why = "is not found" if missing else f"cannot be imported ({describe_error(error)})"
        raise ConfigError(
            f"module {place!r} of {name!r} {why}; allowed: an installed one, or one in the current folder; check it"
        ) from error


def _add_to_import_path(folder: str) -> None:
    """Let Python import modules of a folder, without a second entry for the current folder."""
    if folder not in sys.path and not (folder == os.getcwd() and "" in sys.path):
        sys.path.insert(0, folder)


# Errors of a user's code


def describe_error(error: BaseException) -> str:
    """Return type and message of an exception on one line."""
    return f"{type(error).__name__}: {error_message(error)}"


def error_message(error: BaseException) -> str:
    """Return the message of an exception on one line, even if the exception's `__str__` raises."""
    try:
        return replace_surrogates(" ".join(str(error).split()))
    except Exception:
        return "(no message)"


def error_location(error: BaseException, code: Any) -> str:
    """Return where user code raised, e.g. "mine.py, line 12", or its file if no line is known; "" for shipped code."""
    if is_shipped_code(code):
        return ""
    frame = innermost_frame(error, code)
    if frame is not None:
        return replace_surrogates(f"{Path(frame.filename).name}, line {frame.lineno}")
    path = _find_source_file(code)
    return replace_surrogates(f"{code.__qualname__} of {path.name}") if path else str(code.__qualname__)


def innermost_frame(error: BaseException, code: Any) -> traceback.FrameSummary | None:
    """Return the innermost frame of an error that is in the file of the code or in a local module that it imports."""
    path = _find_source_file(code)
    local = _import_closure(str(code.__module__), path) if path else {}
    files = {file.resolve() for file in local.values()}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() in files]
    return frames[-1] if frames else None


def is_shipped_code(code: Any) -> bool:
    """Whether a class or function is part of this package."""
    return str(code.__module__).partition(".")[0] == "unmask"


# Hashes. A local module is one that belongs neither to Python, nor to an installed package, nor to this package.


def code_hash(code: Any) -> str:
    """Hash the file of a function, class or object, with all local modules that it imports directly or indirectly.

    Imports of names that are computed at run time are not found. Returns "" for code without a file, as in a shell.
    """
    written = code if inspect.isroutine(code) or inspect.isclass(code) else type(code)
    path = _find_source_file(written)
    if path is None:
        return ""
    digest = hashlib.sha256()
    for name, file in sorted(_import_closure(str(getattr(written, "__module__", "")), path).items()):
        source = _read_source(file)
        digest.update(f"{name}\n{len(source)}\n".encode())
        digest.update(source)
    return digest.hexdigest()[:16]


def local_modules(loaded: Iterable[str]) -> dict[str, Path]:
    """Return module name -> file, for the local modules among `loaded` and all local modules that they import."""
    files: dict[str, Path] = {}
    for name in loaded:
        path = _find_local_source(name)
        if path is not None:
            files |= {inner or name: file for inner, file in _import_closure(name, path).items()}
    return files


def _find_source_file(code: Any) -> Path | None:
    """Return the file of a function or class; None if it has none, as in a shell or a notebook."""
    try:
        path = inspect.getsourcefile(code)
    except (TypeError, OSError):
        return None
    return Path(path) if path and Path(path).is_file() else None


def _import_closure(module: str, path: Path) -> dict[str, Path]:
    """Return module name -> file for all local modules that a module needs, and "" -> its own file."""
    # Not under the module's own name, which for a file that was run contains a hash of its path.
    files = {"": path}
    queue = [(module, path)]
    while queue:
        for name in _imported_names(*queue.pop()):
            file = None if name in files else _find_local_source(name)
            if file is not None:
                files[name] = file
                queue.append((name, file))
    return files


def _imported_names(module: str, path: Path) -> Iterator[str]:
    """Yield the modules that a file may import anywhere in its code, and their parent packages."""
    try:
        tree = ast.parse(_read_source(path))
    except (SyntaxError, ValueError):
        return
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # A name that is imported from a package may be a module.
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1) if all(parts[:n]))


def _find_local_source(name: str) -> Path | None:
    """Return the source file of a module if it is local. Nothing is imported."""
    if name in sys.modules:
        origin = getattr(sys.modules[name], "__file__", None)
    else:
        spec, above = None, ""
        for part in name.split("."):
            above = f"{above}.{part}".lstrip(".")
            if spec is not None and spec.submodule_search_locations is None:
                return None
            spec = PathFinder.find_spec(above, None if spec is None else spec.submodule_search_locations)
            if spec is None:
                return None
        origin = None if spec is None else spec.origin
    if origin is None or not origin.endswith(".py"):
        return None
    path = Path(origin).resolve()
    paths = sysconfig.get_paths()
    homes = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    homes += [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    homes.append(str(Path(__file__).parents[1]))
    return path if path.is_file() and not any(path.is_relative_to(Path(home).resolve()) for home in homes) else None


def _read_source(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n")
