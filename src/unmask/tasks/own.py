"""Tasks of your own: prompts from a JSONL file or from Python, and a rule that scores answers to them.

Nothing is registered anywhere. `own` returns a `Task` that holds its examples and its judge, and every example brings
the judge along, so that whoever can take a task of the suite can take this one. docs/tasks.md describes files and
rules.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, SupportsFloat, runtime_checkable

from unmask.base.errors import ConfigError, ContractError, SchemaError, UnknownName, require
from unmask.base.files import format_path, storable
from unmask.base.user_code import CODE_FORMS, code_hash, describe_error, error_message, is_code_name, load_user_code
from unmask.tasks import jsonl, table
from unmask.tasks.base import (
    SPLITS,
    Example,
    Extraction,
    Json,
    OwnExample,
    Task,
    TaskJudge,
    Verdict,
    canonical,
    digest,
)
from unmask.tasks.scoring import extract, utility
from unmask.tasks.scoring.extract import WHOLE_TEXT, RawAnswer, squeeze
from unmask.tasks.splits import cut, rank

KEYS = ("prompt", "target", "id", "split")
TRIED = 3
"""Prompts whose target a scoring function is tried on."""
LEAST = 2
"""Validation prompts: on fewer nothing can be chosen."""
LINEAGE = "own"
"""What splits are ranked with; not the task's name, so that a prompt stays held out under any name."""

NAME_LENGTH = 100
"""Characters of a task's name, which is part of file names."""
LONGEST = 1_000_000
"""Tokens of an answer; no model reads so many."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)


@runtime_checkable
class OwnSource(Protocol):
    """Prompts and their scoring in one object."""

    def prompts(self) -> Iterable[Mapping[str, Any]]: ...
    def score(self, text: str, example: dict[str, Any]) -> float: ...


# Scoring rules


def _exact(text: str, example: Example) -> Verdict:
    """The answer as the suite finds it, character by character."""
    answer = extract.find(text)
    given = answer.text.strip()
    return _binary(text, example, answer, given, given == example.target.strip())


def _answer(text: str, example: Example) -> Verdict:
    """What is inside the tags, or all of the text; runs of whitespace do not matter."""
    answer = _inside(text)
    given = squeeze(answer.text)
    return _binary(text, example, answer, given, given == squeeze(example.target))


def _contains(text: str, example: Example) -> Verdict:
    """The target somewhere in the text; runs of whitespace do not matter."""
    given = squeeze(text)
    return _binary(text, example, RawAnswer(WHOLE_TEXT, text), given, squeeze(example.target) in given)


def _parts(text: str, example: Example) -> Verdict:
    """The share of words in their places; each word too many is one more place."""
    answer = _inside(text)
    return utility.positions(text, example, answer, answer.text.split(), str, ("part", "parts", " "))


def _inside(text: str) -> RawAnswer:
    return extract.tagged(text) or RawAnswer(WHOLE_TEXT, text.strip())


def _binary(text: str, example: Example, answer: RawAnswer, given: str, right: bool) -> Verdict:
    return utility.single(text, example, answer, given, right, ("target", "another text", "no answer"))


RULES: Mapping[str, TaskJudge] = MappingProxyType(
    {
        judge.name: judge
        for judge in (
            TaskJudge("exact", _exact),
            TaskJudge("answer", _answer),
            TaskJudge("contains", _contains),
            TaskJudge("number", utility.number),
            TaskJudge("json", utility.record),
            TaskJudge("parts", _parts),
        )
    }
)


def _by(function: Callable[[str, dict[str, Any]], float], name: str) -> TaskJudge:
    """A user's function as a judge. What it cannot score has no utility; what it must not return is an error.

    It may take as long as it likes, and may be interrupted: `KeyboardInterrupt` is the user's and gets through.
    """

    def judge(text: str, example: Example) -> Verdict:
        asked = {
            "id": example.id,
            "prompt": example.prompt,
            "target": example.constraints.get("target", example.target),
            "split": example.split,
        }
        how = Extraction(text, WHOLE_TEXT, text, text)
        try:
            value = function(text, asked)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            why = f"{name} raised {type(error).__name__} for prompt {example.id}: {error_message(error)}"
            return Verdict(example.id, None, why[:300], how, ())
        return Verdict(example.id, _checked(value, name, example), f"scored by {name}", how, ())

    return TaskJudge(name, judge)


def check_scoring(task: Task) -> None:
    """Try a user's scoring function on a right answer, before hours are spent on others: its prompt's own target.

    It may raise where it cannot tell; if it cannot tell of the targets of the first few prompts, it cannot at all.
    """
    if task.members is None or task.judge.name in RULES:
        return
    reasons = []
    for example in next((part for part in (task.members["validation"], *task.members.values()) if part), ())[:TRIED]:
        verdict = task.judge.judge(example.target, example)
        if verdict.utility is not None:
            return
        reasons.append(verdict.reason)
    raise ConfigError(
        f"the score of {task.name} fails on the targets of its own prompts ({reasons[0]}); allowed: a function of text "
        "and example that returns a number from 0 to 1; correct it"
    )


def _checked(value: Any, name: str, example: Example) -> float:
    """A utility that a user's function returned; a scalar of NumPy is a number too, a text is none."""
    try:
        number = float(value) if isinstance(value, SupportsFloat) else math.nan
    except Exception:  # Whatever its conversion raises, it is no number.
        number = math.nan
    if not 0 <= number <= 1:
        raise ContractError(
            f"{name} returned {_shown(value)} for prompt {example.id!r}; allowed: a number from 0 to 1; "
            "correct the function (it may raise where it cannot tell)"
        )
    return number


