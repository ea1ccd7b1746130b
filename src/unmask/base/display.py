"""Values that show themselves in a notebook, in a browser and as a table. What draws them is loaded when asked."""

import webbrowser
from importlib import import_module
from pathlib import Path
from typing import Any

from unmask.base.errors import ConfigError

# Pages lie far above runs and findings, so this is imported by name and only when somebody looks.
DRAWING = "unmask.report.notebook"


class Displayable:
    """Mixin of runs, their results and findings: HTML in a notebook, a page in the browser, a pandas table."""

    def _repr_html_(self) -> str | None:
        """Return HTML for a notebook; None, which notebooks show as plain text, where the drawing part is missing."""
        try:
            drawing = import_module(DRAWING)
        except ImportError:
            return None
        return str(drawing.draw_cell(self))

    def show(self, *, open: bool = True) -> Path:
        """Write a page that needs no network, open it in the browser, and return its path; `open=False` only writes."""
        path: Path = import_drawing().write_page(self)
        if open:
            webbrowser.open(path.as_uri())
        return path

    def to_pandas(self) -> Any:
        """Return the same as a `pandas.DataFrame`."""
        return import_drawing().make_frame(self)


def import_drawing() -> Any:
    """Import the module with `draw_cell`, `write_page` and `make_frame`, or say what to install."""
    try:
        return import_module(DRAWING)
    except ImportError as error:
        raise ConfigError(f"pages and tables cannot be made ({error}); pip install 'unmask[lab]'") from error
