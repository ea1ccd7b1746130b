"""A study on three nodes: whatever happens to them, the tables are those of one process."""

import signal
import subprocess

import pytest

from tests.cluster.chaos import command, hashes_in, trial
from tests.cluster.nodes import until
from tests.helpers.fresh_python import environment
from unmask.lab.store import Store

pytestmark = pytest.mark.cluster


def test_nodes_and_workers_are_killed_and_added(nodes, study_file, expected):
    """`python -m tests.cluster` does the same with many seeds."""
    tried = trial(nodes, study_file, 1, expected)
    assert tried.equal, (tried.said, tried.events)
    store = Store.open(study_file.parent / "out-1")
    assert len(store.names()) == len(set(store.names())) == 14
    assert not list((store.folder / "failed").glob("*")), "what failed was done in the end"
    assert list((store.folder / "logs").glob("worker-*.log"))


def test_a_killed_driver_goes_on_where_it_was(nodes, study_file, expected):
    out = study_file.parent / "killed"
    line = command(study_file, out, "--on", "ray", "--address", nodes.address)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment()) as driver:
        until(lambda: list((out / "shards").glob("tiny*")) or driver.poll() is not None, 300)
        driver.send_signal(signal.SIGKILL)
    kept = {path.name: path.stat().st_mtime_ns for path in (out / "shards").iterdir() if path.name[0] != "."}
    assert kept
    until(lambda: not nodes.workers())
    again = subprocess.run(line, capture_output=True, text=True, env=environment(), check=False)
    assert again.returncode == 0, again.stderr
    assert hashes_in(again.stdout) == expected
    assert kept.items() <= {path.name: path.stat().st_mtime_ns for path in (out / "shards").iterdir()}.items()
