"""The terminal utility u(y, e) of an output, in [0, 1], and how it came about.

The small functions at the top are the utilities of the paper on values that have been read already. The judges below
do all of it: extract, normalise, compare part by part, add up; each task says which of them is its own. A wrong
answer, however odd, scores 0; only what is no fault of the answer, such as a checker that could not run, has no
utility.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

from unmask.base.errors import ConfigError
from unmask.base.files import storable
from unmask.tasks.base import Example, Extraction, Json, Part, Verdict, canonical
from unmask.tasks.scoring import extract
from unmask.tasks.scoring.extract import RawAnswer, fold, squeeze

_ELSEWHERE = re.compile(r'"\$(?:ref|dynamicRef|recursiveRef)":"(?!#)')

# The utilities


def binary(accepted: bool) -> float:
    """1 if the evaluator accepts the output, else 0."""
    return float(accepted)


def part_credit(right: Sequence[bool], surplus: int = 0) -> float:
    """The share of the K target parts that are right, Eq. (eq:part_credit).

    `surplus` counts parts beyond the K that were asked for, where those are errors in themselves: a ninth item in a
    list of eight. They add to the number of parts, so that only an exact answer scores 1. The paper's equation knows no
    surplus: `Verdict.paper_utility` leaves it out.
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


def _tally(right: Sequence[bool], unit: str) -> str:
    return f"{sum(right)} of {len(right)} {unit} right"


def single(
    text: str,
    example: Example,
    answer: RawAnswer,
    given: str,
    right: bool,
    words: tuple[str, str, str],
    shown: str = "",
) -> Verdict:
    """The verdict on an answer that is right or not; `words` name the target, another answer, and none.

    `shown` is the answer as the verdict shows it, where that is not what is compared.
    """
    name, another, none = words
    return Verdict(
        example.id,
        binary(right),
        f"the {name}" if right else another if given else none,
        Extraction(text, answer.how, answer.text, given),
        (Part(name, example.target, shown or given or None, right),),
    )


def cell(text: str, example: Example) -> Verdict:
    """One cell, in the case it is written in."""
    answer = extract.find(text)
    given, gold = squeeze(answer.text), squeeze(example.target)
    words = ("cell", "another value", "no answer")
    return single(text, example, answer, given, given == gold, words, shown=answer.text)


def spans(text: str, example: Example) -> Verdict:
    """Eq. (eq:part_credit) over indexed spans."""
    answer = extract.find(text)
    given = extract.spans(answer.text)
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
        Extraction(text, answer.how, answer.text, normalised),
        tuple(parts),
    )


def items(text: str, example: Example) -> Verdict:
    """The share of positions of a list with the right item; each item too many is one more position."""
    answer = extract.find(text)
    return positions(text, example, answer, extract.items(answer.text), fold, ("item", "items", ","))


def closing_tags(text: str, example: Example) -> Verdict:
    """The share of positions with the right tag; 0 if the answer is not closing tags only."""
    answer = extract.find(text)
    names = extract.closing_tags(answer.text)
    verdict = positions(
        text, example, answer, [f"</{name}>" for name in names or ()], str.lower, ("tag", "closing tags", "")
    )
    if names is not None:
        return verdict
    return Verdict(verdict.id, 0.0, "something other than closing tags", verdict.extraction, verdict.parts)


def positions(
    text: str,
    example: Example,
    answer: RawAnswer,
    given: Sequence[str],
    norm: Callable[[str], str],
    words: tuple[str, str, str],
) -> Verdict:
    """Part credit place by place; `words` are the names of a part and of several, and what stands between them."""
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
        Extraction(text, answer.how, answer.text, joint.join(norm(item) for item in given)),
        parts,
        surplus,
    )


def number(text: str, example: Example) -> Verdict:
    """The final number."""
    answer = extract.find_number(text)
    given, gold = extract.number(answer.text), extract.number(example.target)
    spelled = "" if given is None else str(given)
    right = given is not None and given == gold
    return single(text, example, answer, spelled, right, ("number", "another number", "no number"))


def record(text: str, example: Example) -> Verdict:
    """The share of fields of an object that are right; a field nobody asked for is one more, and wrong."""
    return _object(text, example, schema=None, count_surplus=True)


def schema_record(text: str, example: Example) -> Verdict:
    """0 if not JSON or against the schema, else the share of gold fields that are right.

    The paper counts gold fields and nothing else, and whether others may be present is for the schema to say.
    """
    return _object(text, example, schema=example.constraints["schema"], count_surplus=False)


def _object(text: str, example: Example, schema: Json, count_surplus: bool) -> Verdict:
    gold = extract.parse(example.target).value
    if not isinstance(gold, dict):
        raise ConfigError(f"the target of {example.id} is not a JSON object; allowed: an object; mend the example")
    answer = extract.find_object(text)
    parsed = extract.json_object(answer.text)
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
        Extraction(text, answer.how, parsed.text, "" if given is None else extract.spell(given)),
        parts,
        len(surplus),
    )


def _against(schema: Json, value: Json) -> str:
    """How a value breaks a schema; empty if it does not, or if there is none."""
    if schema is None:
        return ""
    validator = _validator(canonical(schema))
    try:
        broken = next(validator.iter_errors(value), None)
    except Exception as error:
        raise ConfigError(
            f"a schema cannot be applied ({type(error).__name__}: {storable(str(error))[:200]}); allowed: JSON Schema "
            "by the book; mend the example"
        ) from error
    # A value may hold what a JSON text can escape and no file can store.
    return storable(f"breaks the schema: {broken.message[:200]}") if broken else ""


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    jsonschema = _jsonschema()
    if elsewhere := _ELSEWHERE.search(schema):
        target = schema[elsewhere.end() :].partition('"')[0]
        raise ConfigError(
            f"a schema refers to {target!r}; allowed: references inside of it, "
            "which begin with '#': nothing is fetched to judge an answer; mend the example"
        )
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
