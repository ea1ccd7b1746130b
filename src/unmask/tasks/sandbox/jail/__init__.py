"""What runs on the other side of `unmask.tasks.sandbox`: a small program in an interpreter of its own.

    sandbox.py ── supervisor ── checker ── worker
                                   └── pipe ──┘

The worker alone runs the completion. The checker runs the tests and decides; the two share no memory and no open
file, only a pipe on which arguments go one way and plain values come back (`values.py`). The supervisor builds the
walls (`linux.py`), outlives both and ends whatever they leave behind.

This folder is also loaded under the bare name `jail`, by an interpreter that knows neither `unmask` nor any
installed package: standard library only, and relative imports.
"""
