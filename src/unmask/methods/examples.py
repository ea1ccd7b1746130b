"""Worked examples: each method's rule computed by hand, and run on a denoiser that gives the same numbers.

A file `examples_data/NAME.json` holds cases of one method: settings, a canvas, the denoiser's answers, and the expected
outcome. Most cases decode the canvas; some compute a single decision. The tests read the same files.
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
    SamplingParams,
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
"""Vocabulary size of examples that give only the confidence of each position."""


@dataclass(frozen=True)
class ScriptedDenoiser:
    """A denoiser that answers from a script: `logits(tokens, slot, call)` of each wanted slot, for the call-th pass."""

    logits: Callable[[list[int], int, int], Sequence[float]]
    vocab: int
    eos_ids: tuple[int, ...] = ()
    calls: list[ModelInput] = field(default_factory=list, compare=False)
    """Inputs of all passes so far."""
    attention: Sequence[Sequence[float]] | None = None
    """Attention from query to key, for methods that ask for it."""

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.vocab, self.vocab, self.eos_ids)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        tokens = inputs.tokens_BN.tolist()
        rows = [self._slot_logits(inputs, tokens[b], b, slot) for b, slot in inputs.wanted_BN.nonzero().tolist()]
        self.calls.append(inputs)
        attention_BNN = None
        if needs.attention and self.attention is not None:
            attention_BNN = torch.tensor(self.attention, dtype=torch.float64).expand(len(tokens), -1, -1)
        logits_RV = torch.tensor(rows, dtype=torch.float64).reshape(-1, self.vocab)
        return ModelOutput(logits_RV, inputs.wanted_BN, attention_BNN=attention_BNN)

    def _slot_logits(self, inputs: ModelInput, tokens: list[int], b: int, slot: int) -> Sequence[float]:
        return self.logits(tokens, slot, len(self.calls))


class ReachDenoiser(ScriptedDenoiser):
    """A scripted denoiser whose answer at a shadow slot depends on how many canvas positions the slot may read.

    Its script is called as `logits(tokens, position, reach)`: `reach` is that number, or -1 in a pass without shadows.
    """

    def _slot_logits(self, inputs: ModelInput, tokens: list[int], b: int, slot: int) -> Sequence[float]:
        if inputs.attend_BNN is None:
            return self.logits(tokens, slot, -1)
        # Shadows alone are wanted, and follow the canvas, so the first wanted slot is the canvas length.
        length = int(inputs.wanted_BN[0].long().argmax())
        return self.logits(tokens, slot - length, int(inputs.attend_BNN[b, 0, :length].sum()))


class TableNoise:
    """Noise from a table: one number per canvas position, or per vocabulary entry, for each purpose."""

    def __init__(self, table: Mapping[str, Sequence[float]]):
        self.table = {purpose: torch.tensor(numbers, dtype=torch.float64) for purpose, numbers in table.items()}
        self.key_B = torch.zeros(1, dtype=torch.long)

    def uniform(self, step_B: Tensor, position_BN: Tensor, purpose: str) -> Tensor:
        return self.table[purpose][position_BN]

    def uniform_packed(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, purpose: str) -> Tensor:
        return self.table[purpose][position_R]

    def uniform_vocab(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, vocab: int, purpose: str) -> Tensor:
        return self.table[purpose].expand(len(position_R), vocab)


def peak_logits(p: float, vocab: int) -> list[float]:
    """Return log-probabilities with p on token 1, which is the largest however small p is, and the rest shared."""
    rest = math.log((1 - p) / (vocab - 1)) if p < 1 else -1e4
    return [math.log(p) if token == 1 else rest for token in range(vocab)]


def logs(p: Sequence[float]) -> list[float]:
    """Return the logarithms of probabilities; -10000 for 0."""
    return [math.log(x) if x > 0 else -1e4 for x in p]


def scripted_model(script: Mapping[str, Any]) -> ScriptedDenoiser:
    """Return the denoiser of a script. The last row of its table answers all later passes."""
    kind = script["kind"]
    if kind == "canvas":
        # Distributions, or probabilities of token 0, for some canvases; one answer for all others.
        otherwise = script["otherwise"]
        vocab = len(otherwise)
        by_canvas = {
            tuple(vocab if t is None else t for t in known["canvas"]): known["table"] for known in script["canvases"]
        }

        def answer(tokens: list[int], slot: int, call: int) -> list[float]:
            rows = by_canvas.get(tuple(tokens))
            row = otherwise if rows is None or rows[slot] is None else rows[slot]
            return logs(row if isinstance(row, list) else [row, *[(1 - row) / (vocab - 1)] * (vocab - 1)])

        return ScriptedDenoiser(answer, vocab)
    if kind == "reach":
        # Distributions of a plain pass, and of shadows by the number of canvas positions that they may read.
        now, by_reach = script["now"], script["reach"]
        return ReachDenoiser(
            lambda _, slot, reach: logs(now[slot] if reach < 0 else by_reach[str(reach)][slot]), len(now[0])
        )
    table = script["table"]
    if kind == "confidence":
        vocab, to_logits = VOCAB, lambda p: peak_logits(p, VOCAB)
    else:
        vocab, to_logits = len(table[0][0]), list if kind == "logits" else logs
    return ScriptedDenoiser(
        lambda _, slot, call: to_logits(table[min(call, len(table) - 1)][slot]),
        vocab,
        attention=script.get("attention"),
    )


@dataclass(frozen=True)
class WorkedCase:
    """One worked case: settings, the denoiser's answers, and the outcome computed by hand."""

    method: str
    title: str
    settings: Mapping[str, Any]
    script: Mapping[str, Any]
    expected: Mapping[str, Any]
    canvas: Sequence[int | None] = ()
    """Tokens of the start; None for a mask. Empty for a case of a single decision."""
    steps: int | None = None
    """Planned number of steps; None for one per mask."""
    standing: Sequence[int | None] = ()
    """Canvas on which the case begins, where some positions were revealed before."""
    taken: int = 0
    """Number of steps taken before the case begins."""
    noise: Mapping[str, Sequence[float]] | None = None


