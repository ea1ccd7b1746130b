"""A Ray cluster of this machine for tests: as many cores as they ask for, whatever there are."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def local_ray(cores: int) -> Iterator[None]:
    """Started and stopped; what connects in between uses it and leaves it."""
    import ray

    ray.init(
        address="local",
        num_cpus=cores,
        num_gpus=0,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100 << 20,
    )
    try:
        yield
    finally:
        ray.shutdown()
