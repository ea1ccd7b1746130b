"""Worked examples: each method's rule computed by hand, and run on a denoiser that says the same numbers.

A file NAME.json holds cases: settings, a canvas, what the model says, and what has to come of it. Numbers only; tests
read the same files.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.base.errors import ConfigError, UnknownName
from unmask.core import (
    ALL,
    NO_LOOK_AHEAD,
    ModelInput,
    ModelOutput,
    Needs,
    Noise,
    Policy,
    SamplingParams,
    Search,
    State,
    Trajectory,
    Vocabulary,
    sample,
)
from unmask.engine import append_step, apply, decode
from unmask.methods.medal import Node, add_visit, most_probable_actions, uct
from unmask.methods.order_token_search import block_log_p, rank_by_value
from unmask.methods.registry import METHODS, make_policy

HOME = Path(__file__).parent / "examples_data"
VOCAB = 64
"""Tokens of examples that give no more than a confidence."""
_CLOSE = 1e-4
"""How far rates may be from rounded numbers."""


# A denoiser and noise that answer from a table


@dataclass(frozen=True)
class ScriptedDenoiser:
    """A denoiser that answers from a script: `logits(tokens, slot, call)` of each wanted slot, for the call-th pass."""

    logits: Callable[[list[int], int, int], Sequence[float]]
    vocab: int
    eos_ids: tuple[int, ...] = ()
    calls: list[ModelInput] = field(default_factory=list, compare=False)
    attention: Sequence[Sequence[float]] | None = None
    """Attention from query to key, where it is asked for."""

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.vocab, self.vocab, self.eos_ids)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        tokens = inputs.tokens_BN.tolist()
        rows = [self._wanted_logits(inputs, tokens[b], b, slot) for b, slot in inputs.wanted_BN.nonzero().tolist()]
        self.calls.append(inputs)
        attention_BNN = None
        if needs.attention and self.attention is not None:
            attention_BNN = torch.tensor(self.attention, dtype=torch.float64).expand(len(tokens), -1, -1)
        logits_RV = torch.tensor(rows, dtype=torch.float64).reshape(-1, self.vocab)
        return ModelOutput(logits_RV, inputs.wanted_BN, attention_BNN=attention_BNN)

    def _wanted_logits(self, inputs: ModelInput, tokens: list[int], b: int, slot: int) -> Sequence[float]:
        return self.logits(tokens, slot, len(self.calls))


class ReachDenoiser(ScriptedDenoiser):
    """A scripted denoiser whose shadow slots answer by how many canvas positions they may read.

    Its script gets that number in place of the call's: `logits(tokens, position, reach)`; -1 for a plain pass.
    """

    def _wanted_logits(self, inputs: ModelInput, tokens: list[int], b: int, slot: int) -> Sequence[float]:
        if inputs.attend_BNN is None:
            return self.logits(tokens, slot, -1)
        length = int(inputs.wanted_BN[0].long().argmax())
        return self.logits(tokens, slot - length, int(inputs.attend_BNN[b, 0, :length].sum()))


def peak_logits(p: float, vocab: int) -> list[float]:
    """Return log-probabilities with p on token 1, which is the largest however small p is, and the rest shared."""
    rest = math.log((1 - p) / (vocab - 1)) if p < 1 else -1e4
    return [math.log(p) if token == 1 else rest for token in range(vocab)]


def logs(p: Sequence[float]) -> list[float]:
    """Return log-probabilities; -10000 for 0."""
    return [math.log(x) if x > 0 else -1e4 for x in p]


class TableNoise:
    """Noise from a table: one number per canvas position, or per vocabulary entry, by purpose."""

    def __init__(self, table: Mapping[str, Sequence[float]]):
        self.table = {purpose: torch.tensor(numbers, dtype=torch.float64) for purpose, numbers in table.items()}
        self.key_B = torch.zeros(1, dtype=torch.long)

    def uniform(self, step_B: Tensor, position_BN: Tensor, purpose: str) -> Tensor:
        return self.table[purpose][position_BN]

    def uniform_packed(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, purpose: str) -> Tensor:
        return self.table[purpose][position_R]

    def uniform_vocab(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, vocab: int, purpose: str) -> Tensor:
        return self.table[purpose].expand(len(position_R), vocab)


# Cases


@dataclass(frozen=True)
class WorkedCase:
    """One worked case: settings, predictions, and the outcome computed by hand."""

    method: str
    title: str
    settings: Mapping[str, Any]
    script: Mapping[str, Any]
    expected: Mapping[str, Any]
    canvas: Sequence[int | None] = ()
    """None for a mask."""
    steps: int | None = None
    """Default: one per mask."""
    standing: Sequence[int | None] = ()
    """What has been revealed before the example begins, if anything."""
    taken: int = 0
    """Steps before that."""
    noise: Mapping[str, Sequence[float]] | None = None

    @property
    def policy(self) -> Policy | Search:
        """The method with the case's settings."""
        return make_policy(self.method, **self.settings)


