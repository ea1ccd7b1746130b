"""Executors without a cluster: settings of one, this process in its place, code that travels, GPUs that are claimed."""

import pickle
import signal
import socket
import subprocess
import sys
import threading

import pytest

from tests.helpers.cases import each_case
from tests.helpers.fresh_python import environment, fresh_python
from unmask.base.errors import ConfigError, UnknownName
from unmask.base.user_code import code_hash, load_user_code
from unmask.lab.cluster import Ray
from unmask.lab.cluster.executor import LocalExecutor
from unmask.lab.cluster.ray_executor import (
    as_sendable,
    check_identity,
    connect,
    count_workers_on,
    gpus_of_worker,
    identity,
)
from unmask.lab.cluster.ship_code import pack_code

REFUSED = [
    ({"address": "nowhere"}, "address is 'nowhere'; allowed: auto, or HOST:PORT"),
    ({"address": "ray://host:10001"}, "allowed: auto, or HOST:PORT"),
    ({"address": "host:70000"}, "allowed: auto, or HOST:PORT"),
    ({"gpus_per_worker": 1.5}, "gpus_per_worker is 1.5; allowed: a whole number, or a share"),
    ({"gpus_per_worker": -1}, "gpus_per_worker is -1"),
    ({"gpus_per_worker": float("nan")}, "gpus_per_worker is nan"),
    ({"workers": 0}, "workers is 0; allowed: 1 or more"),
    ({"workers": True}, "workers is True"),
]


@each_case(("setting", "words"), REFUSED)
def test_impossible_settings_are_refused(setting, words):
    with pytest.raises(ConfigError, match=words):
        Ray(**setting)


def test_a_closed_port_is_named_at_once():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"no Ray cluster answers at '127.0.0.1:{port}'.*ray start --head"):
            connect(Ray(f"127.0.0.1:{port}")).__enter__()


@pytest.mark.slow
def test_a_server_that_is_no_ray_is_named_within_thirty_seconds():
    """Ray itself waits for minutes. In a process of its own, because Ray goes on waiting in a thread."""
    code = """
import socket, time
from unmask.base.errors import ConfigError
from unmask.lab.cluster import Ray
from unmask.lab.cluster.ray_executor import connect
with socket.socket() as server:
    server.bind(("127.0.0.1", 0))
    server.listen()
    began = time.monotonic()
    try:
        connect(Ray(f"127.0.0.1:{server.getsockname()[1]}")).__enter__()
    except ConfigError as error:
        print(time.monotonic() - began < 30, error)
"""
    run = fresh_python(code)
    assert "True no Ray cluster answers at '127.0.0.1:" in run.stdout, run.stderr


def test_without_ray_one_line_says_how_to_get_it():
    code = "import sys; sys.modules['ray'] = None\nfrom unmask.lab.cluster.ship_code import ray_module\nray_module()"
    assert "ConfigError: Ray is not installed" in fresh_python(code).stderr


@each_case(
    ("gpus", "node", "workers"),
    [
        (0, {"CPU": 4}, 4),
        (0, {}, 0),
        (1, {"CPU": 16, "GPU": 8}, 8),
        (2, {"CPU": 16, "GPU": 7}, 3),
        (0.1, {"CPU": 64, "GPU": 1}, 10),
        (1, {"CPU": 4, "GPU": 8}, 4),
        (1, {"CPU": 16}, 0),
    ],
)
def test_workers_that_a_node_has_room_for(gpus, node, workers):
    assert count_workers_on(node, gpus) == workers


def test_a_worker_takes_a_gpu_where_there_are_some_and_no_more_than_there_are():
    cpu, gpu = {"CPU": 8.0}, {"CPU": 8.0, "GPU": 2.0}
    assert gpus_of_worker(Ray(), [cpu]) == 0
    assert gpus_of_worker(Ray(), [cpu, gpu]) == 1
    assert gpus_of_worker(Ray(gpus_per_worker=0), [gpu]) == 0
    with pytest.raises(ConfigError, match=r"gpus_per_worker is 4.*2 nodes: 8 cores and 2 GPUs.*--gpus-per-worker"):
        gpus_of_worker(Ray(gpus_per_worker=4), [gpu, gpu])
    with pytest.raises(ConfigError, match="it has no nodes"):
        gpus_of_worker(Ray(), [])


