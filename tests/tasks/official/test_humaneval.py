"""HumanEval: solutions found in what a model wrote, and judged."""

import re

import pytest

from tests.helpers.cases import each_case
from unmask.tasks import examples, score, score_all
from unmask.tasks.base import TEXT_LIMIT
from unmask.tasks.official import humaneval
from unmask.tasks.scoring import code
from unmask.tasks.scoring.code import CODE_LIMIT
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


WRAPPINGS = {
    "alone": "{}",
    "chat": "Here is the code:\n\n{}\n\nExplanation: it's simple.\nIt works by looking at every item.\n",
    "fence": "Sure! This is how:\n\n```python\n{}\n```\n\nThis function:\n- takes a list\n- returns one.",
    "open fence": "```python\n{}",
    "answer tag": "<answer>\n{}\n</answer>",
}


def completions(data, wrapping, written):
    """Of every problem: head, and what is appended to it for a solution that `written` spells and is wrapped up."""
    for numbered in humaneval.read(data):
        head, entry = (str(numbered.draft.constraints[key]) for key in ("prompt", "entry_point"))
        text = wrapping.replace("{}", written(head, numbered.draft.target, entry))
        yield numbered.id, head, numbered.draft.target, code.completion(text, head, entry).normalised


@pytest.mark.parametrize("wrapping", WRAPPINGS.values(), ids=WRAPPINGS)
def test_every_solution_is_found_whole_in_any_wrapping(data, wrapping):
    ways = [lambda head, body, _: body, lambda head, body, _: body.strip(), lambda head, body, _: head + body]
    for written in ways:
        for id, head, body, kept in completions(data, wrapping, written):
            assert squeeze(body) in squeeze(kept), id
            compile(head + kept, id, "exec")


def without_colon(head, body, entry):
    """The whole function, but for the colon of its first line."""
    return re.sub(rf"(def {entry}\(.*?\)(?: *-> *[^:\n]+)?):", r"\1", head, flags=re.DOTALL) + body


BROKEN = {
    "no colon": without_colon,
    "misspelt import": lambda head, body, _: "imprt collections\n" + head + body,
    "stray bracket": lambda head, body, _: head + body + "\n)\n",
    "stray bracket after the body": lambda head, body, _: body.rstrip("\n") + "\n)\n",
    "stray else": lambda head, body, _: body.rstrip("\n") + "\nelse:\n    pass\n",
    "else before": lambda head, body, _: "else:\n" + head + body,
    "cut short": lambda head, body, _: head + body + "\nprint(\n",
}


@each_case("wrapping", WRAPPINGS.values(), ids=WRAPPINGS)
@each_case("written", BROKEN.values(), ids=BROKEN)
def test_no_broken_solution_is_repaired(data, written, wrapping):
    for id, head, _, kept in completions(data, wrapping, written):
        with pytest.raises(SyntaxError):
            compile(head + kept, id, "exec")


def test_one_wording_for_what_is_too_long(data):
    e = examples("humaneval", "development", data)[0]
    for text in ("x" * (TEXT_LIMIT + 1), "x = 1\n" * CODE_LIMIT):
        (among_others,) = score_all([(text, e)])
        alone = score(text, e)
        assert alone == among_others
        assert (alone.utility, alone.extraction.how) == (0.0, "too long")
        assert re.match(r"\d+ characters( of code)?; at most \d+ are read", alone.reason)


def test_what_a_program_raises_can_be_stored(data):
    e = examples("humaneval", "development", data)[0]
    verdict = score("    raise ValueError('\\ud800')\n", e)
    if verdict.utility is None:
        pytest.skip(f"no sandbox here: {verdict.reason}")
    assert verdict.utility == 0.0
    assert "ValueError" in verdict.reason
    assert "\ufffd" in verdict.reason
    verdict.reason.encode("utf-8")
