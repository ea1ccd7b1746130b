"""Tasks of your own: prompts from a JSONL file or from Python, and a rule that scores answers to them.

Nothing is registered anywhere. `own_task` returns a `Task` that holds its examples, and every example carries its
scorer, so all that works with a task of the suite works with this one. docs/tasks.md describes files and rules.
"""

import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol, Self, SupportsFloat, runtime_checkable

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from unmask.base.errors import ConfigError, ContractError, SchemaError, UnknownName, format_value, require
from unmask.base.files import format_path, storable
from unmask.base.options import Options
from unmask.base.user_code import CODE_FORMS, code_hash, describe_error, error_message, is_code_name, load_user_code
from unmask.tasks import extract, scorers
from unmask.tasks.draw import Json, canonical_json, digest
from unmask.tasks.extract import WHOLE_TEXT, RawAnswer, normalise_spaces
from unmask.tasks.files import read_jsonl
from unmask.tasks.registry import CONTROLS, TASKS, find_task
from unmask.tasks.splits import rank_ids, split_ids
from unmask.tasks.task import SPLITS, Example, Extraction, Part, Scorer, Task, Verdict, score

TRIED_TARGETS = 3
"""Number of targets on which a user's scoring function is tried before a run; it must be able to score one."""
MIN_VALIDATION = 2
"""Least number of validation prompts of a task. With fewer, nothing can be chosen on them."""
RANK_NAME = "own"
"""Name that ids are ranked under. Not the task's name, so that a prompt stays held out under any name."""
NAME_LENGTH = 100
"""Longest name of a task, in characters: it is part of file names."""
LONGEST_ANSWER = 1_000_000
"""Longest answer that a task may ask for, in tokens; no model reads so many."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)

# JSON can hold halves of characters, which neither a file nor pydantic takes.
Storable = BeforeValidator(lambda value: storable(value) if isinstance(value, str) else value)
_TEXT: dict[str, JsonValue] = {"allowed": "a text that is not empty", "hint": "write one"}


class Row(Options):
    """One row of a user's task: a prompt, or a text with blanks to fill, and the right answer."""

    prompt: Annotated[str | None, Storable] = Field(None, pattern=r"\S", json_schema_extra=_TEXT)
    text: Annotated[str | None, Storable] = Field(None, pattern=r"\S", json_schema_extra=_TEXT)
    """Text with blanks to fill, given instead of a prompt."""
    target: Annotated[Any, Storable]
    """Right answer: a text or another JSON value, and a list of texts for a text with several runs of blanks."""
    id: Annotated[str | int | None, Storable] = Field(
        None, json_schema_extra={"allowed": "a text or a whole number", "hint": "leave it out or change it"}
    )
    split: Literal["development", "validation", "evaluation"] | None = None

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        ok = (self.prompt is None) != (self.text is None)
        given = "neither" if self.prompt is None else "both"
        require(ok, "prompt or text", given, "one of them", "a text has blanks to fill, a prompt has none")
        require(self.target is not None, "target", None, "a text, a number, ...", "say what the right answer is")
        require(self.id != "", "id", "", "a text that is not empty", "leave it out or change it")
        return self


ScoreFunction = Callable[[str, dict[str, Any]], float]


@runtime_checkable
class OwnSource(Protocol):
    """Interface of a user's object that gives prompts and scores the answers to them."""

    def prompts(self) -> Iterable[Mapping[str, Any]]: ...
    def score(self, text: str, example: dict[str, Any]) -> float: ...


# Scoring rules


def _make_text_rule(
    name: str,
    find: Callable[[str], RawAnswer],
    normalise: Callable[[str], str],
    matches: Callable[[str, str], bool] = operator.eq,
) -> Scorer:
    """Make a scoring rule that compares the answer in an output with the target, both normalised."""

    def score_one(text: str, example: Example) -> Verdict:
        answer = find(text)
        given = normalise(answer.text)
        words = {"name": "target", "other": "another text", "none": "no answer"}
        right = matches(given, normalise(example.target))
        return scorers.score_right_or_wrong(text, example, answer, given, right, **words)

    return Scorer(name, score_one)


