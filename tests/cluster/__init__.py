"""Studies on a Ray cluster of three nodes on this machine, while nodes and workers are killed and added.

`make cluster` runs the short version; `python -m tests.cluster --times 20 --seed N` the long one.
"""
