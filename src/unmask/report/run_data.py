"""A run as plain values, format 1, which every page draws: what each step changed, how sure the model was, who acted.

The values are JSON's types. A step has its changes, the policy that took it, and the status of the gate, if it has one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from unmask.adapt import DetectorRule, noted_diagnostics
from unmask.base.errors import ConfigError
from unmask.base.files import storable
from unmask.core import State, Step, Trajectory
from unmask.models import Codec, Prompt

FORMAT = 1
"""Goes up when an older page could not draw newer values, or a newer page older ones."""

RunData = dict[str, Any]
Spell = Callable[[int], str]
"""Returns the text of one token."""


def run_data(
    trajectory: Trajectory,
    row: int,
    codec: Codec,
    *,
    prompt: str | None = None,
    model: str | None = None,
    policy: str | None = None,
    score: float | None = None,
    explanation: str | None = None,
    top: int = 0,
) -> RunData:
    """Return one row of a recorded run as plain values.

    `prompt`, `model` and `policy` are read from the run's configuration where they are not given. `top` adds the most
    probable tokens at each position that a step changes, at most as many as were recorded.
    """
    own = trajectory.row(row)
    if not own.steps:
        raise ConfigError(f"row {row} has no steps; allowed: a recorded run; decode it again with record=True")
    spell, config = token_speller(codec), own.config or {}
    first, last = own.steps[0].state, own.state
    length = int(last.length_B[0])
    final, answer = last.tokens_BL[0, :length].tolist(), last.answer_BL[0, :length].tolist()
    ends = end_tokens(codec)
    states_after = [*(step.state for step in own.steps[1:]), last]
    return {
        "format": FORMAT,
        "model": storable(_read_name(config.get("model")) if model is None else model),
        "policy": storable(_read_name(config.get("policy")) or own.steps[-1].policy if policy is None else policy),
        "prompt": storable(_prompt_text(own, codec) if prompt is None else prompt),
        "text": storable(_answer_text(config, final, answer, codec)),
        "score": score,
        "explanation": None if explanation is None else storable(explanation),
        "tokens": token_texts(first, spell),
        "fixed": [not free for free in answer],
        "filler": [free and token in ends for token, free in zip(final, answer, strict=True)],
        "steps": [
            step_data(step, after, spell, number=number, config=config, top=top)
            for number, (step, after) in enumerate(zip(own.steps, states_after, strict=True), start=1)
        ],
    }


def step_data(
    step: Step,
    after: State,
    spell: Spell,
    *,
    number: int,
    at: int = 0,
    config: Mapping[str, Any] | None = None,
    top: int = 0,
) -> RunData:
    """Return one step of the row at index `at`, so that a page can follow a run while it is decoded.

    `number` counts from 1, `after` is the state that the step led to, and `config` is that of the run: its policy says
    where the gate opens.
    """
    changes = list(_list_changes(step, after, spell, at))
    gate = gate_status(step, at, number, config or {})
    remasked = sum(text is None for _, text, _ in changes)
    reasons = [gate.why, f"{remasked} position{'s' * (remasked > 1)} re-masked" if remasked else ""]
    data: RunData = {
        "step": number,
        "changes": changes,
        "policy": storable(step.policy),
        "why": ". ".join(filter(None, reasons)),
        "signal": gate.signal,
        "threshold": gate.threshold,
        "open": gate.is_open,
    }
    if top:
        data["top"] = _top_tokens(step, at, sorted({change[0] for change in changes}), top, spell)
    return data


def token_texts(state: State, spell: Spell) -> list[str | None]:
    """Return the text at each position of a state's first row; None where it is masked."""
    length = int(state.length_B[0])
    tokens, masked = state.tokens_BL[0, :length].tolist(), state.masked_BL[0, :length].tolist()
    return [None if blank else spell(token) for token, blank in zip(tokens, masked, strict=True)]


def token_speller(codec: Codec) -> Spell:
    """Return a function that spells one token; a run has few different ones, so each is decoded once."""
    return cache(lambda token: storable(codec.decode([token])))


