"""Work on Ray: whatever happens to its processes and nodes, the results are those of one process."""

import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.calls import (
    die,
    die_once,
    does_not_fit,
    raise_unknown,
    run_out_of_memory,
    twice,
    word_and_process,
)
from tests.cluster.chaos import SHARDS, command, hashes_in, trial
from tests.cluster.nodes import until
from tests.helpers.fresh_python import environment, fresh_python
from tests.helpers.paths import DOCS
from unmask.base.errors import ConfigError, NotEnoughMemory, WorkerDied
from unmask.lab import run_study
from unmask.lab.cluster import open_executor
from unmask.lab.cluster.ray_executor import WorkerTraceback
from unmask.lab.store import Store
from unmask.lab.study import StudyConfig

pytestmark = pytest.mark.cluster


@pytest.fixture
def executor(ray, where):
    with open_executor(where, twice) as opened:
        yield opened


class TestCalls:
    def test_return_values_and_errors(self, executor):
        words = [executor.submit(word_and_process, "a", word) for word in "xyz"]
        assert [future.result()[0] for future in words] == ["aax", "aay", "aaz"]
        assert executor.submit(word_and_process, "b", "x", then=repr).result().startswith("('bbx'")
        assert executor.submit_without_model(max, 1, 2).result() == 2
        with pytest.raises(ConfigError, match="unknown thing 'x'") as caught:
            executor.submit(raise_unknown, "a").result()
        assert isinstance(caught.value.__cause__, WorkerTraceback)
        assert "UnknownName" in str(caught.value.__cause__)

    def test_survive_a_process_that_dies(self, executor, tmp_path):
        assert executor.submit(die_once, "a", str(tmp_path / "mark")).result() == "alive"
        with pytest.raises(WorkerDied, match="ended 4 times during its work"):
            executor.submit(die, "a").result()

    def test_say_where_memory_ran_out(self, executor):
        with pytest.raises(WorkerDied, match=r"ran out of memory \(no room\)"):
            executor.submit(run_out_of_memory, "a").result()

    def test_end_with_the_executor(self, ray, where):
        with open_executor(where, twice) as executor:
            future = executor.submit_without_model(__import__("time").sleep, 600)
        with pytest.raises(WorkerDied, match="stopped"):
            future.result(10)


class TestStudy:
    def test_nodes_and_workers_are_killed_and_added(self, nodes, study_file, expected):
        """`python -m tests.cluster` does the same with many seeds."""
        tried = trial(nodes, study_file, 1, expected)
        assert tried.equal, (tried.said, tried.events)
        assert any(event.startswith("kill") and "none there" not in event for event in tried.events), tried.events
        store = Store.open(study_file.parent / "out-1")
        assert len(store.names()) == len(set(store.names())) == SHARDS
        assert not list((store.folder / "failed").glob("*")), "what failed was done in the end"

    def test_the_same_in_an_object_store(self, nodes, study_file, expected, bucket):
        tried = trial(nodes, study_file, 2, expected, bucket)
        assert tried.equal, (tried.said, tried.events)
        assert bucket.finished() == SHARDS
        assert not bucket.leases(), "the driver lets go"

    def test_a_killed_driver_goes_on_where_it_was(self, nodes, study_file, expected):
        out = study_file.parent / "killed"
        line = command(study_file, out, *nodes.options)
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

    def test_a_model_that_does_not_fit_is_no_shards_fault(self, where, study_file, tmp_path):
        study = StudyConfig.read(study_file)
        store = Store.create(tmp_path / "out", study.config)
        with pytest.raises(NotEnoughMemory, match="16 GB of weights"):
            run_study(study, store, does_not_fit, cluster=where)
        assert not store.failures.all()


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "import os; os.kill(os.getpid(), 9)"])
def test_a_local_cluster_is_gone_afterwards(end):
    """However the work ends; the processes are told apart by a word in their environment."""
    code = f"""
from unmask.lab.cluster import Ray
from unmask.lab.cluster.ray_executor import connect
with connect(Ray()) as ray:
    assert ray.cluster_resources()["CPU"] >= 1
    {end}
"""
    word = f"UNMASK_TEST_CLUSTER=local-{len(end)}"
    fresh_python(code, env=environment(**dict([word.split("=")])))

    def left():
        found = []
        for folder in Path("/proc").iterdir():
            try:
                found += [folder] if word.encode() in (folder / "environ").read_bytes() else []
            except OSError:
                continue
        return found

    # Ray's agents may ask a minute long for a head that is gone.
    until(lambda: not left(), 180)


def test_the_commands_of_the_documentation(study_file, expected, tmp_path):
    """As written in docs/cluster.md, with a port, a study, a folder and a token of the test's own."""
    (tmp_path / "token").write_text(secrets.token_hex(32))
    env = environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(tmp_path / "token"))
    block = next(b for b in (DOCS / "cluster.md").read_text().split("```") if "ray start --head" in b)
    head, node, study = block.strip().splitlines()[-3:]
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
