"""Policies compared end to end: every prompt decoded by every policy, scored by the task's own utility."""

from unmask.lab.compare.plan import CompareOptions, ComparePlan, open_tasks, plan_comparison
from unmask.lab.compare.run import CompareProgress, Comparison, run_comparison
from unmask.lab.compare.summary import CompareSummary, SpeedSummary, summarise, summarise_speed