def end_tokens(codec: Codec) -> frozenset[int]:
    """Return the tokens that end a text; behind an answer they only fill up the canvas."""
    return frozenset(getattr(codec, "eos_ids", ()))


@dataclass(frozen=True)
class TokenNumbers:
    """Codec for a run whose tokenizer is not on this machine: writes tokens as <17>, and reads nothing."""

    mask_id: int
    mask: str = "[MASK]"
    closing: tuple[int, ...] = ()

    def encode(self, prompt: Prompt) -> list[int]:
        raise ConfigError("a prompt cannot be read without a tokenizer; allowed: numbers to text; load the model")

    def canvas(self, text: str) -> list[int]:
        raise ConfigError("a text cannot be read without a tokenizer; allowed: numbers to text; load the model")

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.mask if token == self.mask_id else f"<{token}>" for token in tokens)

    answer = text = decode


def _list_changes(step: Step, after: State, spell: Spell, at: int) -> Iterator[list[Any]]:
    """Yield [position, text, confidence] in the order in which things happen in a step.

    Re-masking comes first, because the same step may fill a position again, even with the token that it had.
    """
    length = int(after.length_B[at])
    before, now = (state.tokens_BL[at, :length].tolist() for state in (step.state, after))
    masked = after.masked_BL[at, :length].tolist()
    revealed, remasked = (flags[at, :length].tolist() for flags in (step.revealed_BL, step.remasked_BL))
    confidence = step.confidence_BL[at, :length].tolist()
    for position in range(length):
        moved = before[position] != now[position]
        if remasked[position] or (moved and masked[position]):
            yield [position, None, None]
        if not masked[position] and (revealed[position] or moved):
            known = revealed[position] and math.isfinite(confidence[position])
            yield [position, spell(now[position]), round(confidence[position], 4) if known else None]


def _top_tokens(step: Step, at: int, positions: Sequence[int], top: int, spell: Spell) -> dict[str, list[list[Any]]]:
    """Return the most probable tokens, with their probabilities, at positions that the forward predicted."""
    wanted, clean = step.prediction.wanted_BN[at].tolist(), step.prediction.clean
    found = {}
    for position in positions:
        if wanted[position]:
            tokens, shares = (x[at, position, :top].tolist() for x in (clean.top_BNK, clean.p_BNK))
            found[str(position)] = [[spell(token), round(p, 4)] for token, p in zip(tokens, shares, strict=True)]
    return found


def _answer_text(config: Mapping[str, Any], final: Sequence[int], answer: Sequence[bool], codec: Codec) -> str:
    """Return the answer as `generate` or `infill` returned it."""
    if config.get("task") == "infill":
        return codec.text(final)
    places = [place for place, free in enumerate(answer) if free]
    return codec.answer(final[places[0] : places[-1] + 1]) if places else ""


def _prompt_text(own: Trajectory, codec: Codec) -> str:
    """Return the prompt as it was typed; where the run has no note of it, the given tokens before the first blank."""
    rows = (own.config or {}).get("rows")
    prompt = rows[0].get("prompt") if isinstance(rows, list) and rows and isinstance(rows[0], Mapping) else None
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list):
        turns = [turn for turn in prompt if isinstance(turn, Mapping)]
        return "\n\n".join(f"{turn.get('role', '')}: {turn.get('content', '')}" for turn in turns)
    free = own.state.answer_BL[0].tolist()
    return codec.decode(own.state.tokens_BL[0, : free.index(True) if True in free else 0].tolist())


def _read_name(part: Any) -> str:
    return str(part.get("name", "")) if isinstance(part, Mapping) else ""


# Gates


@dataclass(frozen=True)
class GateStatus:
    """What a gate decided at one step of one row; empty where the policy has no gate."""

    why: str = ""
    signal: float | None = None
    threshold: float | None = None
    is_open: bool | None = None


