"""Whether a program passes its tests.

Utility is 1 if all tests pass, and 0 for a wrong answer, an error or a timeout. Trouble of the sandbox is not the
program's fault: then there is no utility.
"""

from unmask.base.files import storable
from unmask.tasks import sandbox
from unmask.tasks.scoring import code
from unmask.tasks.task import TOO_LONG, Answers, Example, Extraction, OnVerdict, Part, Verdict


def judge(text: str, example: Example) -> Verdict:
    """The verdict on one output."""
    completion = _completion(text, example)
    if not completion.normalised:
        return _without_code(example, completion)
    return _verdict(example, completion, sandbox.check_completion(example.constraints, completion.normalised))


def judge_all(answers: Answers, workers: int, on_verdict: OnVerdict) -> list[Verdict]:
    """Verdicts on many outputs, in order, with several programs running at a time."""
    completions = [_completion(text, example) for text, example in answers]
    verdicts: dict[int, Verdict] = {}

    def keep(index: int, verdict: Verdict) -> None:
        verdicts[index] = verdict
        on_verdict(verdict)

    for index, (_, example) in enumerate(answers):
        if not completions[index].normalised:
            keep(index, _without_code(example, completions[index]))
    waiting = [index for index in range(len(answers)) if index not in verdicts]
    sandbox.check_many(
        [(answers[index][1].constraints, completions[index].normalised) for index in waiting],
        workers,
        lambda at, outcome: keep(waiting[at], _verdict(answers[waiting[at]][1], completions[waiting[at]], outcome)),
    )
    return [verdicts[index] for index in range(len(answers))]


def _completion(text: str, example: Example) -> Extraction:
    head, entry = (str(example.constraints[key]) for key in ("prompt", "entry_point"))
    return code.completion(text, head, entry)


def _without_code(example: Example, completion: Extraction) -> Verdict:
    long = f"{len(completion.extracted)} characters of code; at most {code.CODE_LIMIT} are read"
    reason = long if completion.how == TOO_LONG else "no code"
    return Verdict(example.id, 0.0, reason, completion, (Part("tests", "pass", None, False),))


def _verdict(example: Example, completion: Extraction, outcome: sandbox.SandboxVerdict) -> Verdict:
    passed = outcome.status == "pass"
    return Verdict(
        example.id,
        None if outcome.status == "unavailable" else float(passed),
        # What the program raised, in its own words.
        storable(f"{outcome.status}: {outcome.detail}" if outcome.detail else outcome.status),
        completion,
        (Part("tests", "pass", outcome.status, passed),),
    )