# From a name to a task


def task_of(given: str, *, score: str | None = None, horizon: int | None = None) -> Task:
    """A task as a command line names it: of the suite, a JSONL file, or code of the user's, which runs."""
    if not is_own(given):
        task = table.find(given)
        asked = {"score": score, "horizon": horizon}
        for key, value in asked.items():
            require(value is None, f"{key} of {given}", value, "none with a task of the suite", "leave it out")
        return task
    stem = Path(given).stem if _is_file(given) else re.split(r"[.:]", given)[-1] if ":" in given else given
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_") or "own"
    return own(name, given, score=score, horizon=horizon)


def is_own(given: str) -> bool:
    """Whether a text names a file or code; names of the suite have neither dot nor colon nor slash."""
    return any(mark in given for mark in ".:/\0")


def own(
    name: str, prompts: str, *, score: str | None = None, horizon: int | None, folder: str | os.PathLike[str] = "."
) -> Task:
    """A task from a JSONL file (relative to `folder`) or code that returns prompts, and a scoring rule.

    Code is `package.module:function` or `path.py:function`, for prompts and for the rule, and it runs here.

    Prompts that name no split are ranked by a hash of their id; the first half, rounded up, is validation, the rest
    evaluation.
    """
    ok = _NAME.fullmatch(name) is not None and len(name) <= NAME_LENGTH
    require(
        ok,
        "name of an own task",
        name,
        f"up to {NAME_LENGTH} letters, digits, - and _",
        "rename it: files are named after it",
    )
    taken = name in table.TASKS or name in table.CONTROLS
    require(not taken, "name of an own task", name, "one that no task of the suite has", "rename it")
    ok = isinstance(horizon, int) and not isinstance(horizon, bool) and 1 <= horizon <= LONGEST
    todo = "say how many tokens an answer may take: --horizon N on a command line, horizon elsewhere"
    require(ok, f"horizon of {name}", horizon, f"1 to {LONGEST}", todo)
    assert horizon is not None
    source, records = _written(Path(folder) / prompts) if _is_file(prompts) else _produced(prompts, Path(folder))
    rule = _rule(name, score, source, prompts, Path(folder))
    judge = rule.judge
    entries = _entries(records, judge.name)
    members = _split(name, entries, judge)
    least = len(members["validation"])
    require(least >= LEAST, f"validation prompts of {name}", least, f"{LEAST} or more", "add prompts")
    content = [[e.id, e.prompt, e.target, e.split] for e in sorted(entries, key=lambda e: e.id)]
    return Task(
        name=name,
        title=name,
        horizon=horizon,
        source=prompts,
        output="text",
        judge=judge,
        counts=MappingProxyType({split: len(part) for split, part in members.items()}),
        version=digest(judge.name, rule.code, canonical(content)).hex()[:16],
        members=MappingProxyType(members),
    )


@dataclass(frozen=True)
class _Entry:
    """One line, checked."""

    where: str
    id: str
    prompt: str
    target: Json
    split: str | None


def _is_file(given: str) -> bool:
    return given.endswith(".jsonl")


def _entries(records: Iterable[tuple[str, Any]], rule: str) -> list[_Entry]:
    entries: list[_Entry] = []
    prompts: dict[str, str] = {}
    ids: dict[str, str] = {}
    for where, record in records:
        entry = _entry(where, record)
        _check_target(entry, rule)
        for what, seen, key in (("prompt", prompts, squeeze(entry.prompt)), ("id", ids, entry.id)):
            if key in seen:
                raise SchemaError(f"{where} has the {what} of {seen[key]}: {key[:80]!r}; allowed: once; drop one")
            seen[key] = where
        entries.append(entry)
    return entries


