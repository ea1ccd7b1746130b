"""Values that show themselves: as HTML in a notebook, as a page in a browser, as a table of pandas.

Runs and findings lie below the pages that draw them, so the drawing is handed down: the package itself says, in its
`__init__`, where it is to be found (`unmask.notebook`), and nothing of it is loaded before somebody looks.
"""

import os
import tempfile
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import ContractError, StorageError


@dataclass(frozen=True)
class Display:
    """How values of one type are shown."""

    cell: Callable[[Any], str]
    """HTML that stands alone among other outputs of a notebook."""
    page: Callable[[Any], str]
    """A whole page."""
    table: Callable[..., Any]
    """A `pandas.DataFrame`."""


class Displayed:
    """What runs, their results and findings have in common for who looks at them."""

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return display_of(self).cell(self)

    def show(self, *, open: bool = True) -> Path:
        """Write a page that needs no network, open it in the browser, and say where it is; `open=False` only writes."""
        path = _written(display_of(self).page(self))
        if open:
            webbrowser.open(path.as_uri())
        return path

    def to_pandas(self) -> Any:
        """The same as a `pandas.DataFrame`."""
        return display_of(self).table(self)


Find = Callable[[str], Display]
"""The display of a type, by the type's name."""

_find: list[Find] = []


def drawn_by(find: Find) -> None:
    """Say where displays are found; the package does, once."""
    _find[:] = [find]


def display_of(value: object) -> Display:
    """How a value is shown."""
    name = type(value).__name__
    if not _find:
        raise ContractError(f"nobody draws a {name}; allowed: after `import unmask`; import it first")
    return _find[0](name)


def _written(page: str) -> Path:
    """A file of its own for the page, which only its owner can read."""
    try:
        handle, name = tempfile.mkstemp(prefix="unmask-", suffix=".html")
        with os.fdopen(handle, "wb") as file:
            file.write(page.encode("utf-8"))
    except OSError as error:
        place = tempfile.gettempdir()
        raise StorageError(f"no page can be written to {place!r} ({error.strerror}); set TMPDIR to a place") from error
    return Path(name)