@dataclass(frozen=True)
class WorkedResult:
    """The outcome of a worked case, under the names that its `expected` uses."""

    case: WorkedCase
    found: Mapping[str, Any]
    """As much of it as is expected."""
    steps: tuple[Mapping[str, Any], ...]
    """Every step: tokens revealed by position, and positions re-masked."""

    @property
    def as_expected(self) -> bool:
        """Whether the outcome is the expected one."""
        return all(_outcomes_agree(self.found[name], value) for name, value in self.case.expected.items())


def example_names() -> list[str]:
    """Return the methods that have an example."""
    return sorted(path.stem for path in HOME.glob("*.json"))


@cache
def load_cases(method: str) -> tuple[WorkedCase, ...]:
    """Return the worked cases of a method."""
    if method not in example_names():
        if method in METHODS:
            known = ", ".join(example_names())
            raise ConfigError(f"{method} has no worked example; allowed: {known}; take one of them")
        raise UnknownName("method with a worked example", method, example_names())
    return tuple(WorkedCase(method, **case) for case in _read_example_file(method)["cases"])


def example_source(method: str) -> str:
    """Return the source of an example, with a remark on its numbers."""
    remark = _read_example_file(method).get("remark", "")
    return f"the rule of {METHODS[method].citation}, by hand" + (f"; {remark}" if remark else "")