def _entry(where: str, record: Any) -> _Entry:
    if not isinstance(record, Mapping):
        raise SchemaError(f"{where} is {_shown(record)}; allowed: a mapping of {', '.join(KEYS)}; write it so")
    for key in record:
        if key not in KEYS:
            raise UnknownName(f"key of {where}", str(key), KEYS)
    for key in ("prompt", "target"):
        if record.get(key) is None:
            raise SchemaError(f"{where} has no {key!r}; allowed: prompt and target on every line; add it")
    prompt, id, split = record["prompt"], record.get("id"), record.get("split")
    if not (isinstance(prompt, str) and prompt.strip()):
        raise SchemaError(f"prompt in {where} is {prompt!r}; allowed: a text; write one")
    if id is not None and (not isinstance(id, str | int) or isinstance(id, bool) or id == ""):
        raise SchemaError(f"id in {where} is {id!r}; allowed: a text or a whole number; leave it out or change it")
    if split is not None and split not in SPLITS:
        raise UnknownName(f"split in {where}", str(split), SPLITS)
    try:
        canonical(record["target"])
    except (TypeError, ValueError) as error:
        raise SchemaError(f"target in {where} is no JSON value ({error}); allowed: a text, a number, ...") from error
    # A byte order mark belongs to the file that a prompt was read from.
    prompt, target = storable(prompt).removeprefix("\ufeff"), record["target"]
    # Without an id the prompt is its own: moving lines about changes nothing.
    id = storable(str(id)) if id is not None else digest(LINEAGE, prompt).hex()[:16]
    return _Entry(where, id, prompt, storable(target) if isinstance(target, str) else target, split)


def _check_target(entry: _Entry, rule: str) -> None:
    """What no answer could ever match, or every answer would, is a mistake in the file."""
    text = _text(entry.target)
    wrong = ""
    if rule in RULES and not text.strip():
        wrong = "a text that is not empty"
    elif rule == "number" and extract.number(text) is None:
        wrong = "a text with a number"
    elif rule == "json" and not isinstance(extract.parse(text).value, dict):
        wrong = "a JSON object"
    if wrong:
        raise SchemaError(f"target in {entry.where} is {text!r}; allowed with the rule {rule!r}: {wrong}; change it")


def _text(target: Json) -> str:
    """A target that is no text is the JSON of it."""
    return target if isinstance(target, str) else canonical(target)


def _split(name: str, entries: list[_Entry], judge: TaskJudge) -> dict[str, tuple[OwnExample, ...]]:
    """Examples by split, in the order of a hash of their ids: the first n are a fair sample."""
    open_ = [e.id for e in entries if e.split is None]
    half = -(-len(open_) // 2)
    dealt = cut(LINEAGE, open_, {"development": 0, "validation": half, "evaluation": len(open_) - half})
    split_of = {id: split for split, ids in dealt.items() for id in ids} | {e.id: e.split for e in entries if e.split}
    by_id = {e.id: e for e in entries}
    members: dict[str, list[OwnExample]] = {split: [] for split in SPLITS}
    for id in rank(LINEAGE, by_id):
        entry, split = by_id[id], split_of[id]
        text = _text(entry.target)
        members[split].append(
            OwnExample(
                prompt=entry.prompt,
                target=text,
                parts=tuple(text.split()),
                constraints={} if isinstance(entry.target, str) else {"target": entry.target},
                level=1,
                id=id,
                task=name,
                split=split,
                judge=judge,
            )
        )
    return {split: tuple(part) for split, part in members.items()}


@dataclass(frozen=True)
class _Rule:
    """A judge, and a hash of the user's code that it is written in, if it is."""

    judge: TaskJudge
    code: str = ""


def _rule(name: str, score: str | None, source: OwnSource | None, prompts: str, folder: Path) -> _Rule:
    if source is not None:
        require(score is None, f"score of {name}", score, f"none: {prompts} has its own", "leave it out")
        return _coded(source.score, f"{prompts}.score")
    if score is None:
        allowed = f"{', '.join(RULES)}, {CODE_FORMS}"
        raise ConfigError(f"score of {name} is missing; allowed: {allowed}; say how answers are scored")
    if score in RULES:
        return _Rule(RULES[score])
    if not is_own(score):
        raise UnknownName("scoring rule", score, [*RULES, CODE_FORMS])
    function = _code(score, folder)
    require(callable(function), f"score of {name}", score, "a function of text and example", "name another")
    return _coded(function, score)


def _coded(function: Callable[[str, dict[str, Any]], float], name: str) -> _Rule:
    """A hash of the code goes along: a run that goes on must not mix two rules of one name."""
    return _Rule(_by(function, storable(name)), code_hash(function))


def _code(name: str, folder: Path) -> Any:
    if not is_code_name(name):
        raise ConfigError(
            f"{format_path(name)} is neither a file of prompts nor code; allowed: a path that ends in .jsonl, or "
            f"{CODE_FORMS} (which runs that code); check the spelling"
        )
    return load_user_code(name, folder)


def _shown(value: Any) -> str:
    """A value as messages show it; its class may be the user's, and fail at that."""
    try:
        return storable(repr(value))[:200]
    except Exception:
        return f"a {type(value).__name__}"


def _written(path: Path) -> tuple[OwnSource | None, Iterator[tuple[str, Any]]]:
    place = format_path(path)
    return None, ((f"line {n} of {place}", record) for n, record in jsonl.read_lines(path))


def _produced(prompts: str, folder: Path) -> tuple[OwnSource | None, Iterator[tuple[str, Any]]]:
    """What code gives: an object with prompts and scoring, or prompts alone."""
    thing = _code(prompts, folder)
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
    numbered = ((f"prompt {n} of {prompts}", record) for n, record in enumerate(records, 1))
    return source, numbered
