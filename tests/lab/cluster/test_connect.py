"""Getting to a cluster: one line each for what stands in the way, in seconds; and nothing is left of a local one."""

import socket
from pathlib import Path

import pytest

from tests.cluster.nodes import until
from tests.helpers.fresh_python import environment, fresh_python
from unmask.base.errors import ConfigError
from unmask.lab.cluster import Ray
from unmask.lab.cluster.connect import connected


def test_nobody_answers():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"no Ray cluster answers at '127.0.0.1:{port}'.*ray start --head"):
            connected(Ray(f"127.0.0.1:{port}")).__enter__()


def test_ray_is_not_installed():
    code = """
import sys
sys.modules["ray"] = None
from unmask.lab.cluster.connect import ray_module
ray_module()
"""
    run = fresh_python(code)
    assert "ConfigError: Ray is not installed" in run.stderr
    assert "pip install 'unmask[ray]'" in run.stderr


@pytest.mark.cluster
@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "import os; os.kill(os.getpid(), 9)"])
def test_a_local_cluster_is_gone_afterwards(end):
    """However the work ends; the processes are told apart by a word in their environment."""
    code = f"""
from unmask.lab.cluster import Ray
from unmask.lab.cluster.connect import connected
with connected(Ray(dashboard=False)) as ray:
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
