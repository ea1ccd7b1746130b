"""A configuration that trains in a fraction of a second."""

from tests.helpers.tiny_training import cache, config, data, tables

__all__ = ["cache", "config", "data", "tables"]
