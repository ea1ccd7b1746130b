"""A connection to Ray: joined or started, within seconds, and given back however the work ends."""

import importlib
import importlib.util
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from unmask.base.errors import ConfigError
from unmask.lab.cluster.where import Ray

PATIENCE = 5.0
"""Seconds that an address has to answer."""


def ray_module() -> Any:
    """Ray, or one line on how to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(
            f"Ray is not installed ({error}); allowed: a Python that has it; run pip install 'unmask[ray]' here and on "
            "every node"
        ) from error


@contextmanager
def connected(cluster: Ray) -> Iterator[Any]:
    """Ray, connected. What was started here is stopped, what was joined is left; a connection of the caller's stays."""
    ray = ray_module()
    if ray.is_initialized():
        yield ray
        return
    _knock(cluster)
    with _own_signals():
        try:
            ray.init(**_arguments(cluster))
        # Of many classes, `Exception` itself among them.
        except Exception as error:
            with suppress(Exception):
                ray.shutdown()
            raise _refused(cluster, error) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _arguments(cluster: Ray) -> dict[str, Any]:
    usual = {"logging_level": logging.ERROR, "log_to_driver": False}
    if cluster.address is None:
        # `ray[default]` has a dashboard, plain `ray` has not.
        there = cluster.dashboard and importlib.util.find_spec("aiohttp_cors") is not None
        return {**usual, "address": "local", "include_dashboard": there}
    return {**usual, "address": cluster.address}


def _knock(cluster: Ray) -> None:
    """Ray waits long for who does not answer; a socket tells at once."""
    if cluster.host_and_port is None:
        return
    try:
        socket.create_connection(cluster.host_and_port, PATIENCE).close()
    except OSError as error:
        raise _refused(cluster, error) from error


def _refused(cluster: Ray, error: Exception) -> ConfigError:
    said = " ".join(str(error).split())
    if "ersion mismatch" in said:
        return ConfigError(
            f"the cluster at {cluster.address} has another Ray or Python than this one ({said[:300]}); allowed: the "
            "same versions on every node; install them"
        )
    if cluster.address is None:
        return ConfigError(
            f"no cluster could be started on this machine ({said[:300]}); allowed: a machine with room for one; look "
            "into /tmp/ray/session_latest/logs"
        )
    return ConfigError(
        f"no Ray cluster answers at {cluster.address!r} ({said[:200]}); allowed: auto on a node of a running cluster, "
        "or HOST:PORT of its head; start one with `ray start --head`, or leave --address out for one of this machine "
        "(one that asks for a token needs RAY_AUTH_MODE=token here, too)"
    )


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself; whoever had it keeps it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