def _find_tagged_or_whole_text(text: str) -> RawAnswer:
    return extract.find_tagged_answer(text) or RawAnswer(WHOLE_TEXT, text.strip())


def _score_parts(text: str, example: Example) -> Verdict:
    """Score an answer by the share of words that are right at their position. Each surplus word counts as wrong."""
    answer = _find_tagged_or_whole_text(text)
    words = answer.text.split()
    return scorers.score_positions(text, example, answer, words, normalise=str, part="part", parts="parts", joint=" ")


def _score_blanks(text: str, example: Example) -> Verdict:
    """Score filled blanks by the share of runs that equal their target. The amount of whitespace does not matter."""
    fills = [normalise_spaces(fill) for fill in _split_into_fills(text, example)]
    parts = tuple(
        Part(f"[{k}]", gold, fill, fill is not None and fill == normalise_spaces(gold))
        for k, (gold, fill) in enumerate(zip_longest(example.parts, fills[: len(example.parts)]), 1)
    )
    right = [part.right for part in parts]
    extraction = Extraction(text, extract.FILLED_BLANKS, text, extract.write_spans(fills))
    reason = f"{sum(right)} of {len(right)} blanks right"
    return Verdict(example.id, scorers.part_credit(right), reason, extraction, parts)


def _split_into_fills(text: str, example: Example) -> list[str]:
    return text.split("\n") if len(example.parts) > 1 else [text]


_RULES = (
    # The answer as the suite finds it, character by character. In the others runs of whitespace do not matter.
    _make_text_rule("exact", extract.find_answer, str.strip),
    _make_text_rule("answer", _find_tagged_or_whole_text, normalise_spaces),
    _make_text_rule("contains", lambda text: RawAnswer(WHOLE_TEXT, text), normalise_spaces, operator.contains),
    Scorer("number", scorers.score_number),
    Scorer("json", scorers.score_json_object),
    Scorer("parts", _score_parts),
    Scorer("blanks", _score_blanks),
)
RULES: Mapping[str, Scorer] = MappingProxyType({rule.name: rule for rule in _RULES})


def _wrap_score_function(function: ScoreFunction, name: str) -> Scorer:
    """Make a scorer that calls a user's scoring function.

    If the function raises, the output has no utility. A value that is no number from 0 to 1 is an error
    of the function and stops the run. The function may take any time. A `KeyboardInterrupt` passes through.
    """

    def score_one(text: str, example: Example) -> Verdict:
        values = {"id": example.id, "target": _raw_target(example), "split": example.split}
        if example.has_blanks:
            values |= {"text": example.prompt, "fills": _split_into_fills(text, example)}
        else:
            values["prompt"] = example.prompt
        extraction = Extraction(text, WHOLE_TEXT, text, text)
        try:
            result = function(text, values)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # SystemExit included: a scoring function must not be able to end the run.
            reason = f"{name} raised {type(error).__name__} for prompt {example.id}: {error_message(error)}"
            return Verdict(example.id, None, reason[:300], extraction, ())
        try:
            # A scalar of NumPy is a number too, a text is none.
            utility = float(result) if isinstance(result, SupportsFloat) else math.nan
        except Exception:  # Whatever its conversion raises, it is no number.
            utility = math.nan
        if not 0 <= utility <= 1:
            raise ContractError(
                f"{name} returned {storable(format_value(result, 200))} for prompt {example.id!r}; allowed: a number "
                "from 0 to 1; correct the function (it may raise where it cannot tell)"
            )
        return Verdict(example.id, utility, f"scored by {name}", extraction, ())

    return Scorer(name, score_one)


