"""A run as plain values that every page draws: what changed at each step, how sure the model was, who acted and why."""

import html
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from unmask.base.errors import ConfigError, SchemaError, format_value
from unmask.base.files import storable
from unmask.core import State, Step, Trajectory
from unmask.look.gates import gate_reading
from unmask.look.page import asset, page
from unmask.models import Codec

FORMAT = 1
"""Goes up when an older page could not draw a newer record, or the other way round."""

Record = dict[str, Any]
"""JSON's types only."""
Spell = Callable[[int], str]
"""The text of one token."""


def run_record(
    trajectory: Trajectory,
    row: int,
    codec: Codec,
    *,
    prompt: str | None = None,
    model: str | None = None,
    policy: str | None = None,
    score: float | None = None,
    explanation: str | None = None,
    ends: Collection[int] | None = None,
    top: int = 0,
    top_masked: bool = False,
) -> Record:
    """One row of a recorded run.

    `prompt`, `model` and `policy` are the run's own unless said, as `generate`, `infill` and `branch` note them. `ends`
    are the tokens that only fill up a canvas: those that end a text, unless said. `top` asks for so many alternatives
    of each position that a step changes, and under `top_masked` of each that it could have: as many as were recorded.
    """
    own = trajectory.row(row)
    if not own.steps:
        raise ConfigError(f"row {row} has no steps; allowed: a recorded run; decode it again with record=True")
    spell, config = spelling(codec), own.config or {}
    first, last = own.steps[0].state, own.state
    length = int(last.length_B[0])
    fillers = ends_of(codec) if ends is None else frozenset(ends)
    final, answer = last.tokens_BL[0, :length].tolist(), last.answer_BL[0, :length].tolist()
    return {
        "format": FORMAT,
        "model": storable(_named(config.get("model")) if model is None else model),
        "policy": storable(_policy(own) if policy is None else policy),
        "prompt": storable(_prompt(own, codec) if prompt is None else prompt),
        "text": storable(_text(config, final, answer, codec)),
        "score": score,
        "explanation": None if explanation is None else storable(explanation),
        "tokens": canvas_tokens(first, spell),
        "fixed": [not free for free in answer],
        "filler": [free and token in fillers for token, free in zip(final, answer, strict=True)],
        "steps": [
            step_record(step, after, spell, number=number, config=config, top=top, top_masked=top_masked)
            for number, (step, after) in enumerate(_transitions(own), 1)
        ],
    }


def step_record(
    step: Step,
    after: State,
    spell: Spell,
    *,
    number: int,
    at: int = 0,
    config: Mapping[str, Any] | None = None,
    top: int = 0,
    top_masked: bool = False,
) -> Record:
    """One step of the row that stands at index `at` of it; `number` counts from 1, `after` is the state it led to.

    Whoever streams a run makes these as the steps happen; `config` is the run's, and says where a gate opens.
    """
    changes = list(_changes(step, after, spell, at))
    gate = gate_reading(step, at, number, config or {})
    record: Record = {
        "step": number,
        "changes": changes,
        "policy": storable(step.policy),
        "why": ". ".join(filter(None, (gate.why, _remasks(changes)))),
        "signal": gate.signal,
        "threshold": gate.threshold,
        "open": gate.open,
    }
    if top:
        places = {change[0] for change in changes}
        if top_masked:
            places |= set(step.state.masked_BL[at].nonzero().flatten().tolist())
        record["top"] = _top(step, at, sorted(places), top, spell)
    return record


def canvas_tokens(state: State, spell: Spell, at: int = 0) -> list[str | None]:
    """The text at each position of a row; None where it is masked."""
    length = int(state.length_B[at])
    tokens, masked = state.tokens_BL[at, :length].tolist(), state.masked_BL[at, :length].tolist()
    return [None if blank else spell(token) for token, blank in zip(tokens, masked, strict=True)]


