"""The exceptions of the package, and the one wording of refusals: what was given, what is allowed, what to do next."""

import inspect
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache


class UnmaskError(Exception):
    """Base of all exceptions that this package raises on purpose."""


class ConfigError(UnmaskError):
    """A setting, an option or a file's entry is impossible."""


class UnknownName(ConfigError):
    """A name is not in the table it was looked up in; the message offers those that are close."""

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
    """A method breaks a promise that the decoder or the laboratory relies on."""


class InvalidAction(UnmaskError):
    """A policy asked for a transition that the state does not allow."""


class Unfinished(UnmaskError):
    """A policy stopped making progress, or a search returned a canvas with masks in it."""


class DenoiserError(UnmaskError):
    """A denoiser returned something that is not a prediction."""


class UnnamedPolicy(UnmaskError):
    """A stored file refers to a user's own policy. Pass that policy by name: a file never runs code."""


class SchemaError(UnmaskError):
    """A stored file is not what its reader expects."""


class GateFileError(SchemaError):
    """A file is not a gate, is a gate of another version, or was edited."""


class StorageError(UnmaskError):
    """Results could not be written, or the storage that holds them does not answer."""


class CheckpointError(UnmaskError):
    """A checkpoint's files are missing or broken, or describe an unknown model."""


class HubError(CheckpointError):
    """A model could not be fetched from the hub."""


class NotEnoughMemory(UnmaskError):
    """Something does not fit into the memory of its device."""


class NotComplete(UnmaskError):
    """Work that other work needs was set aside, because it failed again and again."""


class WorkerDied(UnmaskError):
    """A worker process ended during its work: it was killed, ran out of memory or crashed."""


class MissingPackage(ConfigError):
    """A package of an extra is not installed."""


EXTRAS = {
    **dict.fromkeys(("pandas", "pyarrow", "matplotlib", "sklearn"), "lab"),
    **dict.fromkeys(("starlette", "uvicorn"), "viewer"),
    "ray": "ray",
    "transformers": "hf",
}
"""The extra of pyproject.toml that brings a package, by the name it is imported under."""


def explain_import(error: ImportError) -> ImportError | MissingPackage:
    """Return the error to raise for a failed import: one that names the extra, where the package belongs to one."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    return MissingPackage(f"{package} is not installed, which this part needs; pip install 'unmask[{EXTRAS[package]}]'")


def require(ok: bool, name: str, value: object, allowed: str, hint: str) -> None:
    """Raise `ConfigError` unless `ok`, in the wording of all refusals: "X is Y; allowed: ...; hint"."""
    if not ok:
        raise ConfigError(f"{name} is {format_value(value)}; allowed: {allowed}; {hint}")


def format_value(value: object, max_length: int = 300) -> str:
    """Return a value's `repr`, cut for a message. Works where `repr` itself raises, as for a huge int."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be written out"
    return text if len(text) <= max_length else f"{text[:max_length]}... ({len(text)} characters)"


def warn_caller(text: str) -> None:
    """Warn at the user's line that called this package, however deep inside it something was noticed."""
    frame, level = inspect.currentframe(), 0
    # torch stands between where a module's `forward` is called, and is not where the user's line is.
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("unmask", "torch"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level + 1)


@cache
def warn_once(text: str) -> None:
    """Warn like `warn_caller`, but give the same text once per process."""
    warn_caller(text)
