"""The terminal utility u(y, e) of an output, in [0, 1], and how it came about.

The small functions at the top are the utilities of the paper on values that have been read already. `score` does all
of it: extract, normalise, compare part by part, add up. A wrong answer, however odd, scores 0; only what is no fault
of the answer, such as a checker that could not run, has no utility.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

from unmask.errors import ConfigError, UnknownName
from unmask.tasks.base import Example, Json, OwnExample, canonical
from unmask.tasks.scoring import extract, programs
from unmask.tasks.scoring.extract import TEXT_LIMIT, TOO_LONG, Extraction, fold, squeeze
from unmask.tasks.scoring.verdict import Part, Verdict

# The utilities


def binary(accepted: bool) -> float:
    """1 if the evaluator accepts the output, else 0."""
    return float(accepted)


def part_credit(right: Sequence[bool], surplus: int = 0) -> float:
    """The share of the K target parts that are right, Eq. (eq:part_credit).

    `surplus` counts parts beyond the K that were asked for, where those are errors in themselves: a ninth item in a
    list of eight. They add to the number of parts, so that only an exact answer scores 1.
    """
    parts = len(right) + surplus
    return sum(right) / parts if parts else 1.0


def same(a: Json, b: Json) -> bool:
    """Whether two JSON values are equal.

    Numbers are equal if their values are: JSON has one kind of number, so 1 is 1.0. Strings must agree in every
    character, lists in order, objects in keys and values but not in the order of keys. true is not 1.
    """
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def fields_right(given: Mapping[str, Json], gold: Mapping[str, Json]) -> list[bool]:
    """For each top-level field of the gold object, whether the given object has it with the same value."""
    return [key in given and same(given[key], value) for key, value in gold.items()]


# From an output to a verdict


def score(text: str, example: Example) -> Verdict:
    """Score one output. Never raises for the sake of the output, and takes time linear in it."""
    judge = example.judge if isinstance(example, OwnExample) else JUDGES.get(example.task)
    if judge is None:
        raise UnknownName("task", example.task, JUDGES)
    if len(text) > TEXT_LIMIT:
        return Verdict(
            example.id,
            0.0,
            f"{len(text)} characters; at most {TEXT_LIMIT} are read",
            Extraction(text, TOO_LONG, "", ""),
            tuple(Part(str(k), part, None, False) for k, part in enumerate(example.parts, 1)),
        )
    return judge(text, example)


def utility(text: str, example: Example) -> float | None:
    """u(y, e): the number alone."""
    return score(text, example).utility


def _tally(right: Sequence[bool], unit: str) -> str:
    return f"{sum(right)} of {len(right)} {unit} right"


def _cell(text: str, example: Example) -> Verdict:
    """CSV Missing Cells: the cell, in the case it is written in."""
    found = extract.find(text)
    given, gold = squeeze(found.text), squeeze(example.target)
    right = given == gold
    return Verdict(
        example.id,
        binary(right),
        "the cell" if right else "another value" if given else "no answer",
        Extraction(text, found.how, found.text, given),
        (Part("cell", example.target, found.text or None, right),),
    )


def _spans(text: str, example: Example) -> Verdict:
    """Multi-Span Cloze, Carry RTL and TD07 Sparse Mask: Eq. (eq:part_credit) over indexed spans."""
    found = extract.find(text)
    given = extract.spans(found.text)
    parts = []
    for index, gold in enumerate(example.parts, 1):
        values = given.get(index, ())
        # Two values for one blank are no answer; else a model could hedge.
        agrees = len(values) == 1 and fold(values[0]) == fold(gold)
        parts.append(Part(f"[{index}]", gold, " | ".join(values) if values else None, agrees))
    normalised = "; ".join(f"[{index}]={fold(value)}" for index, values in given.items() for value in values)
    right = [part.right for part in parts]
    return Verdict(
        example.id,
        part_credit(right),
        _tally(right, "spans"),
        Extraction(text, found.how, found.text, normalised),
        tuple(parts),
    )


def _list(text: str, example: Example) -> Verdict:
    """Unique List Commit: the share of positions with the right item; each item too many is one more position."""
    found = extract.find(text)
    return positions(text, example, found, extract.items(found.text), fold, ("item", "items", ","))


def _tags(text: str, example: Example) -> Verdict:
    """HTML Close Tags: the share of positions with the right tag; 0 if the answer is not closing tags only."""
    found = extract.find(text)
    names = extract.closing_tags(found.text)
    verdict = positions(
        text, example, found, [f"</{name}>" for name in names or ()], str.lower, ("tag", "closing tags", "")
    )
    if names is not None:
        return verdict
    return Verdict(verdict.id, 0.0, "something other than closing tags", verdict.extraction, verdict.parts)


def positions(
    text: str,
    example: Example,
    found: extract.Found,
    given: Sequence[str],
    norm: Callable[[str], str],
    words: tuple[str, str, str],
) -> Verdict:
    name, unit, joint = words
    gold = example.parts
    parts = tuple(
        Part(
            f"{name} {k + 1}",
            gold[k],
            given[k] if k < len(given) else None,
            k < len(given) and norm(given[k]) == norm(gold[k]),
        )
        for k in range(len(gold))
    )
    right = [part.right for part in parts]
    surplus = max(len(given) - len(gold), 0)
    return Verdict(
        example.id,
        part_credit(right, surplus),
        _tally(right, unit) + (f", {surplus} too many" if surplus else ""),
        Extraction(text, found.how, found.text, joint.join(norm(item) for item in given)),
        parts,
    )


def number(text: str, example: Example) -> Verdict:
    """GSM8K: the final number."""
    found = extract.find_number(text)
    given, gold = extract.number(found.text), extract.number(example.target)
    right = given is not None and given == gold
    spelled = "" if given is None else str(given)
    return Verdict(
        example.id,
        binary(right),
        "the number" if right else "another number" if spelled else "no number",
        Extraction(text, found.how, found.text, spelled),
        (Part("number", example.target, spelled or None, right),),
    )


def record(text: str, example: Example) -> Verdict:
    """Constrained JSON Fill: the share of fields that are right; a field nobody asked for is one more, and wrong."""
    return _object(text, example, schema=None, count_surplus=True)


def _schema_record(text: str, example: Example) -> Verdict:
    """JSON Mode Eval: 0 if not JSON or against the schema, else the share of gold fields that are right.

    The paper counts gold fields and nothing else, and whether others may be present is for the schema to say.
    """
    schema = example.constraints["schema"]
    return _object(text, example, schema=schema, count_surplus=False)


def _object(text: str, example: Example, schema: Json, count_surplus: bool) -> Verdict:
    gold = extract.parse(example.target).value
    if not isinstance(gold, dict):
        raise ConfigError(f"the target of {example.id} is not a JSON object; allowed: an object; mend the example")
    found = extract.find_object(text)
    parsed = extract.json_object(found.text)
    given = parsed.value if isinstance(parsed.value, dict) else None
    problem = parsed.problem if given is None else _against(schema, given)
    right = fields_right(given, gold) if given is not None else [False] * len(gold)
    surplus = sorted(given.keys() - gold.keys()) if given is not None and count_surplus else []
    parts = tuple(
        Part(key, extract.spell(value), extract.spell(given[key]) if given and key in given else None, ok)
        for (key, value), ok in zip(gold.items(), right, strict=True)
    )
    return Verdict(
        example.id,
        0.0 if problem else part_credit(right, len(surplus)),
        problem or _tally(right, "fields") + (f", {len(surplus)} too many" if surplus else ""),
        Extraction(text, found.how, parsed.text, "" if given is None else extract.spell(given)),
        parts,
    )


def _against(schema: Json, value: Json) -> str:
    """How a value breaks a schema; empty if it does not, or if there is none."""
    if schema is None:
        return ""
    error = next(_validator(canonical(schema)).iter_errors(value), None)
    return f"breaks the schema: {error.message[:200]}" if error else ""


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    jsonschema = _jsonschema()
    parsed = extract.parse(schema).value
    return jsonschema.validators.validator_for(parsed, default=jsonschema.Draft202012Validator)(parsed)


def _jsonschema() -> Any:
    try:
        import jsonschema
    except ImportError:
        _need_jsonschema()
    return jsonschema


def _need_jsonschema() -> NoReturn:
    raise ConfigError(
        "the Python package jsonschema is not installed, and JSON Mode Eval checks answers against their schemas; "
        "allowed: version 4 or newer; run `pip install jsonschema`"
    )


JUDGES: dict[str, Callable[[str, Example], Verdict]] = {
    "csv-missing-cells": _cell,
    "humaneval": programs.judge,
    "multi-span-cloze": _spans,
    "gsm8k": number,
    "carry-rtl": _spans,
    "td07-sparse-mask": _spans,
    "td07-clustered-mask": _spans,
    "json-mode-eval": _schema_record,
    "constrained-json-fill": record,
    "unique-list-commit": _list,
    "html-close-tags": _tags,
}
