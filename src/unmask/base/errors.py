"""Exceptions, warnings, and the wording of error messages: what was given, what is allowed, what to do next."""

import inspect
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache


class UnmaskError(Exception):
    """Base class of all exceptions that this package raises on purpose."""


class ConfigError(UnmaskError):
    """A setting, an option or an entry of a file has a value that is not allowed."""


class UnknownName(ConfigError):
    """A name is unknown; the message suggests known names that are similar."""

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        names = sorted(known)
        close = get_close_matches(name[:100], names, n=3)
        hint = f"did you mean {', '.join(close)}? " if close else ""
        super().__init__(f"unknown {kind} {format_value(name)}; {hint}known: {', '.join(names) or 'none'}")


class OtherModel(ConfigError):
    """A gate was calibrated on another model than the one it is used with."""


class OtherStudy(ConfigError):
    """A folder holds the results of another study, or of another version of this one."""


class ContractError(UnmaskError):
    """A method does something that its traits do not declare, and that other code relies on."""


class InvalidAction(UnmaskError):
    """A policy returned an action that the state does not allow."""


class Unfinished(UnmaskError):
    """A policy stopped making progress, or a search returned a canvas with masks in it."""


class DenoiserError(UnmaskError):
    """A denoiser returned something that is not a prediction."""


class UnnamedPolicy(UnmaskError):
    """A stored file refers to a user's own policy. Pass that policy by name: a file never runs code."""


class SchemaError(UnmaskError):
    """A stored file does not have the expected content."""


class GateFileError(SchemaError):
    """A file is not a gate, is of another version, or was edited."""


class StorageError(UnmaskError):
    """Results could not be written, or their storage does not answer."""


class CheckpointError(UnmaskError):
    """A checkpoint's files are missing or broken, or describe an unknown model."""


class HubError(CheckpointError):
    """A model could not be fetched from the hub."""


class NotEnoughMemory(UnmaskError):
    """A model or its work does not fit into the memory of its device."""


class NotComplete(UnmaskError):
    """A job failed repeatedly and was set aside, and other jobs need its result."""


class WorkerDied(UnmaskError):
    """A worker process was killed, ran out of memory or crashed during its work."""


EXTRAS = {
    **dict.fromkeys(("pandas", "pyarrow", "matplotlib", "sklearn"), "lab"),
    **dict.fromkeys(("starlette", "uvicorn"), "viewer"),
    "ray": "ray",
    "transformers": "hf",
}
"""Import name of a package -> extra of pyproject.toml that installs it."""


def explain_import(error: ImportError) -> ImportError | ConfigError:
    """Return the error to raise for a failed import: one that names the extra to install, if the package is in one."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    return ConfigError(f"{package} is not installed, which this part needs; pip install 'unmask[{EXTRAS[package]}]'")


def require(ok: bool, name: str, value: object, allowed: str, hint: str) -> None:
    """Raise `ConfigError` unless `ok`, with the message "NAME is VALUE; allowed: ALLOWED; HINT"."""
    if not ok:
        raise ConfigError(f"{name} is {format_value(value)}; allowed: {allowed}; {hint}")


def format_value(value: object, max_length: int = 300) -> str:
    """Return the `repr` of a value for a message, cut if it is long. Works even if `repr` raises, as for a huge int."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be written out"
    return text if len(text) <= max_length else f"{text[:max_length]}... ({len(text)} characters)"


def warn_caller(text: str) -> None:
    """Give a warning that points to the user's line that called this package."""
    frame, level = inspect.currentframe(), 0
    # Frames of torch are skipped too: it calls `forward` of our modules.
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("unmask", "torch"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level + 1)


@cache
def warn_once(text: str) -> None:
    """Warn like `warn_caller`, but only once per process for the same text."""
    warn_caller(text)
