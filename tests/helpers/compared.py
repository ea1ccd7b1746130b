"""A comparison from one call, and its answers as rows with attributes."""

from unmask.lab.compare import ComparePlan, run_comparison

HOW = ("batch_size", "data_dir", "sandbox_workers", "work_dir", "warm_up", "on_progress", "workers")


def compare(model, tasks, **options):
    """Run the comparison of a plan; options are the plan's and those of `run_comparison`."""
    how = {name: options.pop(name) for name in HOW if name in options}
    return run_comparison(model, ComparePlan(tasks=tasks, **options), **how)


def rows(comparison, policy=None):
    """All answers, or those of a policy."""
    return [row for row in comparison.answers.itertuples(index=False) if policy in (None, row.policy)]