def spelling(codec: Codec) -> Spell:
    """The codec for one token at a time; the tokens of a run are few, so each is looked up once."""
    return cache(lambda token: storable(codec.decode([token])))


def ends_of(codec: Codec) -> frozenset[int]:
    """The tokens that end a text, where the codec knows any: behind an answer they fill up its canvas."""
    return frozenset(getattr(codec, "eos_ids", ()))


def filler_texts(codec: Codec) -> list[str]:
    """How those tokens are spelt: a page that follows a run needs them before there is a final canvas."""
    return sorted(map(spelling(codec), ends_of(codec)))


def check_record(record: Any) -> Record:
    """The record itself, or a refusal that says what to do: it may come from a file, or of another version."""
    again = "make it again from the trajectory, with `unmask show`"
    named = record.get("format") if isinstance(record, dict) else None
    if named != FORMAT or isinstance(named, bool):
        what = (
            f"format of the run record is {format_value(named)}"
            if isinstance(record, dict)
            else f"it is {format_value(record)}"
        )
        raise SchemaError(f"{what}; allowed: {FORMAT}; {again}")
    missing = sorted(_KEYS - record.keys())
    if missing:
        raise SchemaError(f"the run record has no {', '.join(missing)}; allowed: all of them; {again}")
    lengths = {name: len(record[name]) if isinstance(record[name], list) else -1 for name in _PER_POSITION}
    if len(set(lengths.values())) != 1 or -1 in lengths.values() or not isinstance(record["steps"], list):
        raise SchemaError(f"the run record has lists of lengths {lengths}; allowed: one entry per position; {again}")
    for number, step in enumerate(record["steps"], 1):
        _check_step(step, number, lengths["tokens"], again)
    return record


def run_page(record: Record) -> str:
    """A whole page around one run."""
    check_record(record)
    title = f"{record['model'] or 'a model'} decoded by {record['policy'] or 'a policy'}"
    body = f"""<main>
<h1>{html.escape(title)}</h1>
{_facts(record)}
<div id="grid"></div>
<footer>Made by unmask. This page needs no network.</footer>
</main>"""
    begin = "unmaskGrid(document.getElementById('grid'), JSON.parse(document.getElementById('run').textContent), {});"
    return page(title, body, styles=[asset("grid.css")], scripts=[asset("grid.js"), begin], data={"run": record})


def runs_page(records: Sequence[Record], note: str = "") -> str:
    """A whole page around several runs, the rows of one decode: one below the other."""
    if len(records) == 1 and not note:
        return run_page(records[0])
    for record in records:
        check_record(record)
    parts = [
        f'<section>\n<h2>Row {row}</h2>\n{_facts(record)}\n<div id="grid-{row}"></div>\n</section>'
        for row, record in enumerate(records)
    ]
    title = f"{len(records)} run{'s' * (len(records) != 1)}"
    body = "\n".join(["<main>", f"<h1>{title}</h1>", *parts, f"<p>{html.escape(note)}</p>" if note else "", "</main>"])
    begin = "".join(
        f"unmaskGrid(document.getElementById('grid-{row}'), "
        f"JSON.parse(document.getElementById('run-{row}').textContent), {{}});\n"
        for row in range(len(records))
    )
    data = {f"run-{row}": record for row, record in enumerate(records)}
    return page(title, body, styles=[asset("grid.css")], scripts=[asset("grid.js"), begin], data=data)


_PER_POSITION = ("tokens", "fixed", "filler")
_KEYS = {"model", "policy", "prompt", "text", "score", "explanation", "steps", *_PER_POSITION}


def _check_step(step: Any, number: int, length: int, again: str) -> None:
    keys = {"step", "changes", "policy", "why", "signal", "threshold", "open"}
    ok = isinstance(step, dict) and keys <= step.keys() and isinstance(step["changes"], list)
    if not ok or not all(_is_change(change, length) for change in step["changes"]):
        raise SchemaError(f"step {number} of the run record makes no sense; allowed: what run_record makes; {again}")


