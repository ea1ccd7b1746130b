"""What a worker computes with, compared with the driver's: numbers of two codes must not mix."""

import platform
import socket
from collections.abc import Mapping

from unmask.base.environment import code_fingerprint, versions
from unmask.base.errors import ConfigError

MUST_AGREE = ("unmask", "torch", "numpy", "python", "code")
"""What may change a number. Minor versions of Python are one: Ray itself refuses others."""


def identity() -> dict[str, str]:
    """Of this process."""
    major, minor, _ = platform.python_version_tuple()
    return {**versions(), "python": f"{major}.{minor}", "code": code_fingerprint(), "host": socket.gethostname()}


def check_identity(worker: Mapping[str, str], driver: Mapping[str, str], name: str) -> None:
    """Refuse a worker with other code or versions than the driver's."""
    wrong = [key for key in MUST_AGREE if worker.get(key) != driver[key]]
    if wrong:
        differ = "; ".join(f"{key} {worker.get(key)} there, {driver[key]} here" for key in wrong)
        raise ConfigError(
            f"{name} on {worker.get('host')} computes with something else than this driver ({differ}); allowed: the "
            "same versions and code on every node, or numbers would mix; install the same there"
        )
