"""A study that runs: jobs, the queue that shares them out, judging, progress, the estimate."""
