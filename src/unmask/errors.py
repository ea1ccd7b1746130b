"""The exception tree. A message gives the value, what is allowed, and what to do next."""

from collections.abc import Iterable
from difflib import get_close_matches


class UnmaskError(Exception):
    """Everything this package raises on purpose."""


class ConfigError(UnmaskError):
    """A setting is impossible."""


class UnknownName(ConfigError):
    """A name is not in the table it was looked up in."""

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        names = sorted(known)
        close = get_close_matches(name[:100], names, n=3)
        hint = f"did you mean {', '.join(close)}? " if close else ""
        super().__init__(f"unknown {kind} {shown(name)}; {hint}known: {', '.join(names) or 'none'}")


class InvalidAction(UnmaskError):
    """A policy asked for a transition that the state does not allow."""


class Unfinished(UnmaskError):
    """A policy stopped making progress, or a search handed back a canvas with masks in it."""


class ContractError(UnmaskError):
    """A method breaks a promise that the decoder or the laboratory relies on."""


class DenoiserError(UnmaskError):
    """A denoiser returned something that is not a prediction."""


class SchemaError(UnmaskError):
    """A stored file is not what its reader expects."""


class GateFileError(SchemaError):
    """A file is not a gate, is one of another version, or was edited."""


class UnnamedPolicy(UnmaskError):
    """A file says that a policy was used which nobody has named here; files run no code, so somebody has to."""


class OtherModel(ConfigError):
    """A gate was calibrated on another model than it is to be used with."""


class OtherStudy(ConfigError):
    """A folder holds the results of another study, or of another version of this one."""


class NotComplete(UnmaskError):
    """Work that others build on was set aside, because it failed again and again."""


class WorkerDied(UnmaskError):
    """A worker's process died under its work: it was killed, ran out of memory or crashed."""


class StorageError(UnmaskError):
    """Results could not be written, or the place that has them does not answer."""


class CheckpointError(UnmaskError):
    """A checkpoint's files are missing, broken, or describe a model we do not know."""


class HubError(CheckpointError):
    """A model could not be fetched."""


class NotEnoughMemory(UnmaskError):
    """A model's weights do not fit where they were to go."""


def require(ok: bool, name: str, value: object, allowed: str, todo: str) -> None:
    """Raise a `ConfigError` in the house wording unless `ok`."""
    if not ok:
        raise ConfigError(f"{name} is {shown(value)}; allowed: {allowed}; {todo}")


def shown(value: object, most: int = 300) -> str:
    """A value as a message can hold it: short, and whatever its own `repr` does (that of a huge int raises)."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be written out"
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