def check_scorer(task: Task) -> None:
    """Refuse a task whose scoring function fails on the targets of its own prompts, before hours are spent decoding.

    The function may raise where it cannot tell; but it must be able to score one of the first few targets.
    """
    if not is_file_or_code(task.source) or task.scorer.name in RULES:
        return
    reasons = []
    parts = [task.examples(split) for split in ("validation", *SPLITS)]
    for example in next((part for part in parts if part), ())[:TRIED_TARGETS]:
        verdict = score("\n".join(example.parts) if example.has_blanks else example.target, example)
        if verdict.utility is not None:
            return
        reasons.append(verdict.reason)
    raise ConfigError(
        f"the scorer of {task.name} fails on the targets of its own prompts ({reasons[0]}); allowed: a function of "
        "text and example that returns a number from 0 to 1; correct it"
    )


# From a name to a task


def is_file_or_code(given: str) -> bool:
    """Return whether a text names a user's file or code; names of the suite's tasks have no dot, colon or slash."""
    return any(mark in given for mark in ".:/\0")


def open_task(given: str, *, scorer: str | None = None, max_new_tokens: int | None = None) -> Task:
    """Return the task that a command line names: one of the suite, a JSONL file of prompts, or the user's own code."""
    if not is_file_or_code(given):
        task = find_task(given)
        for key, value in {"scorer": scorer, "max_new_tokens": max_new_tokens}.items():
            require(value is None, f"{key} of {given}", value, "none with a task of the suite", "leave it out")
        return task
    stem = Path(given).stem if given.endswith(".jsonl") else re.split(r"[.:]", given)[-1] if ":" in given else given
    # Names of tasks become parts of file names.
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_") or "own"
    return own_task(name, given, scorer=scorer, max_new_tokens=max_new_tokens)


def own_task(
    name: str,
    prompts: str,
    *,
    scorer: str | None = None,
    max_new_tokens: int | None = None,
    folder: str | os.PathLike[str] = ".",
) -> Task:
    """Make a task from prompts (a JSONL file relative to `folder`, or code) and a scoring rule.

    Code is `package.module:function` or `path.py:function`, for prompts and for the rule, and it runs here. Prompts
    that name no split are ranked by a hash of their id: the first half, rounded up, is validation, the rest evaluation.

    A row may hold a `text` with blanks instead of a `prompt`. Such a task asks to fill; its texts say how many tokens
    there are to fill, so it takes no `max_new_tokens`.
    """
    allowed = f"up to {NAME_LENGTH} letters, digits, - and _"
    ok = _NAME.fullmatch(name) is not None and len(name) <= NAME_LENGTH
    require(ok, "name of an own task", name, allowed, "rename it: files are named after it")
    is_free = name not in TASKS and name not in CONTROLS
    require(is_free, "name of an own task", name, "one that no task of the suite has", "rename it")
    # Prompts come first: a file that is not there is reported before anything that is missing about it.
    source, records = _read_rows(prompts, Path(folder))
    rule, rule_hash = _load_scorer(name, scorer, source, prompts, Path(folder))
    examples: list[Example] = []
    places: dict[tuple[str, str], str] = {}
    for where, record in records:
        example = _make_example(where, record, name, rule)
        # Compared without runs of whitespace: such twins could land on both sides of a split.
        for kind, key in (("prompt", normalise_spaces(example.prompt)), ("id", example.id)):
            first = places.setdefault((kind, key), where)
            if first != where:
                raise SchemaError(f"{where} has the {kind} of {first}: {key[:80]!r}; allowed: once; drop one")
        examples.append(example)
    max_new_tokens = _choose_max_new_tokens(name, examples, max_new_tokens)
    splits = _split_examples(examples)
    validation = len(splits["validation"])
    enough = validation >= MIN_VALIDATION
    require(enough, f"validation prompts of {name}", validation, f"{MIN_VALIDATION} or more", "add prompts")
    content: Json = [
        [one.id, {"text": one.prompt} if one.has_blanks else one.prompt, _raw_target(one), one.split or None]
        for one in sorted(examples, key=lambda one: one.id)
    ]
    # The hash of the user's code is part of the version: a run that goes on must not mix two rules of one name.
    version = digest(rule.name, rule_hash, canonical_json(content)).hex()[:16]
    return Task(
        name=name,
        title=name,
        max_new_tokens=max_new_tokens,
        source=prompts,
        output="text",
        scorer=rule,
        counts=MappingProxyType({split: len(part) for split, part in splits.items()}),
        version=version,
        prompts_version=version,
        make_splits=lambda data_dir: splits,
    )


