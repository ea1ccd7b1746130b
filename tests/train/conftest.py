"""A configuration that trains in a fraction of a second."""

from tests.helpers.tiny_training import cache, config, pool, tables

__all__ = ["cache", "config", "pool", "tables"]
