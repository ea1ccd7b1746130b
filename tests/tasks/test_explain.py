"""Verdicts in words, and the walk-throughs of docs/tasks.md, which are made from them.

python -m tests.tasks.test_explain      writes them into docs/tasks.md again
"""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.helpers.paths import DOCS
from unmask.tasks import TASKS, Example, Extraction, Verdict, explain, find_task, score
from unmask.tasks.official import gsm8k_example, humaneval_example, json_mode_example

PAGE = DOCS / "tasks.md"
START, END = ("<!-- walk-throughs: made by tests/tasks/test_explain.py -->\n", "<!-- end of walk-throughs -->\n")

WORD_PROBLEM = {
    "question": "A crate holds 24 lemons. Five crates arrive; 7 lemons are spoiled. How many good lemons are there?",
    "answer": "There are 5 * 24 = 120 lemons. Of these 120 - 7 = 113 are good.\n#### 113",
}
FUNCTION = {
    "task_id": "HumanEval/...",
    "prompt": 'def second_largest(xs):\n    """Return the second largest of at least two different numbers."""\n',
    "entry_point": "second_largest",
    "canonical_solution": "    return sorted(set(xs))[-2]\n",
    "test": "def check(candidate):\n    assert candidate([3, 1, 2]) == 2\n    assert candidate([5, 5, 4]) == 4\n",
}
REQUEST = {
    "prompt": [{"role": "user", "content": "Book table 4 for six people at 19:30 under the name Ito."}],
    "completion": '{"name": "Ito", "table": 4, "people": 6, "time": "19:30"}',
    "schema": json.dumps(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "table": {"type": "integer"},
                "people": {"type": "integer"},
                "time": {"type": "string"},
            },
            "required": ["name", "table", "people", "time"],
        }
    ),
}
MADE_UP = {
    "gsm8k": lambda: gsm8k_example(WORD_PROBLEM),
    "humaneval": lambda: humaneval_example(FUNCTION),
    "json-mode-eval": lambda: json_mode_example(REQUEST),
}


def tagged(answer: str) -> str:
    return f"<answer>{answer}</answer>"


def last_span_wrong(e: Example) -> str:
    return tagged(e.target.replace(f"[{len(e.parts)}]={e.parts[-1]}", f"[{len(e.parts)}]=7"))


def one_field_less(e: Example) -> str:
    gold = json.loads(e.target)
    first, *others = gold
    return f"```json\n{json.dumps({key: gold[key] for key in reversed([first, *others[:-1]])})}\n```"


def first_two_swapped(e: Example) -> str:
    a, b, *others = e.parts
    return ", ".join([b, a, *others])


ANSWERS: dict[str, Callable[[Example], str]] = {
    "csv-missing-cells": lambda e: f"The missing value follows from its row. {tagged(f' {e.target} ')}",
    "humaneval": lambda e: (
        f"Sure:\n```python\n{e.constraints['prompt']}    return sorted(xs)[-2]\n```\nThis sorts them."
    ),
    "multi-span-cloze": last_span_wrong,
    "gsm8k": lambda e: "5 * 24 = 120 lemons arrive. 120 - 7 = 113.\nSo 113 lemons are good.",
    "carry-rtl": lambda e: r"Right to left: \boxed{" + "; ".join(f"[{k}]=1" for k in range(1, 4)) + "}",
    "td07-sparse-mask": last_span_wrong,
    "json-mode-eval": lambda e: tagged('{"time": "7:30 pm", "name": "Ito", "people": 6.0, "table": 4}'),
    "constrained-json-fill": one_field_less,
    "unique-list-commit": first_two_swapped,
    "html-close-tags": lambda e: tagged("".join(e.parts[:-1])),
}


def example(name: str) -> Example:
    if name in MADE_UP:
        return replace(MADE_UP[name](), scorer=find_task(name).scorer)
    return min(find_task(name).examples("development")[:40], key=lambda e: (e.level, len(e.prompt)))


def walk_through(name: str) -> str:
    e = example(name)
    verdict = score(ANSWERS[name](e), e)
    origin = "Made up in the form of the data set." if name in MADE_UP else f"`{e.id}`, level {e.level}."
    rows = [
        f"### {find_task(name).title}\n",
        f"{origin}\n",
        f"```text\n{e.prompt.rstrip()}\n```\n",
        f"Target: `{' '.join(e.target.split())}`\n",
        "```text\n" + "\n".join(explain(verdict)) + "\n```\n",
    ]
    return "\n".join(rows)


def walk_throughs() -> str:
    return "\n".join(walk_through(name) for name in TASKS)


def test_docs_are_true():
    written = PAGE.read_text(encoding="utf-8").partition(START)[2].partition(END)[0]
    if score(FUNCTION["canonical_solution"], example("humaneval")).utility is None:
        pytest.skip("no sandbox here for the walk-through of HumanEval")
    assert written.strip() == walk_throughs().strip(), "run python tests/tasks/test_explain.py"


def test_long_texts_are_shortened():
    verdict = Verdict("x", None, "no sandbox", Extraction("a" * 10_000, "nothing", "", ""), ())
    lines = explain(verdict)
    assert max(map(len, lines)) < 200
    assert lines[-1].endswith("unavailable: no sandbox")


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{START}\n{walk_throughs()}\n{END}{after}", encoding="utf-8")
