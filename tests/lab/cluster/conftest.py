"""Three nodes for all tests of clusters, and a connection to them from this process."""

import pytest

from tests.cluster.chaos import alone, study_in
from tests.cluster.nodes import three_nodes
from unmask.lab.cluster import Ray
from unmask.lab.cluster.ray_executor import connect


@pytest.fixture(scope="session")
def nodes():
    with three_nodes() as started:
        yield started


@pytest.fixture(scope="session")
def where(nodes):
    return Ray(nodes.address)


@pytest.fixture(scope="module")
def ray(where):
    with connect(where) as module:
        yield module


@pytest.fixture(scope="session")
def study_file(tmp_path_factory):
    return study_in(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="session")
def expected(study_file):
    """What one process measures."""
    return alone(study_file)
