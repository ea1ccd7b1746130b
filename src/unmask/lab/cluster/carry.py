"""A user's own code, carried to workers: the files themselves, so that nothing has to be shared or installed there.

Values travel as pickles that name modules. What of those is local here is sent along and laid out in a folder of the
worker's, under the same names; hashes of code therefore agree. Data that such code opens by itself is not seen.
"""

import hashlib
import pickletools
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from unmask.base.user_code import local_modules
from unmask.lab.cluster.connect import ray_module


@dataclass(frozen=True)
class CarriedFile:
    """One module's source."""

    module: str
    path: str
    """In the folder, with slashes."""
    source: bytes


@dataclass(frozen=True)
class Parcel:
    """A value, and the code it needs."""

    files: tuple[CarriedFile, ...]
    content: bytes

    def open(self) -> Any:
        """The value, in a process that may never have seen its code."""
        lay_out(self.files)
        return ray_module().cloudpickle.loads(self.content)


def packed(value: Any) -> Parcel:
    """Anything that can be pickled, with the local modules that it names."""
    content = ray_module().cloudpickle.dumps(value)
    return Parcel(tuple(_files(content)), content)


def _files(content: bytes) -> Iterator[CarriedFile]:
    texts = {argument for _, argument, _ in pickletools.genops(content) if isinstance(argument, str)}
    named = [name for name in sorted(texts & set(sys.modules)) if name != "__main__"]
    for module, path in sorted(local_modules(named).items()):
        yield CarriedFile(module, _place(module, path), path.read_bytes())


def _place(module: str, path: Path) -> str:
    """By the module's name; a file that was run by its path is named after its content, and imported by nobody."""
    if all(part.isidentifier() for part in module.split(".")):
        inside = module.replace(".", "/")
        return f"{inside}/__init__.py" if path.name == "__init__.py" else f"{inside}.py"
    return f"{module}/{path.name}"


_LAID_OUT: dict[str, str] = {}
"""Folders by what they hold."""


def lay_out(files: tuple[CarriedFile, ...]) -> None:
    """Make the modules importable here, once; those that were run by their path are run."""
    digest = hashlib.sha256(repr([(file.path, file.source) for file in files]).encode()).hexdigest()
    if not files or digest in _LAID_OUT:
        return
    folder = Path(tempfile.mkdtemp(prefix="unmask-code-"))
    for file in files:
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.source)
    _LAID_OUT[digest] = str(folder)
    sys.path.insert(0, str(folder))
    for file in files:
        if file.module not in sys.modules and not all(part.isidentifier() for part in file.module.split(".")):
            _run(file, folder / file.path)


def _run(file: CarriedFile, path: Path) -> None:
    """Under the name that the driver knows it by."""
    module = ModuleType(file.module)
    module.__file__ = str(path)
    module.__package__ = ""
    sys.modules[file.module] = module
    exec(compile(file.source, str(path), "exec"), module.__dict__)
