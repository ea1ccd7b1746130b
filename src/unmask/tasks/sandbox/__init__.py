"""Run the Python that a model wrote, and find out whether it passes its tests.

A completion is hostile until shown otherwise. It runs in an interpreter of its own behind the strongest walls this
machine offers, and every result names them (`mode`). What decides is never in reach of the completion: the tests run
in another process, which asks it for values. `docs/sandbox.md` says what each mode guarantees and what none does.

    verdict = check_completion(problem, completion)     # problem: prompt, test, entry_point
    verdict.status                                      # pass, fail, error, timeout or unavailable

`unavailable` is trouble of the evaluator, not of the completion, and must not be scored.
"""

from unmask.tasks.sandbox.checks import (
    ProgramResult,
    SandboxVerdict,
    Status,
    available_modes,
    check_completion,
    check_many,
    run_program,
)
from unmask.tasks.sandbox.limits import DEFAULT, Limits

__all__ = [
    "DEFAULT",
    "Limits",
    "ProgramResult",
    "SandboxVerdict",
    "Status",
    "available_modes",
    "check_completion",
    "check_many",
    "run_program",
]
