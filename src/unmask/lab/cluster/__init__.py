"""Work on many machines: workers on a Ray cluster that load a model once, and a driver that keeps what they return."""

from unmask.lab.cluster.where import Ray

__all__ = ["Ray"]
