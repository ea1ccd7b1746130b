"""Mixin for values that can be shown in a notebook, in a browser and as a table."""

import webbrowser
from importlib import import_module
from pathlib import Path
from typing import Any

from unmask.base.errors import ConfigError

# Imported by name and on first use: `report` is a higher layer, and may not be installed.
DRAWING = "unmask.report.notebook"


class Displayable:
    """Mixin that shows a value: as HTML in a notebook, as a page in the browser, as a pandas table."""

    def _repr_html_(self) -> str | None:
        """Return HTML for a notebook; None if `report` is not installed, so that the notebook shows plain text."""
        try:
            drawing = import_module(DRAWING)
        except ImportError:
            return None
        return str(drawing.draw_cell(self))

    def show(self, *, open: bool = True) -> Path:
        """Write a page that needs no network, open it in the browser unless `open=False`, and return its path."""
        path: Path = import_drawing().write_page(self)
        if open:
            webbrowser.open(path.as_uri())
        return path

    def to_pandas(self) -> Any:
        """Return the value as a `pandas.DataFrame`."""
        return import_drawing().make_frame(self)


def import_drawing() -> Any:
    """Import the module that draws cells, pages and frames; say what to install if it is missing."""
    try:
        return import_module(DRAWING)
    except ImportError as error:
        raise ConfigError(f"pages and tables cannot be made ({error}); pip install 'unmask[lab]'") from error
