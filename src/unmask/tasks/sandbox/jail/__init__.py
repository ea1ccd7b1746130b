"""What runs on the other side of `unmask.tasks.sandbox`: a small program in an interpreter of its own.

    evaluator ── supervisor ── checker ── worker
                                  └── pipe ──┘

The worker alone runs the completion (`worker.py`). The checker runs the tests and decides (`checker.py`); the two
share no memory and no open file, only a pipe on which arguments go one way and plain values come back
(`candidate.py`, `values.py`). The supervisor (`main.py`) builds the walls (`linux.py`, `confine.py`), outlives both
and ends whatever they leave behind (`processes.py`, `folder.py`).

This folder is also loaded under the bare name `jail`, by an interpreter that knows neither `unmask` nor any
installed package: standard library only, and relative imports. `process.JAIL_MODULES` lists what is sent.
"""
