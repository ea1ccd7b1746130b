"""Where work runs when one machine is not enough: settings of a Ray cluster, checked; Ray itself is not loaded here."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unmask.base.errors import ConfigError, require


@dataclass(frozen=True)
class Ray:
    """A Ray cluster and how it is used."""

    address: str | None = None
    """`auto` or HOST:PORT of a running one; None starts one on this machine and stops it at the end."""
    gpus_per_worker: float | None = None
    """None: one where the cluster has GPUs, else none."""
    workers: int | None = None
    """At most; None: as many as fit."""
    dashboard: bool = True
    """Of a cluster that is started here."""

    def __post_init__(self) -> None:
        ok = self.address is None or self.address == "auto" or _host_and_port(self.address) is not None
        require(ok, "address", self.address, "auto, or HOST:PORT", "`ray status` on a node of the cluster says it")
        gpus = self.gpus_per_worker
        number = isinstance(gpus, int | float) and not isinstance(gpus, bool)
        ok = gpus is None or (number and math.isfinite(gpus) and gpus >= 0 and (gpus < 1 or gpus == int(gpus)))
        allowed = "a whole number, or a share of one GPU between 0 and 1"
        require(ok, "gpus_per_worker", gpus, allowed, "most models take one")
        whole = isinstance(self.workers, int) and not isinstance(self.workers, bool) and self.workers >= 1
        require(self.workers is None or whole, "workers", self.workers, "1 or more", "leave it out for all that fit")

    @property
    def host_and_port(self) -> tuple[str, int] | None:
        """Where to knock; None for `auto` and for a cluster of this machine."""
        return None if self.address in (None, "auto") else _host_and_port(str(self.address))


def _host_and_port(address: str) -> tuple[str, int] | None:
    host, colon, port = address.rpartition(":")
    ok = bool(host and colon) and "/" not in host and port.isascii() and port.isdigit() and 0 < int(port) < 65536
    return (host.strip("[]"), int(port)) if ok else None


@dataclass(frozen=True)
class Resources:
    """What one worker takes of a node."""

    gpus: float
    cpus: int = 1

    def fit(self, node: Mapping[str, float]) -> int:
        """How many workers a node has room for; one core is left to scoring where there is more than one."""
        cores = int(node.get("CPU", 0))
        by_cores = max(cores - 1, 1) // self.cpus if cores else 0
        return min(by_cores, math.floor(node.get("GPU", 0) / self.gpus + 1e-9)) if self.gpus else by_cores


def resources_of(cluster: Ray, nodes: Sequence[Mapping[str, float]]) -> Resources:
    """What a worker takes, by the settings and what the nodes have; refused where no node has that."""
    most = max((node.get("GPU", 0) for node in nodes), default=0)
    gpus = cluster.gpus_per_worker
    if gpus is None:
        gpus = 1 if most >= 1 else 0
    taken = Resources(gpus)
    if not any(taken.fit(node) for node in nodes):
        raise ConfigError(
            f"gpus_per_worker is {gpus:g}, and no node of the cluster has room for such a worker ({_in_words(nodes)}); "
            f"allowed: up to {most:g} GPUs beside a core; lower --gpus-per-worker, or add nodes"
        )
    return taken


def _in_words(nodes: Sequence[Mapping[str, float]]) -> str:
    counts = [f"{node.get('CPU', 0):g} cores and {node.get('GPU', 0):g} GPUs" for node in nodes]
    return f"{len(nodes)} nodes: {'; '.join(dict.fromkeys(counts))}" if nodes else "it has no nodes"
