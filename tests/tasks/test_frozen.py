"""Hashes of everything that models were trained on and results rest on: prompts, splits, training streams, verdicts.

A hash that differs means that published prompts or utilities have moved. Who moves them on purpose raises the task's
version, and writes the new values with `python -m tests.tasks.test_frozen DATA > tests/tasks/frozen.json`.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from itertools import islice
from pathlib import Path

import pytest

from unmask.tasks import (
    CONTROLS,
    SPLITS,
    TASKS,
    Example,
    Task,
    explain_verdict,
    find_task,
    own_task,
    score,
    words,
    write_example_line,
)
from unmask.tasks.code_answers import find_completion
from unmask.tasks.draw import Draw, canonical_json, digest
from unmask.train.texts import make_arithmetic_text, make_code_text, make_english_text

FILE = Path(__file__).with_name("frozen.json")
CONSTRUCTED = [name for name, task in {**TASKS, **CONTROLS}.items() if task.generator]
OFFICIAL = [name for name in TASKS if name not in CONSTRUCTED]
TEXTS = {"english": make_english_text, "arithmetic": make_arithmetic_text, "code": make_code_text}
STARTS = (0, 3 * 10**9, 10**15)  # a training run, another seed's, and the stream of fresh prompts
ROWS = 40

Hashes = Iterator[tuple[str, str]]


def hash_of(values: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(values).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def lines(task: str, rows: Iterable[Example]) -> Iterator[str]:
    return (write_example_line(row, find_task(task).prompts_version) for row in rows)


# What a model might write, from the number of the row, its target and the target of the row before.

WRITERS: Mapping[str, Callable[[int, str, str], str]] = {
    "gold": lambda i, target, other: f"<answer>{target}</answer>",
    "bare": lambda i, target, other: target,
    "spaced": lambda i, target, other: f"Thus:\n<ANSWER>\n  {target.replace(' ', '   ')}\t\n</answer> done",
    "box": lambda i, target, other: f"We get \\boxed{{{other}}} or rather \\boxed{{ {target} }}.",
    "fence": lambda i, target, other: f"Sure! Here it is:\n```json\n{target}\n```\nHope this helps.",
    "fence last": lambda i, target, other: f"Here it is:\n```\n{target}\n```",
    "cut": lambda i, target, other: f"<answer>{target[: 1 + len(target) * (i % 5) // 5]}",
    "unopened": lambda i, target, other: f"{target}</answer> and more",
    "twice": lambda i, target, other: f"<answer>{other}</answer> no: <answer>{target}</answer> <answer>",
    "other": lambda i, target, other: f"<answer>{other}</answer>",
    "upper": lambda i, target, other: f"<answer> {target.upper()} . </answer>",
    "too many": lambda i, target, other: f"<answer>{target}{['; [9]=x', ', more', '</b>', ' 17'][i % 4]}</answer>",
    "hedged": lambda i, target, other: f"<answer>{target}\n{other}</answer>",
    "reversed": lambda i, target, other: f"<answer>{','.join(reversed(target.split(',')))}</answer>",
    "heading": lambda i, target, other: f"#### Step {i}\n{other}\n#### {target}",
    "heading first": lambda i, target, other: f"#### Final answer\n{target}",
    "numbers": lambda i, target, other: [
        f"so ${target}.00",
        f"{target},000 or {target}%",
        f"-{target}",
        f"\\frac{{{target}}}{{1}}",
        f"{target}e0",
        f"3, {target} apples",
        f"1/0, {target}/2",
        "1" * 101,
    ][i % 8],
    "objects": lambda i, target, other: [
        f'{{"a": 1}} then {target}',
        target.replace("}", ', "extra": [1.0, true, null]}'),
        f"[{target}]",
        target.replace('"', "'"),
        "{" * 70 + "}" * 70,
        f"{{ {target}",
        '{"a": NaN}',
        target.replace(":", ": 1e999 , "),
    ][i % 8],
    "nothing": lambda i, target, other: ["", "<answer></answer>", "I cannot say.", "[]", "é\n\n,,", "\ud800"][i % 6],
    "long": lambda i, target, other: "a" * (1 << 18) + target if i % 20 == 0 else target + " " * 300,
}

CODE_WRITERS: Mapping[str, Callable[[str, str], str]] = {
    "body": lambda head, body: body,
    "whole": lambda head, body: head + body,
    "fence": lambda head, body: f"Sure:\n```python\n{head}{body}```\nThis is right.",
    "fence in tags": lambda head, body: f"<answer>\n```\n{body}\n```\n</answer>",
    "open fence": lambda head, body: f"Here it is:\n```python\n{head}{body}\nThis works because it does.",
    "closing fence": lambda head, body: f"{body}\n```\nThat is all.",
    "tags": lambda head, body: f"<answer>{head}{body}</answer>",
    "stripped": lambda head, body: body.strip(),
    "dedented": lambda head, body: "\n".join(row[4:] for row in body.split("\n")),
    "tabs": lambda head, body: body.replace("    ", "\t").replace("\n", "\r\n"),
    "prose": lambda head, body: f"The function is easy.\n\n{head}{body}\nNote that it returns at once.\n",
    "two blocks": lambda head, body: f"```\nimport os\n```\nand\n```\n{head}{body}\n```\n```\nprint(1)\n```",
    "broken": lambda head, body: head + body.replace(")", "", 1),
    "outside": lambda head, body: f"return 1\n{body}\nreturn 2",
    "nothing": lambda head, body: "I cannot write it.",
    "long": lambda head, body: body + "#" * (1 << 15),
}

OWN_RULES = ("exact", "answer", "contains", "number", "json", "parts")
OWN_NUMBERS = ("12", "-3.5", "1,234")
OWN_OBJECTS = ('{"a": 1, "b": "two"}', '{"1": []}')
OWN_TEXTS = ("a b  c", "Gate; courier", *OWN_NUMBERS, *OWN_OBJECTS)
OWN_TARGETS = {"number": OWN_NUMBERS, "json": OWN_OBJECTS}


def verdict_text(text: str, example: Example) -> str:
    verdict = score(text, example)
    return json.dumps([asdict(verdict), verdict.paper_utility, explain_verdict(verdict)], sort_keys=True)


def verdicts(prefix: str, rows: list[Example]) -> Hashes:
    for kind, write in WRITERS.items():
        texts = (write(i, row.target, rows[i - 1].target) for i, row in enumerate(rows))
        yield f"{prefix}/{kind}", hash_of(verdict_text(text, row) for text, row in zip(texts, rows, strict=True))


def constructed_hashes(name: str) -> Hashes:
    for split in SPLITS:
        yield f"split/{name}/{split}", hash_of(lines(name, find_task(name).examples(split)))
    for start in STARTS:
        yield f"training/{name}/{start}", hash_of(lines(name, islice(find_task(name).training(start), 300)))
    yield from verdicts(f"verdicts/{name}", list(find_task(name).examples("validation")[:ROWS]))


def official_hashes(name: str, data: Path) -> Hashes:
    for split in SPLITS:
        yield f"split/{name}/{split}", hash_of(lines(name, find_task(name).examples(split, data)))
    if name == "gsm8k":
        yield f"training/{name}", hash_of(lines(name, find_task(name).training(0, data)))
    rows = list(find_task(name).examples("evaluation", data)[:ROWS])
    if name != "humaneval":
        yield from verdicts(f"verdicts/{name}", rows)
        return
    for kind, write in CODE_WRITERS.items():
        found = []
        for row in rows:
            head = str(row.constraints["prompt"])
            extraction = find_completion(write(head, row.target), head, str(row.constraints["entry_point"]))
            found.append(json.dumps(asdict(extraction), sort_keys=True))
        yield f"code/{kind}", hash_of(found)


def own_hashes(folder: Path) -> Hashes:
    """Ids, splits, version and verdicts of tasks of one's own, by scoring rule."""
    for rule in OWN_RULES:
        targets = OWN_TARGETS.get(rule, OWN_TEXTS)
        records: list[dict[str, object]] = [
            {"prompt": f"Say {at}: {target}", "target": target} for at in range(5) for target in targets
        ]
        # A target that is no text, a number as id, and a split of its own.
        records.append({"prompt": "Say 5", "target": {"json": [5]}, "id": 5, "split": "development"})
        path = folder / "mine.jsonl"
        path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
        task = own_task("mine", str(path), scorer=rule, max_new_tokens=8)
        yield from task_hashes(f"own/{rule}", task)
    fills = [("cat", "red wool"), ("dog", "a b  c"), ("12", "x")]
    records = [{"text": f"{n}: the [MASK] on the [MASK*2] mat.", "target": list(fills[n % 3])} for n in range(15)]
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    yield from task_hashes("own/blanks", own_task("mine", str(path), scorer="blanks"))


