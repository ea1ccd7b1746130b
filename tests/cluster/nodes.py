"""Three nodes on this machine, some of which may go; and nothing of them is left."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.fresh_python import environment

MEMORY = 80 << 20
"""Bytes of a node's object store: the least that Ray takes is a little less."""


class ThreeNodes:
    """A head, which stays, and nodes that come and go."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        # Raylets hand their environment on to workers.
        os.environ.update({k: v for k, v in environment().items() if k in ("PYTHONPATH", "OMP_NUM_THREADS")})
        head = {**self._sizes(), "include_dashboard": False}
        self.cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
        self.others: list[Any] = []
        self.fill()

    @staticmethod
    def _sizes() -> dict[str, Any]:
        return {"num_cpus": 1, "object_store_memory": MEMORY}

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    @property
    def options(self) -> list[str]:
        """Options of a command that is to run here."""
        return ["--ray", self.address]

    def add(self, at: int = 0) -> bool:
        self.others.append(patiently(lambda: self.cluster.add_node(**self._sizes(), wait=False)))
        return True

    def fill(self, nodes: int = 2) -> None:
        """As many beside the head as there were at first."""
        while len(self.others) > nodes:
            self.kill()
        while len(self.others) < nodes:
            self.add()

    def kill(self, at: int = 0) -> bool:
        """A node goes without a word, if there is one beside the head."""
        if not self.others:
            return False
        self.cluster.remove_node(self.others.pop(at % len(self.others)), allow_graceful=False)
        return True

    def kill_worker(self, at: int = 0) -> bool:
        """A worker of ours, wherever it is, if there is one."""
        pids = self.workers()
        if pids:
            os.kill(pids[at % len(pids)], signal.SIGKILL)
        return bool(pids)

    def workers(self) -> list[int]:
        """Processes of our workers: children of these nodes' raylets, named by Ray after the task."""
        nodes = [self.cluster.head_node, *self.others]
        raylets = {info.process.pid for node in nodes for info in node.all_processes.get("raylet", [])}
        return [pid for pid, parent, name in _processes() if parent in raylets and "ray::_run_with_model" in name]

    def stop(self) -> None:
        self.cluster.shutdown()


def _processes() -> Iterator[tuple[int, int, str]]:
    """Process, parent and command line of all there are."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            yield int(folder.name), int(stat.rpartition(")")[2].split()[1]), command


@contextmanager
def three_nodes() -> Iterator[ThreeNodes]:
    nodes = ThreeNodes()
    try:
        yield nodes
    finally:
        nodes.stop()


def patiently(start: Callable[[], Any], tries: int = 5) -> Any:
    """Ray gives a node half a minute to start, which is little on a busy machine."""
    for left in reversed(range(tries)):
        try:
            return start()
        except Exception as error:
            if not left or "timed out during startup" not in str(error):
                raise
    return None


def until(true: Any, seconds: float = 60.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