def gate_status(step: Step, at: int, number: int, config: Mapping[str, Any]) -> GateStatus:
    """Read the status of the gate from the notes of a step and from the run's configuration, which has its thresholds.

    Of several gates the one that opened stands for all, else the first with a signal; the words are about each.
    """
    settings = policy_settings(config, number - 1)
    if settings is None:
        return GateStatus("the branch begins here, with an action of its own")
    names, rules = noted_diagnostics(step.action.notes), _detector_rules(settings)
    if not names:
        return GateStatus()
    # Notes and detectors are both in the order of the diagnostics.
    rules = rules if len(rules) == len(names) else [None] * len(names)
    gates = [_read_gate(step, at, name, rule) for name, rule in zip(names, rules, strict=True)]
    opened = [gate for gate in gates if gate.is_open]
    signalled = [gate for gate in gates if gate.signal is not None]
    chosen = (opened or signalled or gates)[0]
    return GateStatus(". ".join(gate.why for gate in gates), chosen.signal, chosen.threshold, chosen.is_open)


def policy_settings(config: Mapping[str, Any], index: int) -> Mapping[str, Any] | None:
    """Return the settings of the policy that took a step, counted from 0, of a run or branch; {} where there are none.

    None stands for the first step of a branch with an action of its own: the notes of that step are those before it.
    """
    while True:
        branch = _as_mapping(config.get("branch"))
        start = branch.get("step")
        if not isinstance(start, int) or index > start:
            return _as_mapping(config.get("policy"))
        if index == start:
            return _as_mapping(config.get("policy")) if branch.get("action") is None else None
        config = _as_mapping(branch.get("from"))


def nearest_threshold(rule: DetectorRule, signal: float) -> float | None:
    """Return the border between open and shut that a signal is compared with; None where there is none.

    Inside an open stretch that is its start, else the start of the next one above, else the end of the last one below.
    """
    inside = [start for start, end in rule.open_intervals if start <= signal and (end is None or signal < end)]
    above = [start for start, _ in rule.open_intervals if start > signal]
    below = [end for _, end in reversed(rule.open_intervals) if end is not None and end <= signal]
    borders = [border for border in (*inside, *above, *below) if math.isfinite(border)]
    return None if inside and not math.isfinite(inside[0]) else next(iter(borders), None)


def _read_gate(step: Step, at: int, diagnostic: str, rule: DetectorRule | None) -> GateStatus:
    notes = step.action.notes
    if not bool(notes[f"{diagnostic}/evaluated_B"][at]):
        return GateStatus(f"{diagnostic}: no signal, so the fixed action", is_open=False)
    is_open = bool(notes[f"{diagnostic}/deviated_B"][at])
    signal = float(notes[f"{diagnostic}/signal_B"][at])
    known = math.isfinite(signal)
    threshold = nearest_threshold(rule, signal) if rule is not None and known else None
    words = f"{diagnostic}: the gate {'opened' if is_open else 'stayed shut'}, signal {signal:.3g}"
    if threshold is not None:
        words += f" {'is below' if signal < threshold else 'reaches'} the threshold {threshold:.3g}"
    elif rule is not None and not rule.open_intervals:
        words += "; this gate never opens"
    return GateStatus(words, round(signal, 6) if known else None, threshold, is_open)


def _detector_rules(settings: Mapping[str, Any]) -> list[DetectorRule | None]:
    """Read the detectors from the settings of a policy, or of the policy that it wraps."""
    if "detector" in settings:
        return [_detector_rule(settings["detector"])]
    if isinstance(several := settings.get("detectors"), list):
        return [_detector_rule(one) for one in several]
    inner = settings.get("base")
    return _detector_rules(inner) if isinstance(inner, Mapping) else []


def _detector_rule(settings: Any) -> DetectorRule | None:
    """Read one detector; None where it cannot be read, since a configuration may come from any file."""
    try:
        tau = None if settings["tau"] is None else float(settings["tau"])
        return DetectorRule(tuple(map(float, settings["starts"])), tuple(settings["expected"]), tau)
    except (LookupError, TypeError, ValueError, ConfigError):
        return None


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