def _make_example(where: str, record: Any, task: str, rule: Scorer) -> Example:
    """Check a row of a user's task, and make an example of it. Its split stays empty if the row names none.

    Targets that no answer could ever match, or every answer would, are refused: they are mistakes in the file.
    """
    row = Row.from_table(record, where)
    # A byte order mark belongs to the file that a prompt was read from.
    prompt = (row.text or row.prompt or "").removeprefix("\ufeff")
    try:
        target = row.target if isinstance(row.target, str) else canonical_json(row.target)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"target of {where} is no JSON value ({error}); allowed: a text, a number, ...") from error
    wrong = ""
    if rule.name in RULES and not target.strip():
        wrong = "a text that is not empty"
    elif rule.name == "number" and extract.parse_number(target) is None:
        wrong = "a text with a number"
    elif rule.name == "json" and not isinstance(extract.parse_json_value(target).value, dict):
        wrong = "a JSON object"
    require(not wrong, f"target of {where}", target, f"{wrong}, for the rule {rule.name!r}", "change it")
    has_blanks = row.text is not None
    parts = tuple(target.split())
    if has_blanks or rule.name == "blanks":
        parts = _read_blank_targets(prompt, row.target, where, rule.name)
    return Example(
        prompt=prompt,
        target=target,
        parts=parts,
        constraints={} if isinstance(row.target, str) else {"target": row.target},
        level=1,
        # Without an id the prompt is its own: moving lines about changes nothing.
        id=str(row.id) if row.id is not None else digest(RANK_NAME, prompt).hex()[:16],
        task=task,
        split=row.split or "",
        has_blanks=has_blanks,
        scorer=rule,
    )


def _raw_target(example: Example) -> Json:
    """Return the target as the user gave it: a text or another JSON value."""
    return example.constraints.get("target", example.target)


def _read_blank_targets(text: str, target: Json, where: str, rule: str) -> tuple[str, ...]:
    """Check a text with blanks and its target; return the target text of each run of blanks."""
    pieces, counts = extract.cut_at_blanks(text)
    ok = bool(counts) and 0 not in counts
    require(ok, f"text of {where}", text, "one [MASK] or [MASK*5] or more", "mark the blanks")
    allowed = "words between two runs of blanks, or one run [MASK*N]"
    require(all(piece.strip() for piece in pieces[1:-1]), f"text of {where}", text, allowed, "join the runs")
    golds = target if isinstance(target, list) else [target]
    ok = all(isinstance(gold, str) for gold in golds) and len(golds) == len(counts)
    allowed = f"a text for each of {len(counts)} runs of blanks, in a list"
    require(ok, f"target of {where}", target, allowed, "correct it")
    ok = len(counts) == 1 or rule == "blanks" or rule not in RULES
    allowed = f"'blanks', or a function, for {len(counts)} runs of blanks"
    require(ok, f"rule for {where}", rule, allowed, "choose another: it reads one run")
    return tuple(storable(str(gold)) for gold in golds)