@dataclass(frozen=True)
class WorkedResult:
    """The outcome of a worked case, under the names that its `expected` uses."""

    case: WorkedCase
    found: Mapping[str, Any]
    """The outcome, as far as the case expects something."""
    steps: tuple[Mapping[str, Any], ...]
    """For each step the revealed tokens by position, and the remasked positions; empty for a single decision."""

    @property
    def as_expected(self) -> bool:
        """Whether the outcome is the expected one."""
        return all(is_close(self.found[name], value) for name, value in self.case.expected.items())


def example_names() -> list[str]:
    """Return the methods that have a worked example."""
    return sorted(path.stem for path in HOME.glob("*.json"))


def example_source(method: str) -> str:
    """Return where an example's numbers come from."""
    remark = _read_example(method).get("remark", "")
    return f"the rule of {METHODS[method].citation}, by hand" + (f"; {remark}" if remark else "")


@cache
def load_cases(method: str) -> tuple[WorkedCase, ...]:
    """Return the worked cases of a method."""
    if method not in METHODS:
        raise UnknownName("method with a worked example", method, example_names())
    if method not in example_names():
        raise ConfigError(f"{method} has no worked example; allowed: {', '.join(example_names())}; take one of them")
    return tuple(WorkedCase(method, **case) for case in _read_example(method)["cases"])