def _read_example_file(method: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((HOME / f"{method}.json").read_text(encoding="utf-8"))
    return document


def run_case(case: WorkedCase) -> WorkedResult:
    """Run the method on the predictions of the case's script."""
    kind, policy = case.script["kind"], case.policy
    if kind in _MOMENTS:
        found = _MOMENTS[kind](policy, case)
        return WorkedResult(case, {name: found[name] for name in case.expected}, ())
    if kind == "statistics":
        assert isinstance(policy, Policy)
        calls = [{int(at): (p, entropy) for at, (p, entropy) in call.items()} for call in case.script["table"]]
        traj = run_statistics(policy, calls, len(case.canvas))
    else:
        traj = _decode_case(policy, case)
    canvases = list(traj.canvases())
    steps = tuple(
        {
            "revealed": {at: int(after_L[at]) for at in _list_positions(step.revealed_BL)},
            "remasked": _list_positions(step.remasked_BL),
        }
        for step, after_L in zip(traj.steps, canvases[1:], strict=True)
    )
    found = {
        "revealed": [list(step["revealed"]) for step in steps],
        "remasked": [step["remasked"] for step in steps],
        "masks_left": [int((c == traj.state.mask_id).sum()) for c in canvases[1:]],
        "canvas": [None if t == traj.state.mask_id else t for t in canvases[1].tolist()],
    }
    for note in ("value", "dropped"):  # notes of a search
        if note in traj.notes:
            found[note] = [step.action.notes[note].tolist()[0] for step in traj.steps]
    return WorkedResult(case, {name: found[name][: len(value)] for name, value in case.expected.items()}, steps)


def _decode_case(policy: Policy | Search, case: WorkedCase) -> Trajectory:
    model = scripted_model(case.script)
    canvas = [model.vocab if token is None else token for token in case.canvas]
    steps = case.steps or canvas.count(model.vocab)
    state = State.from_canvases([canvas], steps=steps, mask_id=model.vocab, extra_steps=policy.extra_steps)
    if case.standing:
        tokens = [model.vocab if token is None else token for token in case.standing]
        state = replace(state, tokens_BL=torch.tensor([tokens]), step_B=torch.tensor([case.taken]))
    noise: Any = Noise.of([0]) if case.noise is None else TableNoise(case.noise)
    return decode(model, policy, state, noise=noise, sampling=SamplingParams())


def scripted_model(script: Mapping[str, Any]) -> ScriptedDenoiser:
    """Return the model of a script; the last row of a table is for all later passes."""
    kind, table = script["kind"], script.get("table", ())

    def row(slot: int, call: int) -> Any:
        return table[min(call, len(table) - 1)][slot]

    if kind == "canvas":
        return _by_canvas(script)
    if kind == "reach":
        # Distributions of the step's own pass, and of look-aheads that may read so many positions.
        now, by_reach = script["now"], script["reach"]
        return ReachDenoiser(
            lambda _, slot, reach: logs(now[slot] if reach < 0 else by_reach[str(reach)][slot]), len(now[0])
        )
    if kind == "confidence":
        attention = script.get("attention")
        return ScriptedDenoiser(lambda _, slot, call: peak_logits(row(slot, call), VOCAB), VOCAB, attention=attention)
    to_logits: Callable[[Any], Sequence[float]] = list if kind == "logits" else logs
    return ScriptedDenoiser(lambda _, slot, call: to_logits(row(slot, call)), len(row(0, 0)))


def _by_canvas(script: Mapping[str, Any]) -> ScriptedDenoiser:
    """Make a model from distributions (or probabilities of token 0) for some canvases, and one row for all others."""
    vocab = len(script["otherwise"])
    tables = {tuple(vocab if t is None else t for t in known["canvas"]): known["table"] for known in script["canvases"]}

    def canvas_logits(tokens: list[int], slot: int, call: int) -> list[float]:
        rows = tables.get(tuple(tokens))
        row = script["otherwise"] if rows is None or rows[slot] is None else rows[slot]
        return logs(row if isinstance(row, list) else [row, *[(1 - row) / (vocab - 1)] * (vocab - 1)])

    return ScriptedDenoiser(canvas_logits, vocab)


def run_statistics(policy: Policy, calls: Sequence[Mapping[int, tuple[float, float]]], n: int) -> Trajectory:
    """Run a policy on given pairs (confidence, entropy) of positions, even pairs that no distribution can have."""
    state = State.from_canvases([[VOCAB] * n], steps=n, mask_id=VOCAB)
    traj = Trajectory.start(state, Noise.of([0]))
    for statistics in calls:
        inputs = ModelInput.of(traj.state, Needs())
        flat = ModelOutput(torch.zeros(int(inputs.wanted_BN.sum()), VOCAB), inputs.wanted_BN)
        vocabulary, step_B = Vocabulary(VOCAB, VOCAB), traj.state.step_B
        prediction = sample(flat, inputs, SamplingParams(), policy.needs, vocabulary, noise=traj.noise, step_B=step_B)
        p_BN, entropy_BN = torch.zeros(1, n), torch.zeros(1, n, dtype=torch.float64)
        for at, (p, entropy) in statistics.items():
            p_BN[0, at], entropy_BN[0, at] = p, entropy
        clean = replace(prediction.clean, p_BNK=torch.stack((p_BN, 1 - p_BN), -1), entropy_BN=entropy_BN)
        traj = replace(traj, prediction=replace(prediction, confidence_BN=p_BN, clean=clean))
        action = policy.act(traj, NO_LOOK_AHEAD)
        change = apply(traj.state, traj.current_prediction, action).check()
        traj = append_step(traj, policy.name, action, change, keep=ALL)
    return traj


# Examples of one moment of a decision, which are no runs. Each kind belongs to one method.


def _remdm_rates(policy: Any, case: WorkedCase) -> dict[str, Any]:
    """ReMDM's probabilities to reveal a mask, and to re-mask what was revealed with these confidences."""
    psi = case.script["confidence_when_revealed"]
    state = State.from_canvases([[VOCAB] * 6], steps=case.steps or 1, mask_id=VOCAB, extra_steps=True)
    tokens_BL, psi_BL = state.tokens_BL.clone(), torch.full((1, 6), float("inf"), dtype=torch.float64)
    tokens_BL[0, : len(psi)], psi_BL[0, : len(psi)] = 1, torch.tensor(psi, dtype=torch.float64)
    state = replace(state, tokens_BL=tokens_BL, step_B=torch.tensor([case.taken]))
    reveal_B, sigma_BL = policy.rates(state, psi_BL)
    return {"reveal": float(reveal_B), "remask": sigma_BL[0, : len(psi)].tolist()}


def _draft_values(policy: Any, case: WorkedCase) -> dict[str, Any]:
    """Order-Token Search's values of drafts, each with its parent's, and the drafts that survive."""
    families = zip(case.script["parents"], case.script["drafts"], strict=True)
    values = [parent + block_log_p(p) for parent, drafts in families for p in drafts]
    return {"cumulative": values, "survivors": rank_by_value(values)[: policy.beams]}


def _tree_visit(policy: Any, case: WorkedCase) -> dict[str, Any]:
    """MEDAL's actions at a node, and one visit below it."""
    script = case.script
    tops = {int(at): [(token, p) for token, p in pairs] for at, pairs in script["tops"].items()}
    nowhere = Trajectory.start(State.from_canvases([[VOCAB]], steps=1, mask_id=VOCAB), Noise.of([0]))
    children = [Node(nowhere, at=0, visits=visits, total=total) for visits, total in script["children"]]
    parent = Node(nowhere, visits=script["parent"], children=children)
    values = [uct(child, parent.visits, policy.explore) for child in children]
    visits = [child.visits for child in children]
    selected = values.index(max(values))
    add_visit([parent, children[selected]], script["reward"])
    return {
        "actions": [
            list(pair) for pair in most_probable_actions(tops, policy.positions, policy.tokens, policy.actions)
        ],
        "uct": values,
        "selected": selected,
        "most_visited": visits.index(max(visits)),
        "after": [children[selected].visits, children[selected].total],
        "parent_visits": parent.visits,
    }


def _demask_set(policy: Any, case: WorkedCase) -> dict[str, Any]:
    """DEMASK's set at one moment, and what it spends of the budget."""
    confidence_BL = torch.tensor([case.script["confidence"]], dtype=torch.float64)
    candidate_BL = policy.candidates(confidence_BL, torch.ones_like(confidence_BL, dtype=torch.bool))
    depends_BLL = torch.tensor([case.script["depends"]], dtype=torch.float64)
    chosen_BL, total_B = policy.select(confidence_BL, candidate_BL, depends_BLL)
    return {"chosen": _list_positions(chosen_BL), "total": float(total_B)}


def _planner_choice(policy: Any, case: WorkedCase) -> dict[str, Any]:
    """DDPD's plan at one moment: where it writes, what it masks meanwhile, what a last step fills."""
    table = case.noise or {}
    g_BL = torch.tensor([case.script["logits"]], dtype=torch.float64)
    able_BL = torch.ones_like(g_BL, dtype=torch.bool)
    at_BL, masked_BL = policy.plan(g_BL, able_BL, lambda purpose: torch.tensor([table[purpose]], dtype=torch.float64))
    return {
        "noise": g_BL.sigmoid()[0].tolist(),
        "chances": policy.draw_probabilities(g_BL, able_BL)[0].tolist(),
        "written": _list_positions(at_BL),
        "masked": _list_positions(masked_BL),
        "filled": _list_positions(g_BL.sigmoid() > policy.fill),
    }


_MOMENTS: Mapping[str, Callable[[Any, WorkedCase], dict[str, Any]]] = {
    "rates": _remdm_rates,
    "drafts": _draft_values,
    "tree": _tree_visit,
    "dependence": _demask_set,
    "planner": _planner_choice,
}


def _list_positions(mask_BL: Tensor) -> list[int]:
    return mask_BL[0].nonzero().flatten().tolist()


def _outcomes_agree(found: Any, expected: Any) -> bool:
    """Whether two outcomes are equal, or as near as rounded numbers are."""
    if isinstance(expected, float):
        return abs(found - expected) <= _CLOSE
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(_outcomes_agree, found, expected))
    return bool(found == expected)