def _choose_max_new_tokens(name: str, examples: Sequence[Example], max_new_tokens: int | None) -> int:
    """Return the longest output in tokens: as the user says for prompts, the number of blanks for texts with blanks."""
    if any(example.has_blanks for example in examples):
        is_mixed = not all(example.has_blanks for example in examples)
        require(not is_mixed, f"rows of {name}", "prompts and texts", "one of them", "make two tasks of them")
        hint = "leave it out: texts say how many blanks they have"
        require(max_new_tokens is None, f"max_new_tokens of {name}", max_new_tokens, "none", hint)
        return max(sum(extract.cut_at_blanks(example.prompt)[1]) for example in examples)
    ok = type(max_new_tokens) is int and 1 <= max_new_tokens <= LONGEST_ANSWER
    hint = "say how many tokens an answer may take (in a study file: horizon)"
    require(ok, f"max_new_tokens of {name}", max_new_tokens, f"1 to {LONGEST_ANSWER}", hint)
    assert max_new_tokens is not None
    return max_new_tokens


def _split_examples(examples: list[Example]) -> Mapping[str, tuple[Example, ...]]:
    """Assign examples without a split to one, and return all examples by split, in the order of hashes of their ids."""
    open_ids = [example.id for example in examples if not example.split]
    # Rounded up, because nothing can be evaluated before something was chosen.
    half = -(-len(open_ids) // 2)
    counts = {"development": 0, "validation": half, "evaluation": len(open_ids) - half}
    split_of = {id: split for split, ids in split_ids(RANK_NAME, open_ids, counts).items() for id in ids}
    by_id = {one.id: replace(one, split=one.split or split_of[one.id]) for one in examples}
    ranked = [by_id[id] for id in rank_ids(RANK_NAME, by_id)]
    return {split: tuple(one for one in ranked if one.split == split) for split in SPLITS}


# The user's files and code


def _read_rows(prompts: str, folder: Path) -> tuple[OwnSource | None, list[tuple[str, Any]]]:
    """Read rows, each with its place, from a JSONL file or code; also return the user's object if it has a scorer."""
    if prompts.endswith(".jsonl"):
        return None, list(read_jsonl(folder / prompts))
    thing = _load_code(prompts, folder)
    try:
        # A class is not yet its object.
        if isinstance(thing, type) or not isinstance(thing, OwnSource):
            thing = thing()
        source = thing if isinstance(thing, OwnSource) else None
        records = list(thing.prompts() if source is not None else thing)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{prompts} gives no prompts ({describe_error(error)}); allowed: a function that "
            "returns mappings of prompt and target, or an object with .prompts() and .score(text, example); correct it"
        ) from error
    return source, [(f"prompt {n} of {prompts}", record) for n, record in enumerate(records, 1)]


def _load_scorer(
    name: str, given: str | None, source: OwnSource | None, prompts: str, folder: Path
) -> tuple[Scorer, str]:
    """Return the scorer of a user's task, and the hash of its code, which is empty for built-in rules."""
    if source is not None:
        require(given is None, f"scorer of {name}", given, f"none: {prompts} has its own", "leave it out")
        return _wrap_score_function(source.score, storable(f"{prompts}.score")), code_hash(source.score)
    if given is None:
        allowed = f"{', '.join(RULES)}, {CODE_FORMS}"
        raise ConfigError(f"scorer of {name} is missing; allowed: {allowed}; say how answers are scored")
    if given in RULES:
        return RULES[given], ""
    if not is_file_or_code(given):
        raise UnknownName("scoring rule", given, [*RULES, CODE_FORMS])
    function = _load_code(given, folder)
    require(callable(function), f"scorer of {name}", given, "a function of text and example", "name another")
    return _wrap_score_function(function, storable(given)), code_hash(function)


def _load_code(name: str, folder: Path) -> Any:
    if not is_code_name(name):
        raise ConfigError(
            f"{format_path(name)} is neither a file of prompts nor code; allowed: a path that ends in .jsonl, or "
            f"{CODE_FORMS} (which runs that code); check the spelling"
        )
    return load_user_code(name, folder)
