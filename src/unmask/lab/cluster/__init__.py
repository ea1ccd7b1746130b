"""Calls with a model in this process or on a Ray cluster, behind one interface."""

from unmask.lab.cluster.executor import DaemonThread, Executor, Shared, is_out_of_memory, run_in_order
from unmask.lab.cluster.ray_executor import Ray, open_executor