def _is_change(change: Any, length: int) -> bool:
    if not (isinstance(change, Sequence) and len(change) == 3 and isinstance(change[0], int)):
        return False
    return 0 <= change[0] < length and isinstance(change[1], str | None) and isinstance(change[2], float | int | None)


def _transitions(own: Trajectory) -> Iterator[tuple[Step, State]]:
    """Every step with the state it led to: that of the next one, or the last."""
    later = [*(step.state for step in own.steps[1:]), own.state]
    return zip(own.steps, later, strict=True)


def _changes(step: Step, after: State, spell: Spell, at: int) -> Iterator[list[Any]]:
    """In the order in which they happen: what is re-masked may be filled in the same step, with the same token even."""
    length = int(after.length_B[at])
    before, now = (state.tokens_BL[at, :length].tolist() for state in (step.state, after))
    masked = after.masked_BL[at, :length].tolist()
    revealed, remasked = (flags[at, :length].tolist() for flags in (step.revealed_BL, step.remasked_BL))
    sure = step.confidence_BL[at, :length].tolist()
    for position in range(length):
        moved = before[position] != now[position]
        if remasked[position] or (moved and masked[position]):
            yield [position, None, None]
        if not masked[position] and (revealed[position] or moved):
            known = revealed[position] and math.isfinite(sure[position])
            yield [position, spell(now[position]), round(sure[position], 4) if known else None]


def _remasks(changes: Sequence[Sequence[Any]]) -> str:
    count = sum(text is None for _, text, _ in changes)
    return f"{count} position{'s' * (count > 1)} re-masked" if count else ""


def _top(step: Step, at: int, places: Sequence[int], top: int, spell: Spell) -> dict[str, list[list[Any]]]:
    """The most probable tokens of positions that the forward was asked about."""
    seen = step.prediction
    wanted = seen.wanted_BN[at].tolist()
    found = {}
    for position in places:
        if wanted[position]:
            tokens, shares = (x[at, position, :top].tolist() for x in (seen.clean.top_BNK, seen.clean.p_BNK))
            found[str(position)] = [[spell(token), round(p, 4)] for token, p in zip(tokens, shares, strict=True)]
    return found


def _text(config: Mapping[str, Any], final: Sequence[int], answer: Sequence[bool], codec: Codec) -> str:
    """As the run's own result has it."""
    if config.get("task") == "infill":
        return codec.text(final)
    places = [place for place, free in enumerate(answer) if free]
    return codec.answer(final[places[0] : places[-1] + 1]) if places else ""


def _prompt(own: Trajectory, codec: Codec) -> str:
    """As it was typed; without a note of that, the given tokens before the first blank."""
    rows = (own.config or {}).get("rows")
    asked = rows[0].get("prompt") if isinstance(rows, list) and rows and isinstance(rows[0], Mapping) else None
    if isinstance(asked, str):
        return asked
    if isinstance(asked, list):
        return "\n\n".join(
            f"{turn.get('role', '')}: {turn.get('content', '')}" for turn in asked if isinstance(turn, Mapping)
        )
    free = own.state.answer_BL[0].tolist()
    return codec.decode(own.state.tokens_BL[0, : free.index(True) if True in free else 0].tolist())


def _named(part: Any) -> str:
    return str(part.get("name", "")) if isinstance(part, Mapping) else ""


def _policy(own: Trajectory) -> str:
    return _named((own.config or {}).get("policy")) or own.steps[-1].policy


def _facts(record: Record) -> str:
    """What was asked and what came out, above the grid."""
    facts = [("Prompt", record["prompt"]), ("Answer", record["text"])]
    if record["score"] is not None:
        facts.append(("Score", f"{record['score']:.4g}"))
    if record["explanation"]:
        facts.append(("Explanation", record["explanation"]))
    lines = "".join(f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in facts)
    return f'<dl class="facts">{lines}</dl>'
