"""A Ray cluster of this machine for tests: as many cores as they ask for, whatever there are."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.helpers.fresh_python import environment

TRIES = 4
"""Ray gives a node 30 seconds to start, which a busy machine may need."""


@contextmanager
def local_ray(cores: int) -> Iterator[None]:
    """Started and stopped; what connects in between uses it and leaves it."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        # Nodes hand their environment on to workers, which look for the package from another folder.
        for name in ("PYTHONPATH", "OMP_NUM_THREADS"):
            patch.setenv(name, environment()[name])
        for left in reversed(range(TRIES)):
            try:
                _start(ray, cores)
                break
            except Exception as error:
                ray.shutdown()
                if not left or "timed out during startup" not in str(error):
                    raise
        try:
            yield
        finally:
            ray.shutdown()


def _start(ray: Any, cores: int) -> None:
    ray.init(
        address="local",
        num_cpus=cores,
        num_gpus=0,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100 << 20,
    )
