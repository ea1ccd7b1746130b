"""Code of the user's by its name: `package.module:function`, or `path.py:function`.

Naming code runs it, with the rights of whoever named it. Nothing else is taken for code: a data file with a dot in its
name is no module.
"""

import hashlib
import importlib
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from unmask.errors import ConfigError, UnknownName
from unmask.tasks import jsonl
from unmask.tasks.scoring.extract import squeeze
from unmask.text import storable

FORMS = "package.module:function or path.py:function"


def find(name: str, folder: Path) -> Any:
    """Code by its name. The current folder is importable, as under `python -m`; files are relative to `folder`."""
    place, colon, attributes = name.rpartition(":")
    is_file = place.endswith(".py")
    parts = [*([] if is_file else place.split(".")), *attributes.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        shown = jsonl.shown_path(name)
        raise ConfigError(
            f"{shown} is neither a file of prompts nor code; allowed: a path that ends in .jsonl, or {FORMS} "
            "(which runs that code); check the spelling"
        )
    value: Any = _run_file(folder / place, name) if is_file else _import(place, name)
    for part in attributes.split("."):
        if part not in dir(value):
            raise UnknownName(f"name in {place}", attributes, [n for n in dir(value) if not n.startswith("_")])
        value = getattr(value, part)
    return value


def _import(module: str, name: str) -> ModuleType:
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        why = "is not found" if missing else f"cannot be imported ({type(error).__name__}: {said(error)})"
        raise ConfigError(
            f"module {module!r} of {name!r} {why}; allowed: an installed one, or one in the current folder; check it"
        ) from error


def _run_file(path: Path, name: str) -> ModuleType:
    """A file as a module, run once for its content; its folder is importable, as under `python path.py`."""
    shown = jsonl.shown_path(name)
    try:
        with jsonl.open_file(path) as file:
            source = file.read()
    except OSError as error:
        raise ConfigError(f"the file of {shown} cannot be read ({jsonl.why_not(error)}); check the path") from error
    place = path.resolve()
    known_as = f"{path.stem}-{hashlib.sha256(os.fsencode(place) + source).hexdigest()[:16]}"
    if known_as in sys.modules:
        return sys.modules[known_as]
    module = ModuleType(known_as)
    module.__file__ = str(place)
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))
    sys.modules[known_as] = module
    try:
        exec(compile(source, str(place), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[known_as]
        why = f"{type(error).__name__}: {said(error)}"
        raise ConfigError(f"the file of {shown} cannot be run ({why}); correct it") from error
    return module


def file_of(function: Any) -> str:
    """The file that a function or an object's class is written in; empty where there is none."""
    written = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    try:
        path = inspect.getsourcefile(written)
    except TypeError:
        return ""
    return str(Path(path).resolve()) if path and Path(path).is_file() else ""


def said(error: BaseException) -> str:
    """What an exception of the user's says, on one line; not even that is sure to work."""
    try:
        return storable(squeeze(str(error)))
    except Exception:
        return "(no message)"


def shown(value: Any) -> str:
    """A value as messages show it; its class may be the user's, and fail at that."""
    try:
        return storable(repr(value))[:200]
    except Exception:
        return f"a {type(value).__name__}"
