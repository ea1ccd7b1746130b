"""Settings of a cluster, and how many workers its nodes take."""

import pytest

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError
from unmask.lab.cluster import Ray
from unmask.lab.cluster.where import Resources, resources_of


@each_case(
    ("setting", "said"),
    [
        ({"address": "nowhere"}, "address is 'nowhere'; allowed: auto, or HOST:PORT"),
        ({"address": "ray://host:10001"}, "allowed: auto, or HOST:PORT"),
        ({"address": "host:70000"}, "allowed: auto, or HOST:PORT"),
        ({"gpus_per_worker": 1.5}, "gpus_per_worker is 1.5; allowed: a whole number, or a share"),
        ({"gpus_per_worker": -1}, "gpus_per_worker is -1"),
        ({"gpus_per_worker": float("nan")}, "gpus_per_worker is nan"),
        ({"workers": 0}, "workers is 0; allowed: 1 or more"),
        ({"workers": True}, "workers is True"),
    ],
)
def test_impossible_settings_are_refused(setting, said):
    with pytest.raises(ConfigError, match=said):
        Ray(**setting)


def test_addresses():
    assert Ray().host_and_port is None
    assert Ray("auto").host_and_port is None
    assert Ray("10.0.0.1:6379").host_and_port == ("10.0.0.1", 6379)
    assert Ray("[::1]:6379").host_and_port == ("::1", 6379)


@each_case(
    ("taken", "node", "workers"),
    [
        (Resources(0), {"CPU": 1}, 1),
        (Resources(0), {"CPU": 4}, 3),
        (Resources(0), {}, 0),
        (Resources(1), {"CPU": 16, "GPU": 8}, 8),
        (Resources(2), {"CPU": 16, "GPU": 7}, 3),
        (Resources(0.1), {"CPU": 64, "GPU": 1}, 10),
        (Resources(1), {"CPU": 4, "GPU": 8}, 3),
        (Resources(1), {"CPU": 16}, 0),
    ],
)
def test_a_node_leaves_a_core_to_scoring(taken, node, workers):
    assert taken.fit(node) == workers


def test_a_worker_takes_a_gpu_where_there_are_some():
    cpu, gpu = {"CPU": 8.0}, {"CPU": 8.0, "GPU": 2.0}
    assert resources_of(Ray(), [cpu]) == Resources(0)
    assert resources_of(Ray(), [cpu, gpu]) == Resources(1)
    assert resources_of(Ray(gpus_per_worker=0), [gpu]) == Resources(0)


def test_more_gpus_than_any_node_has_are_refused():
    nodes = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 2.0}]
    with pytest.raises(
        ConfigError, match=r"gpus_per_worker is 4.*2 nodes: 8 cores and 2 GPUs.*lower --gpus-per-worker"
    ):
        resources_of(Ray(gpus_per_worker=4), nodes)
    with pytest.raises(ConfigError, match="it has no nodes"):
        resources_of(Ray(), [])
