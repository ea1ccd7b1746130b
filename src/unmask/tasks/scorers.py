"""Score an output: extract the answer, normalise it, compare it part by part, add up.

Each task says which `score_...` function is its own. A wrong answer, however odd, scores 0; only trouble that is no
fault of the answer, such as a checker that could not run, leaves an output without a utility.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from unmask.base.errors import ConfigError
from unmask.base.files import storable
from unmask.tasks import extract
from unmask.tasks.draw import Json, canonical_json
from unmask.tasks.extract import RawAnswer, normalise_spaces, normalise_text
from unmask.tasks.task import Example, Extraction, Part, Verdict

SHOWN_WIDTH = 100
"""Longest text that `explain_verdict` shows whole, in characters."""

# A reference that does not begin with # names another document, which jsonschema would fetch over the network.
_OUTSIDE_REFERENCE = re.compile(r'"\$(?:ref|dynamicRef|recursiveRef)":"(?!#)')


def part_credit(right: Sequence[bool], surplus: int = 0) -> float:
    """Return the share of the K target parts that are right, Eq. (eq:part_credit).

    `surplus` counts parts beyond the K that were asked for, where those are errors in themselves: a ninth item in a
    list of eight. They add to the number of parts, so that only an exact answer scores 1. The paper's equation knows no
    surplus: `Verdict.paper_utility` leaves it out.
    """
    parts = len(right) + surplus
    return sum(right) / parts if parts else 1.0


def json_equal(a: Json, b: Json) -> bool:
    """Compare two JSON values by meaning.

    Numbers are equal if their values are: JSON has one kind of number, so 1 is 1.0. Strings must agree in every
    character, lists in order, objects in keys and values but not in the order of keys. true is not 1.
    """
    # Truth values first: to Python True is 1.
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(json_equal(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(json_equal, a, b))
    return type(a) is type(b) and a == b


def score_right_or_wrong(
    text: str,
    example: Example,
    answer: RawAnswer,
    given: str,
    right: bool,
    *,
    name: str,
    other: str,
    none: str,
    shown: str = "",
) -> Verdict:
    """Return the verdict on an answer that is either right or wrong, without partial credit.

    `name`, `other` and `none` say in words what a right answer, another one and no answer is. `shown` is the answer as
    the verdict shows it, where that is not the text that is compared.
    """
    return Verdict(
        example.id,
        float(right),
        f"the {name}" if right else other if given else none,
        Extraction(text, answer.how, answer.text, given),
        (Part(name, example.target, shown or given or None, right),),
    )


def score_cell(text: str, example: Example) -> Verdict:
    """Score the value of one table cell: right or wrong. Case matters, the amount of whitespace does not."""
    answer = extract.find_answer(text)
    given = normalise_spaces(answer.text)
    right = given == normalise_spaces(example.target)
    names = {"name": "cell", "other": "another value", "none": "no answer"}
    return score_right_or_wrong(text, example, answer, given, right, **names, shown=answer.text)


def score_number(text: str, example: Example) -> Verdict:
    """Score the final number of an output: right or wrong."""
    answer = extract.find_number(text)
    given, gold = extract.parse_number(answer.text), extract.parse_number(example.target)
    spelled = "" if given is None else str(given)
    right = given is not None and given == gold
    return score_right_or_wrong(
        text, example, answer, spelled, right, name="number", other="another number", none="no number"
    )


def score_spans(text: str, example: Example) -> Verdict:
    """Score the answers to numbered blanks by the share that is right, Eq. (eq:part_credit)."""
    answer = extract.find_answer(text)
    given = extract.parse_spans(answer.text)
    parts = []
    for index, gold in enumerate(example.parts, 1):
        values = given.get(index, ())
        # Two values for one blank are no answer; else a model could hedge.
        agrees = len(values) == 1 and normalise_text(values[0]) == normalise_text(gold)
        parts.append(Part(f"[{index}]", gold, " | ".join(values) if values else None, agrees))
    normalised = "; ".join(f"[{index}]={normalise_text(value)}" for index, values in given.items() for value in values)
    right = [part.right for part in parts]
    extraction = Extraction(text, answer.how, answer.text, normalised)
    return Verdict(example.id, part_credit(right), _describe_right_parts(right, "spans"), extraction, tuple(parts))


def score_items(text: str, example: Example) -> Verdict:
    """Score a list by the share of its positions with the right item. Each surplus item is one more, wrong position."""
    answer = extract.find_answer(text)
    given = extract.parse_items(answer.text)
    return score_positions(
        text, example, answer, given, normalise=normalise_text, part="item", parts="items", joint=","
    )


def score_closing_tags(text: str, example: Example) -> Verdict:
    """Score closing tags by the share of positions with the right tag; 0 if the answer holds anything else."""
    answer = extract.find_answer(text)
    names = extract.parse_closing_tags(answer.text)
    given = [f"</{name}>" for name in names or ()]
    verdict = score_positions(
        text, example, answer, given, normalise=str.lower, part="tag", parts="closing tags", joint=""
    )
    if names is not None:
        return verdict
    return Verdict(verdict.id, 0.0, "something other than closing tags", verdict.extraction, verdict.parts)


def score_positions(
    text: str,
    example: Example,
    answer: RawAnswer,
    given: Sequence[str],
    *,
    normalise: Callable[[str], str],
    part: str,
    parts: str,
    joint: str,
) -> Verdict:
    """Score an answer by the share of its positions with the right part, Eq. (eq:part_credit).

    `part` and `parts` name one and several positions in the verdict; `joint` stands between two parts of the answer.
    """
    compared = tuple(
        Part(
            f"{part} {k + 1}",
            gold,
            given[k] if k < len(given) else None,
            k < len(given) and normalise(given[k]) == normalise(gold),
        )
        for k, gold in enumerate(example.parts)
    )
    right = [one.right for one in compared]
    surplus = max(len(given) - len(example.parts), 0)
    return Verdict(
        example.id,
        part_credit(right, surplus),
        _describe_right_parts(right, parts, surplus),
        Extraction(text, answer.how, answer.text, joint.join(map(normalise, given))),
        compared,
        surplus,
    )


def score_json_object(text: str, example: Example) -> Verdict:
    """Score a JSON object by the share of fields that are right. Each surplus field counts as one more, wrong field."""
    return _score_json_fields(text, example, schema=None, count_surplus=True)


def score_json_with_schema(text: str, example: Example) -> Verdict:
    """Score a JSON object by the share of target fields that are right; 0 if it is not JSON or violates the schema.

    As in the paper, other fields do not count; the schema says whether they may be present.
    """
    return _score_json_fields(text, example, schema=example.constraints["schema"], count_surplus=False)


def _score_json_fields(text: str, example: Example, schema: Json, count_surplus: bool) -> Verdict:
    gold = extract.parse_json_value(example.target).value
    if not isinstance(gold, dict):
        raise ConfigError(f"the target of {example.id} is not a JSON object; allowed: an object; mend the example")
    answer = extract.find_json_object(text)
    parsed = extract.parse_json_object(answer.text)
    given = parsed.value if isinstance(parsed.value, dict) else None
    problem = parsed.problem if given is None else _describe_schema_error(schema, given)
    parts = tuple(
        Part(
            key,
            extract.spell_json(value),
            extract.spell_json(given[key]) if given and key in given else None,
            given is not None and key in given and json_equal(given[key], value),
        )
        for key, value in gold.items()
    )
    right = [part.right for part in parts]
    surplus = len(given.keys() - gold.keys()) if given is not None and count_surplus else 0
    return Verdict(
        example.id,
        0.0 if problem else part_credit(right, surplus),
        problem or _describe_right_parts(right, "fields", surplus),
        Extraction(text, answer.how, parsed.text, "" if given is None else extract.spell_json(given)),
        parts,
        surplus,
    )


def _describe_right_parts(right: Sequence[bool], parts: str, surplus: int = 0) -> str:
    return f"{sum(right)} of {len(right)} {parts} right" + (f", {surplus} too many" if surplus else "")


def _describe_schema_error(schema: Json, value: Json) -> str:
    """Say how a value violates a JSON schema; return an empty text if it does not, or if there is no schema."""
    if schema is None:
        return ""
    validator = _make_validator(canonical_json(schema))
    try:
        broken = next(validator.iter_errors(value), None)
    except Exception as error:
        raise ConfigError(
            f"a schema cannot be applied ({type(error).__name__}: {storable(str(error))[:200]}); allowed: JSON Schema "
            "by the book; mend the example"
        ) from error
    # The message quotes the value, which may hold what a JSON text can escape and no file can store.
    return storable(f"breaks the schema: {broken.message[:200]}") if broken else ""


@lru_cache(maxsize=1024)
def _make_validator(schema: str) -> Any:
    import jsonschema  # Here, because only JSON Mode Eval needs it.

    if reference := _OUTSIDE_REFERENCE.search(schema):
        target = schema[reference.end() :].partition('"')[0]
        raise ConfigError(
            f"a schema refers to {target!r}; allowed: references inside of it, "
            "which begin with '#': nothing is fetched to score an answer; mend the example"
        )
    # Cached by its text: thousands of answers are checked against the same few schemas.
    parsed = extract.parse_json_value(schema).value
    return jsonschema.validators.validator_for(parsed, default=jsonschema.Draft202012Validator)(parsed)


def explain_verdict(verdict: Verdict) -> list[str]:
    """Explain a verdict in lines of text: the output, the extracted answer, each part, and the utility."""
    steps = verdict.extraction
    utility = "unavailable" if verdict.utility is None else f"{verdict.utility:.4g}"
    rows = [
        # As Python spells them: line ends and control characters become escapes.
        ("output", _shorten(repr(steps.raw))),
        ("found by", steps.how),
        ("extracted", _shorten(repr(steps.extracted))),
        ("normalised", _shorten(repr(steps.normalised))),
        *((part.name, _explain_part(part)) for part in verdict.parts),
        ("utility", f"{utility}: {verdict.reason}"),
    ]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows]


def _explain_part(part: Part) -> str:
    if part.right:
        return f"right: {_shorten(part.expected)}"
    return f"wrong: {'nothing' if part.given is None else _shorten(part.given)}, expected {_shorten(part.expected)}"


def _shorten(text: str) -> str:
    if len(text) <= SHOWN_WIDTH:
        return text
    return f"{text[: SHOWN_WIDTH // 2]} [...] {text[-SHOWN_WIDTH // 3 :]}"