def _read_example(method: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((HOME / f"{method}.json").read_text(encoding="utf-8"))
    return document


def run_case(case: WorkedCase) -> WorkedResult:
    """Run a case: compute its single decision, or decode its canvas."""
    if case.script["kind"] in DECISIONS:
        found = DECISIONS[case.script["kind"]](make_policy(case.method, **case.settings), case)
        return WorkedResult(case, {name: found[name] for name in case.expected}, ())
    traj = _decode_statistics(case) if case.script["kind"] == "statistics" else _decode_case(case)
    mask_id = traj.state.mask_id
    canvases = [canvas_L.tolist() for canvas_L in traj.canvases()][1:]
    found = {
        "revealed": [_list_positions(step.revealed_BL) for step in traj.steps],
        "remasked": [_list_positions(step.remasked_BL) for step in traj.steps],
        "masks_left": [canvas.count(mask_id) for canvas in canvases],
        "canvas": [None if token == mask_id else token for token in canvases[0]],
    }
    for note in ("value", "dropped"):  # notes of a search
        if note in traj.notes:
            found[note] = [step.action.notes[note].tolist()[0] for step in traj.steps]
    steps_taken = tuple(
        {"revealed": {at: after[at] for at in revealed}, "remasked": remasked}
        for revealed, remasked, after in zip(found["revealed"], found["remasked"], canvases, strict=True)
    )
    return WorkedResult(case, {name: found[name][: len(value)] for name, value in case.expected.items()}, steps_taken)


def _decode_case(case: WorkedCase) -> Trajectory:
    """Decode a case's canvas with the method, on the denoiser of the case's script."""
    policy, model = make_policy(case.method, **case.settings), scripted_model(case.script)
    canvas = [model.vocab if token is None else token for token in case.canvas]
    steps = case.steps or canvas.count(model.vocab)
    state = State.from_canvases([canvas], steps=steps, mask_id=model.vocab, extra_steps=policy.extra_steps)
    if case.standing:
        tokens = [model.vocab if token is None else token for token in case.standing]
        state = replace(state, tokens_BL=torch.tensor([tokens]), step_B=torch.tensor([case.taken]))
    noise: Any = Noise.of([0]) if case.noise is None else TableNoise(case.noise)
    return decode(model, policy, state, noise=noise, sampling=SamplingParams())


def _decode_statistics(case: WorkedCase) -> Trajectory:
    """Decode a case that gives the confidence and entropy of each position in each step."""
    calls = [{int(at): (p, entropy) for at, (p, entropy) in call.items()} for call in case.script["table"]]
    return run_statistics(make_policy(case.method, **case.settings), calls, len(case.canvas))


def run_statistics(policy: Any, calls: Sequence[Mapping[int, tuple[float, float]]], n: int) -> Trajectory:
    """Run a policy on n masks with given pairs (confidence, entropy) of positions, one mapping per step."""
    state = State.from_canvases([[VOCAB] * n], steps=n, mask_id=VOCAB)
    traj = Trajectory.start(state, Noise.of([0]))
    for statistics in calls:
        inputs = ModelInput.of(traj.state, Needs())
        flat = ModelOutput(torch.zeros(int(inputs.wanted_BN.sum()), VOCAB), inputs.wanted_BN)
        vocabulary, step_B = Vocabulary(VOCAB, VOCAB), traj.state.step_B
        prediction = sample(flat, inputs, SamplingParams(), policy.needs, vocabulary, noise=traj.noise, step_B=step_B)
        # No denoiser can answer them: the pairs of a published example may fit no distribution, so a flat
        # prediction gets these numbers in place of its own.
        p_BN, entropy_BN = torch.zeros(1, n), torch.zeros(1, n, dtype=torch.float64)
        for at, (p, entropy) in statistics.items():
            p_BN[0, at], entropy_BN[0, at] = p, entropy
        clean = replace(prediction.clean, p_BNK=torch.stack((p_BN, 1 - p_BN), -1), entropy_BN=entropy_BN)
        traj = replace(traj, prediction=replace(prediction, confidence_BN=p_BN, clean=clean))
        action = policy.act(traj, NO_LOOK_AHEAD)
        change = apply(traj.state, traj.current_prediction, action).check()
        traj = append_step(traj, policy.name, action, change, keep=ALL)
    return traj


# Cases of a single decision: a part of one method, called with the numbers of the case


def _compute_remdm_rates(policy: Any, case: WorkedCase) -> dict[str, Any]:
    """Compute ReMDM's probabilities to reveal a mask, and to remask tokens revealed with the given confidences."""
    psi = case.script["confidence_when_revealed"]
    state = State.from_canvases([[VOCAB] * 6], steps=case.steps or 1, mask_id=VOCAB, extra_steps=True)
    tokens_BL, psi_BL = state.tokens_BL.clone(), torch.full((1, 6), float("inf"), dtype=torch.float64)
    tokens_BL[0, : len(psi)], psi_BL[0, : len(psi)] = 1, torch.tensor(psi, dtype=torch.float64)
    state = replace(state, tokens_BL=tokens_BL, step_B=torch.tensor([case.taken]))
    reveal_B, sigma_BL = policy.rates(state, psi_BL)
    return {"reveal": float(reveal_B), "remask": sigma_BL[0, : len(psi)].tolist()}


def _rank_drafts(policy: Any, case: WorkedCase) -> dict[str, Any]:
    """Add the value of each of Order-Token Search's drafts to its parent's, and choose the drafts that survive."""
    families = zip(case.script["parents"], case.script["drafts"], strict=True)
    values = [parent + block_log_p(p) for parent, drafts in families for p in drafts]
    return {"cumulative": values, "survivors": rank_by_value(values)[: policy.beams]}


def _visit_tree(policy: Any, case: WorkedCase) -> dict[str, Any]:
    """List MEDAL's actions at a node, select one of its children, and add a visit to it."""
    script = case.script
    tops = {int(at): [(token, p) for token, p in pairs] for at, pairs in script["tops"].items()}
    actions = most_probable_actions(tops, policy.positions, policy.tokens, policy.actions)
    nowhere = Trajectory.start(State.from_canvases([[VOCAB]], steps=1, mask_id=VOCAB), Noise.of([0]))
    children = [Node(nowhere, at=0, visits=visits, total=total) for visits, total in script["children"]]
    parent = Node(nowhere, visits=script["parent"], children=children)
    values = [uct(child, parent.visits, policy.explore) for child in children]
    visits = [child.visits for child in children]
    selected = values.index(max(values))
    add_visit([parent, children[selected]], script["reward"])
    return {
        "actions": [list(pair) for pair in actions],
        "uct": values,
        "selected": selected,
        "most_visited": visits.index(max(visits)),
        "after": [children[selected].visits, children[selected].total],
        "parent_visits": parent.visits,
    }


def _select_independent(policy: Any, case: WorkedCase) -> dict[str, Any]:
    """Select DEMASK's set of positions from confidences and dependence, and sum the dependence within the set."""
    confidence_BL = torch.tensor([case.script["confidence"]], dtype=torch.float64)
    candidate_BL = policy.candidates(confidence_BL, torch.ones_like(confidence_BL, dtype=torch.bool))
    depends_BLL = torch.tensor([case.script["depends"]], dtype=torch.float64)
    chosen_BL, total_B = policy.select(confidence_BL, candidate_BL, depends_BLL)
    return {"chosen": _list_positions(chosen_BL), "total": float(total_B)}


def _plan_rewrite(policy: Any, case: WorkedCase) -> dict[str, Any]:
    """Choose the position that DDPD rewrites, those it masks for that, and those that a last step fills."""
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


DECISIONS: Mapping[str, Callable[[Any, WorkedCase], dict[str, Any]]] = {
    "rates": _compute_remdm_rates,
    "drafts": _rank_drafts,
    "tree": _visit_tree,
    "dependence": _select_independent,
    "planner": _plan_rewrite,
}
"""Function for each kind of script whose case is a single decision."""


def _list_positions(mask_BL: Tensor) -> list[int]:
    return mask_BL[0].nonzero().flatten().tolist()


def is_close(found: Any, expected: Any) -> bool:
    """Return whether an outcome equals the expected one; numbers of a case are rounded, so 1e-4 off is close."""
    if isinstance(expected, float):
        return abs(found - expected) <= 1e-4
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(is_close, found, expected))
    return bool(found == expected)
