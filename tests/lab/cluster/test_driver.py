"""A study on three nodes: whatever happens to them, the tables are those of one process."""

import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.chaos import SHARDS, command, hashes_in, trial
from tests.cluster.nodes import until
from tests.helpers.fresh_python import environment
from tests.helpers.paths import DOCS
from unmask.base.errors import NotEnoughMemory
from unmask.lab import run_study
from unmask.lab.store import Store
from unmask.lab.study import Study

pytestmark = pytest.mark.cluster


def test_nodes_and_workers_are_killed_and_added(nodes, study_file, expected):
    """`python -m tests.cluster` does the same with many seeds."""
    tried = trial(nodes, study_file, 1, expected)
    assert tried.equal, (tried.said, tried.events)
    assert any(event.startswith("kill") and "none there" not in event for event in tried.events), tried.events
    store = Store.open(study_file.parent / "out-1")
    assert len(store.names()) == len(set(store.names())) == SHARDS
    assert not list((store.folder / "failed").glob("*")), "what failed was done in the end"
    assert list((store.folder / "logs").glob("worker-*.log"))


def test_the_same_in_an_object_store(nodes, study_file, expected, bucket):
    tried = trial(nodes, study_file, 2, expected, bucket)
    assert tried.equal, (tried.said, tried.events)
    assert bucket.finished() == SHARDS
    assert not bucket.leases(), "the driver lets go"


def test_a_killed_driver_goes_on_where_it_was(nodes, study_file, expected):
    out = study_file.parent / "killed"
    line = command(study_file, out, "--ray", nodes.address)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment()) as driver:
        until(lambda: list((out / "shards").glob("tiny*")) or driver.poll() is not None, 300)
        assert nodes.workers()
        driver.send_signal(signal.SIGKILL)
    kept = {path.name: path.stat().st_mtime_ns for path in (out / "shards").iterdir() if path.name[0] != "."}
    assert kept
    until(lambda: not nodes.workers())
    again = subprocess.run(line, capture_output=True, text=True, env=environment(), check=False)
    assert again.returncode == 0, again.stderr
    assert hashes_in(again.stdout) == expected
    assert kept.items() <= {path.name: path.stat().st_mtime_ns for path in (out / "shards").iterdir()}.items()


def does_not_fit(spec):
    raise NotEnoughMemory("16 GB of weights, 8 GB of memory")


def test_a_model_that_does_not_fit_is_no_shards_fault(where, study_file, tmp_path):
    study = Study.read(study_file)
    store = Store.create(tmp_path / "out", study.config)
    with pytest.raises(NotEnoughMemory, match="16 GB of weights"):
        run_study(study, store, does_not_fit, cluster=where)
    assert not store.failures.all()


def test_the_commands_of_the_documentation(study_file, expected, tmp_path):
    """As written in docs/cluster.md, with a port, a study, a folder and a token of the test's own."""
    (tmp_path / "token").write_text(secrets.token_hex(32))
    env = environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(tmp_path / "token"))
    block = next(b for b in (DOCS / "cluster.md").read_text().split("```") if "ray start --head" in b)
    head, node, study = block.strip().splitlines()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    small = ["--num-cpus=1", "--object-store-memory=80000000"]

    def words(line):
        ours = {
            "6379": port,
            "HEAD": "127.0.0.1",
            "studies/demo.toml": str(study_file),
            "out/study": str(tmp_path / "out"),
        }
        for theirs, own in ours.items():
            line = line.replace(theirs, own)
        program, *rest = line.split()
        return [str(Path(sys.executable).parent / program), *rest]

    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": env}
    started = []
    try:
        started.append(subprocess.Popen([*words(head), *small, "--include-dashboard=false"], **quiet))
        until(lambda: answers(int(port)), 120)
        started.append(subprocess.Popen([*words(node), *small], **quiet))
        _, *rest = words(study)
        done = subprocess.run(
            [sys.executable, "-m", "unmask", *rest], capture_output=True, text=True, env=env, check=False
        )
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)
    assert done.returncode == 0, done.stderr
    assert expected.items() <= hashes_in(done.stdout).items()


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