def test_other_versions_and_other_code_are_refused_by_name():
    here = identity()
    check_identity({**here, "host": "elsewhere", "threads": "64"}, here)
    with pytest.raises(ConfigError, match=r"worker on node7 .*torch 1\.0 there, .*; code f00 there"):
        check_identity({**here, "host": "node7", "torch": "1.0", "code": "f00"}, here)


def test_errors_survive_pickling():
    error = UnknownName("thing", "x", ["y"])
    sent = pickle.loads(pickle.dumps(as_sendable(error)))
    assert isinstance(sent, ConfigError)
    assert str(sent) == str(error)
    odd = ValueError("plain")
    odd.lock = threading.Lock()
    assert "ValueError: plain" in str(pickle.loads(pickle.dumps(as_sendable(odd))))


class TestLocalExecutor:
    def test_keeps_one_model_and_reports_errors_in_the_future(self):
        loads = []
        with LocalExecutor(lambda spec: loads.append(spec) or spec * 2) as local:
            results = [local.submit(lambda model, word: model + word, "a", word).result() for word in "xy"]
            assert (results, loads) == (["aax", "aay"], ["a"])
            assert local.submit(lambda model: model, "b", then=str.upper).result(10) == "BB"
            assert isinstance(local.submit(lambda model: 1 / 0, "b").exception(), ZeroDivisionError)
            assert isinstance(local.submit(lambda model: sys.exit(3), "b").exception(), SystemExit)
            assert local.share("value").open() == "value"


OPEN = """
import pickle, sys
from unmask.base.user_code import code_hash
function = pickle.load(open(sys.argv[1], "rb")).open()
print(function("ab"), code_hash(function))
"""


class TestShippedCode:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["mine.py:score", "mine:score"])
    def test_runs_where_its_files_are_not(self, name, tmp_path, monkeypatch, tmp_path_factory):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        (tmp_path / "lengths_of_mine.py").write_text("def length(text):\n    return len(text)\n")
        source = "import lengths_of_mine\n\ndef score(text):\n    return lengths_of_mine.length(text) * 10\n"
        (tmp_path / "mine.py").write_text(source)
        function = load_user_code(name)
        shipped, hashed = pack_code(function), code_hash(function)
        for module in ("mine", "lengths_of_mine"):
            sys.modules.pop(module, None)
        place = tmp_path_factory.mktemp("elsewhere") / "shipped"
        place.write_bytes(pickle.dumps(shipped))
        for file in tmp_path.glob("*.py"):
            file.unlink()
        run = fresh_python(OPEN, str(place))
        assert run.stdout.split() == ["20", hashed], run.stderr


HOLD = """
import sys, time
from unmask.lab.cluster.ray_executor import claim_gpus
claim_gpus(sys.argv[1:])
print("claimed", flush=True)
time.sleep(60)
"""


class TestGPUs:
    """Processes that keep models on GPUs; no GPU is needed to claim one."""

    def claim(self, *gpus):
        line = [sys.executable, "-c", HOLD, *gpus]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment(TMPDIR=self.folder))
        assert process.stdout.readline() == "claimed\n"
        return process

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = str(tmp_path)

    @pytest.mark.slow
    def test_an_idle_process_lets_go_of_a_gpu_that_another_task_is_given(self):
        first, other = self.claim("0"), self.claim("1")
        second = self.claim("0")
        assert first.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        for process in (other, second):
            process.kill()
            process.wait()

    @pytest.mark.slow
    def test_a_process_ends_where_it_is_given_another_gpu(self):
        code = HOLD.replace("time.sleep(60)", "claim_gpus(sys.argv[1:]); claim_gpus(['7']); print('stayed')")
        line = [sys.executable, "-c", code, "0"]
        run = subprocess.run(line, capture_output=True, text=True, env=environment(TMPDIR=self.folder), check=False)
        assert (run.stdout, run.returncode) == ("claimed\n", 1)
