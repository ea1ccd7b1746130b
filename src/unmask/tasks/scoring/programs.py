"""HumanEval: whether a program passes its tests.

Utility is 1 if all tests pass, and 0 for a wrong answer, an error or a timeout. Trouble of the sandbox is not the
program's fault: then there is no utility.
"""

from collections.abc import Callable, Sequence

from unmask.tasks import sandbox
from unmask.tasks.base import Example
from unmask.tasks.scoring import code
from unmask.tasks.scoring.extract import Extraction
from unmask.tasks.scoring.verdict import Part, Verdict

Outcome = sandbox.SandboxVerdict


def judge(text: str, example: Example) -> Verdict:
    """The verdict on one output."""
    found = _completion(text, example)
    if not found.normalised:
        return _without_code(example, found)
    return _verdict(example, found, sandbox.check_completion(example.constraints, found.normalised))


def judge_all(pairs: Sequence[tuple[str, Example]], workers: int, on_done: Callable[[Verdict], None]) -> list[Verdict]:
    """Verdicts on many outputs, in order, with several programs running at a time."""
    found = [_completion(text, example) for text, example in pairs]
    verdicts: dict[int, Verdict] = {}

    def keep(index: int, verdict: Verdict) -> None:
        verdicts[index] = verdict
        on_done(verdict)

    for index, (_, example) in enumerate(pairs):
        if not found[index].normalised:
            keep(index, _without_code(example, found[index]))
    waiting = [index for index in range(len(pairs)) if index not in verdicts]
    sandbox.check_many(
        [(pairs[index][1].constraints, found[index].normalised) for index in waiting],
        workers,
        lambda at, outcome: keep(waiting[at], _verdict(pairs[waiting[at]][1], found[waiting[at]], outcome)),
    )
    return [verdicts[index] for index in range(len(pairs))]


def _completion(text: str, example: Example) -> Extraction:
    head, entry = (str(example.constraints[key]) for key in ("prompt", "entry_point"))
    return code.completion(text, head, entry)


def _without_code(example: Example, found: Extraction) -> Verdict:
    return Verdict(example.id, 0.0, "no code", found, (Part("tests", "pass", None, False),))


def _verdict(example: Example, found: Extraction, outcome: Outcome) -> Verdict:
    passed = outcome.status == "pass"
    return Verdict(
        example.id,
        None if outcome.status == "unavailable" else float(passed),
        f"{outcome.status}: {outcome.detail}" if outcome.detail else outcome.status,
        found,
        (Part("tests", "pass", outcome.status, passed),),
    )