def task_hashes(prefix: str, task: Task) -> Hashes:
    yield prefix, hash_of([task.version, canonical_json(dict(task.counts))])
    rows = [row for split in SPLITS for row in task.examples(split)]
    yield f"{prefix}/rows", hash_of(write_example_line(row, task.version) for row in rows)
    yield from verdicts(f"{prefix}/verdicts", rows)
    if rows[0].has_blanks:
        yield f"{prefix}/filled", hash_of(verdict_text("\n".join(row.parts), row) for row in rows)


def word_hashes() -> Hashes:
    for name, value in vars(words).items():
        if name.isupper() and not name.startswith("_"):
            yield f"words/{name}", hash_of([canonical_json(value)])


def text_hashes() -> Hashes:
    for name, write in TEXTS.items():
        drawn = (write(Draw(digest("unmask", "train", name, str(i)))) for i in range(400))
        yield f"texts/{name}", hash_of(canonical_json(list(pair)) for pair in drawn)


@lru_cache(maxsize=1)
def frozen() -> dict[str, str]:
    values: dict[str, str] = json.loads(FILE.read_text("utf-8"))
    return values


def check(found: Hashes, *prefixes: str) -> None:
    found_now = dict(found)
    expected = {key: value for key, value in frozen().items() if key.startswith(prefixes)}
    assert found_now.keys() == expected.keys()
    assert [key for key in expected if found_now[key] != expected[key]] == []


@pytest.mark.parametrize("name", CONSTRUCTED)
def test_constructed_tasks_stay(name: str) -> None:
    check(constructed_hashes(name), f"split/{name}/", f"training/{name}/", f"verdicts/{name}/")


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_tasks_stay(name: str, data: Path) -> None:
    code = ("code/",) if name == "humaneval" else ()
    check(official_hashes(name, data), f"split/{name}/", f"training/{name}", f"verdicts/{name}/", *code)


def test_own_tasks_stay(tmp_path: Path) -> None:
    check(own_hashes(tmp_path), "own/")


def test_words_and_texts_stay() -> None:
    check(word_hashes(), "words/")
    check(text_hashes(), "texts/")


if __name__ == "__main__":
    import tempfile

    values = dict([*word_hashes(), *text_hashes()])
    for task_name in CONSTRUCTED:
        values |= constructed_hashes(task_name)
    for task_name in OFFICIAL:
        values |= official_hashes(task_name, Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as place:
        values |= own_hashes(Path(place))
    print(json.dumps(values, indent=0, sort_keys=True))
