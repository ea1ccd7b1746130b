"""HumanEval: solutions found in what a model wrote, and judged."""

import pytest

from unmask.tasks import examples, score
from unmask.tasks.official import humaneval
from unmask.tasks.scoring import code
from unmask.tasks.scoring.extract import squeeze


def test_every_canonical_solution_is_extracted(data):
    """Alone, at the margin, in a block of code, and with the function around it. The sandbox has its own tests."""
    for numbered in humaneval.read(data):
        head, entry = (str(numbered.draft.constraints[key]) for key in ("prompt", "entry_point"))
        solution = numbered.draft.target
        want = squeeze(solution)
        for text in (solution, solution.strip(), f"Sure:\n```python\n{solution}```\nThat is it."):
            assert squeeze(code.completion(text, head, entry).normalised) == want, numbered.id
        whole = code.completion(f"Here:\n```python\n{head}{solution}```", head, entry).normalised
        assert want in squeeze(whole)
        compile(head + whole, "whole", "exec")


def test_humaneval_verdicts(data):
    e = examples("humaneval", "development", data)[0]
    right = score(e.target, e)
    if right.utility is None:
        pytest.skip(f"no sandbox here: {right.reason}")
    assert right.utility == 1.0
    assert score("    return None\n", e).utility == 0.0
    assert score("", e).utility == 0.0
    assert score("", e).reason == "no code"
