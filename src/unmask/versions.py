"""What a result's numbers may depend on besides its configuration."""

import platform
from importlib.metadata import version

from unmask import __version__


def versions() -> dict[str, str]:
    """Of this package, what computes, and the interpreter."""
    return {
        "unmask": __version__,
        "torch": version("torch"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
    }
