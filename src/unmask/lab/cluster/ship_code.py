"""A user's own modules, sent to workers as source files, so that nothing has to be shared or installed there.

Pickles name modules. Those that are local to the driver travel with the pickle and are written to a temporary folder of
the worker under the same names, so hashes of code agree. Data files that such code opens by itself do not travel.
"""

import hashlib
import importlib
import pickletools
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from unmask.base.errors import ConfigError
from unmask.base.user_code import local_modules


@dataclass(frozen=True)
class CodeFile:
    """The source of one module."""

    module: str
    path: str
    """Relative to the folder it is written to, with slashes."""
    source: bytes

    @property
    def is_importable(self) -> bool:
        """Whether other modules can import the file; False for a file that was run by its path."""
        return all(part.isidentifier() for part in self.module.split("."))


@dataclass(frozen=True)
class ShippedCode:
    """A pickled value with the user's code that it needs."""

    files: tuple[CodeFile, ...]
    content: bytes

    def open(self) -> Any:
        """Install the code in this process, then unpickle the value."""
        install_code(self.files)
        return ray_module().cloudpickle.loads(self.content)


def ray_module() -> Any:
    """Import and return Ray, or raise an error that says how to install it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(
            f"Ray is not installed ({error}); allowed: a Python that has it; run pip install 'unmask[ray]' here and on "
            "every node"
        ) from error


def pack_code(value: Any) -> ShippedCode:
    """Pickle a value, and collect the local modules that the pickle names."""
    content: bytes = ray_module().cloudpickle.dumps(value)
    texts = {argument for _, argument, _ in pickletools.genops(content) if isinstance(argument, str)}
    named = [name for name in sorted(texts & set(sys.modules)) if name != "__main__"]
    return ShippedCode(tuple(_code_file(*pair) for pair in sorted(local_modules(named).items())), content)


def _code_file(module: str, path: Path) -> CodeFile:
    file = CodeFile(module, f"{module}/{path.name}", path.read_bytes())
    if not file.is_importable:
        return file
    inside = module.replace(".", "/")
    return CodeFile(module, f"{inside}/__init__.py" if path.name == "__init__.py" else f"{inside}.py", file.source)


_INSTALLED: set[str] = set()
"""Hashes of the groups of files that this process has installed."""


def install_code(files: tuple[CodeFile, ...]) -> None:
    """Make modules importable in this process, once; those that were run by their path are run again."""
    digest = hashlib.sha256(repr([(file.path, file.source) for file in files]).encode()).hexdigest()
    if not files or digest in _INSTALLED:
        return
    folder = Path(tempfile.mkdtemp(prefix="unmask-code-"))
    for file in files:
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.source)
    _INSTALLED.add(digest)
    sys.path.insert(0, str(folder))
    for file in files:
        if file.module not in sys.modules and not file.is_importable:
            # Registered under the driver's name for it before it runs, as an import would.
            module = sys.modules[file.module] = ModuleType(file.module)
            module.__file__, module.__package__ = str(folder / file.path), ""
            exec(compile(file.source, module.__file__, "exec"), module.__dict__)
