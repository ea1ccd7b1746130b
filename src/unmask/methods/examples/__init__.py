"""Worked examples: the numbers of each method's sheet, run on a denoiser that says them.

A file NAME.json holds cases: settings, a canvas, what the model says, and what has to come of it. Numbers only; tests
read the same files.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from unmask.methods import METHODS, make_policy
from unmask.methods.ddpd import DDPD
from unmask.methods.demask import DEMASK
from unmask.methods.medal import MEDAL, actions
from unmask.methods.order_token_search import OrderTokenSearch, block_score, ranked
from unmask.methods.remdm import ReMDMSampler
from unmask.methods.tree import Node, back_up, uct
from unmask.models.scripted import ScriptedDenoiser, TableNoise, logs, peaked

HOME = Path(__file__).parent
VOCAB = 64
"""Tokens of examples that give no more than a confidence."""
_NOTES = ("value", "dropped")
"""What a search says of its steps."""
_CLOSE = 1e-4
"""How far rates may be from the sheet's rounded numbers."""


@dataclass(frozen=True)
class WorkedCase:
    """One worked case: what is set, what the model says, what the sheet says of it."""

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
        return make_policy(self.method, **self.settings)


@dataclass(frozen=True)
class WorkedResult:
    """What came of a case, in the words of its `expected`."""

    case: WorkedCase
    found: Mapping[str, Any]
    """As much of it as the sheet says."""
    steps: tuple[Mapping[str, Any], ...]
    """Every step: tokens revealed by position, and positions re-masked."""

    @property
    def as_expected(self) -> bool:
        return all(_same(self.found[name], value) for name, value in self.case.expected.items())


def names() -> list[str]:
    """The methods that have an example."""
    return sorted(path.stem for path in HOME.glob("*.json"))


@cache
def cases(method: str) -> tuple[WorkedCase, ...]:
    """The worked cases of a method."""
    if method not in names():
        if method in METHODS:
            raise ConfigError(f"{method} has no worked example; allowed: {', '.join(names())}; take one of them")
        raise UnknownName("method with a worked example", method, names())
    document = json.loads((HOME / f"{method}.json").read_text(encoding="utf-8"))
    return tuple(WorkedCase(method, **case) for case in document["cases"])


def sheet(method: str) -> str:
    """Where the numbers come from."""
    return str(json.loads((HOME / f"{method}.json").read_text(encoding="utf-8"))["sheet"])


def run_case(case: WorkedCase) -> WorkedResult:
    """The method on what the script says."""
    kind = case.script["kind"]
    if kind in _COMPUTED:
        found = _COMPUTED[kind](case)
        return WorkedResult(case, {name: found[name] for name in case.expected}, ())
    policy = case.policy
    told = kind == "told" and isinstance(policy, Policy) and follow(policy, _told(case), len(case.canvas))
    traj = told or _decoded(case)
    canvases = list(traj.canvases())
    steps: tuple[dict[str, Any], ...] = tuple(
        {
            "revealed": {at: int(after_L[at]) for at in _places(step.revealed_BL)},
            "remasked": _places(step.remasked_BL),
        }
        for step, after_L in zip(traj.steps, canvases[1:], strict=True)
    )
    found = {
        "revealed": [list(step["revealed"]) for step in steps],
        "remasked": [step["remasked"] for step in steps],
        "masks_left": [int((c == traj.state.mask_id).sum()) for c in canvases[1:]],
        **{note: [step.action.notes[note].tolist()[0] for step in traj.steps] for note in _NOTES if note in traj.notes},
        "canvas": [None if t == traj.state.mask_id else t for t in canvases[1].tolist()],
    }
    said = {name: found[name][: len(value)] for name, value in case.expected.items()}
    return WorkedResult(case, said, steps)


def denoiser(script: Mapping[str, Any]) -> ScriptedDenoiser:
    """What a script says, as a model; the last row of a table is for all later passes."""
    kind, table = script["kind"], script.get("table")
    attention = script.get("attention")
    if kind == "confidence":
        return ScriptedDenoiser(
            lambda _, slot, call: peaked(_row(table, call)[slot], VOCAB), VOCAB, attention=attention
        )
    if kind == "logits":
        return ScriptedDenoiser(lambda _, slot, call: _row(table, call)[slot], len(_row(table, 0)[0]))
    if kind == "distribution":
        return ScriptedDenoiser(lambda _, slot, call: logs(_row(table, call)[slot]), len(_row(table, 0)[0]))
    if kind == "canvas":
        return _by_canvas(script)
    return _by_reach(script)


def _by_canvas(script: Mapping[str, Any]) -> ScriptedDenoiser:
    """Distributions for some canvases, or the probability of token 0, and one for every position of any other."""
    vocab = len(script["otherwise"])
    tables = {tuple(vocab if t is None else t for t in known["canvas"]): known["table"] for known in script["canvases"]}

    def answer(tokens: list[int], slot: int, call: int) -> list[float]:
        rows = tables.get(tuple(tokens))
        row = script["otherwise"] if rows is None or rows[slot] is None else rows[slot]
        return logs(row if isinstance(row, list) else [row, *[(1 - row) / (vocab - 1)] * (vocab - 1)])

    return ScriptedDenoiser(answer, vocab)


class _Reaching(ScriptedDenoiser):
    """A model whose shadow slots answer by how much of the canvas may be read."""

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        attend = inputs.attend_BNN
        length = inputs.tokens_BN.shape[1] if attend is None else int(inputs.wanted_BN[0].long().argmax())
        rows = []
        for b, slot in inputs.wanted_BN.nonzero().tolist():
            reach = -1 if attend is None else int(attend[b, 0, :length].sum())
            rows.append(self.logits([], slot if attend is None else slot - length, reach))
        self.calls.append(inputs)
        return ModelOutput(torch.tensor(rows, dtype=torch.float64).reshape(-1, self.vocab), inputs.wanted_BN)


def _by_reach(script: Mapping[str, Any]) -> ScriptedDenoiser:
    """Distributions of the step's own pass, and of looks that may read so many positions."""

    def answer(_: list[int], slot: int, reach: int) -> list[float]:
        return logs(script["now"][slot] if reach < 0 else script["reach"][str(reach)][slot])

    return _Reaching(answer, len(script["now"][0]))


def _decoded(case: WorkedCase) -> Trajectory:
    policy, model = case.policy, denoiser(case.script)
    canvas = [model.vocab if token is None else token for token in case.canvas]
    steps = case.steps or canvas.count(model.vocab)
    state = State.from_canvases([canvas], steps=steps, mask_id=model.vocab, extra_steps=policy.extra_steps)
    if case.standing:
        tokens = [model.vocab if token is None else token for token in case.standing]
        state = replace(state, tokens_BL=torch.tensor([tokens]), step_B=torch.tensor([case.taken]))
    noise: Any = Noise.of([0]) if case.noise is None else TableNoise(case.noise)
    return decode(model, policy, state, noise=noise, sampling=SamplingParams())


def _told(case: WorkedCase) -> list[dict[int, tuple[float, float]]]:
    return [{int(at): (p, entropy) for at, (p, entropy) in call.items()} for call in case.script["table"]]


def follow(policy: Policy, calls: Sequence[Mapping[int, tuple[float, float]]], n: int) -> Trajectory:
    """Steps whose predictions are told: confidence and entropy by position, whether or not a distribution has both."""
    state = State.from_canvases([[VOCAB] * n], steps=n, mask_id=VOCAB)
    traj = Trajectory.start(state, Noise.of([0]))
    for told in calls:
        inputs = ModelInput.of(traj.state, Needs())
        flat = sample(
            ModelOutput(torch.zeros(int(inputs.wanted_BN.sum()), VOCAB), inputs.wanted_BN),
            inputs,
            SamplingParams(),
            policy.needs,
            Vocabulary(VOCAB, VOCAB),
            noise=traj.noise,
            step_B=traj.state.step_B,
        )
        p_BN, entropy_BN = torch.zeros(1, n), torch.zeros(1, n, dtype=torch.float64)
        for at, (p, entropy) in told.items():
            p_BN[0, at], entropy_BN[0, at] = p, entropy
        clean = replace(flat.clean, p_BNK=torch.stack((p_BN, 1 - p_BN), -1), entropy_BN=entropy_BN)
        traj = replace(traj, prediction=replace(flat, confidence_BN=p_BN, clean=clean))
        action = policy.act(traj, NO_LOOK_AHEAD)
        change = apply(traj.state, traj.current_prediction, action).check()
        traj = append_step(traj, policy.name, action, change, keep=ALL)
    return traj


def _rates(case: WorkedCase) -> dict[str, Any]:
    """ReMDM's probabilities at one moment: to reveal a mask, and to re-mask what was revealed so surely."""
    policy, psi = case.policy, case.script["confidence_when_revealed"]
    assert isinstance(policy, ReMDMSampler)
    state = State.from_canvases([[VOCAB] * 6], steps=case.steps or 1, mask_id=VOCAB, extra_steps=True)
    tokens_BL, psi_BL = state.tokens_BL.clone(), torch.full((1, 6), float("inf"), dtype=torch.float64)
    tokens_BL[0, : len(psi)], psi_BL[0, : len(psi)] = 1, torch.tensor(psi, dtype=torch.float64)
    state = replace(state, tokens_BL=tokens_BL, step_B=torch.tensor([case.taken]))
    reveal_B, sigma_BL = policy.rates(state, psi_BL)
    return {"reveal": float(reveal_B), "remask": sigma_BL[0, : len(psi)].tolist()}


def _drafts(case: WorkedCase) -> dict[str, Any]:
    """Order-Token Search's choice among drafts: what each is worth with its parent, and who stays."""
    policy, script = case.policy, case.script
    assert isinstance(policy, OrderTokenSearch)
    families = zip(script["parents"], script["drafts"], strict=True)
    values = [parent + block_score(p) for parent, drafts in families for p in drafts]
    return {"cumulative": values, "survivors": ranked(values)[: policy.beams]}


def _tree(case: WorkedCase) -> dict[str, Any]:
    """MEDAL's actions at a node, and one visit below it."""
    policy, script = case.policy, case.script
    assert isinstance(policy, MEDAL)
    tops = {int(at): [(token, p) for token, p in pairs] for at, pairs in script["tops"].items()}
    nowhere = Trajectory.start(State.from_canvases([[VOCAB]], steps=1, mask_id=VOCAB), Noise.of([0]))
    children = [Node(nowhere, at=0, visits=visits, total=total) for visits, total in script["children"]]
    parent = Node(nowhere, visits=script["parent"], children=children)
    values = [uct(child, parent.visits, policy.explore) for child in children]
    visits = [child.visits for child in children]
    selected = values.index(max(values))
    back_up([parent, children[selected]], script["reward"])
    return {
        "actions": [list(pair) for pair in actions(tops, policy.positions, policy.tokens, policy.actions)],
        "uct": values,
        "selected": selected,
        "most_visited": visits.index(max(visits)),
        "after": [children[selected].visits, children[selected].total],
        "parent_visits": parent.visits,
    }


def _dependence(case: WorkedCase) -> dict[str, Any]:
    """DEMASK's set at one moment, and what it spends of the budget."""
    policy = case.policy
    assert isinstance(policy, DEMASK)
    confidence_BL = torch.tensor([case.script["confidence"]], dtype=torch.float64)
    candidate_BL = policy.candidates(confidence_BL, torch.ones_like(confidence_BL, dtype=torch.bool))
    depends_BLL = torch.tensor([case.script["depends"]], dtype=torch.float64)
    chosen_BL, total_B = policy.select(confidence_BL, candidate_BL, depends_BLL)
    return {"chosen": _places(chosen_BL), "total": float(total_B)}


def _planner(case: WorkedCase) -> dict[str, Any]:
    """DDPD's plan at one moment: where it writes, what it masks meanwhile, what a last step fills."""
    policy, table = case.policy, case.noise or {}
    assert isinstance(policy, DDPD)
    g_BL = torch.tensor([case.script["logits"]], dtype=torch.float64)
    able_BL = torch.ones_like(g_BL, dtype=torch.bool)
    at_BL, masked_BL = policy.plan(g_BL, able_BL, lambda purpose: torch.tensor([table[purpose]], dtype=torch.float64))
    return {
        "noise": g_BL.sigmoid()[0].tolist(),
        "chances": policy.chances(g_BL, able_BL)[0].tolist(),
        "written": _places(at_BL),
        "masked": _places(masked_BL),
        "filled": _places(g_BL.sigmoid() > policy.fill),
    }


_COMPUTED: Mapping[str, Callable[[WorkedCase], dict[str, Any]]] = {
    "rates": _rates,
    "drafts": _drafts,
    "tree": _tree,
    "dependence": _dependence,
    "planner": _planner,
}
"""Kinds of examples that are no runs: they ask for numbers of one moment."""


def _row(table: Any, call: int) -> Any:
    return table[min(call, len(table) - 1)]


def _places(mask_BL: Tensor) -> list[int]:
    return mask_BL[0].nonzero().flatten().tolist()


def _same(found: Any, expected: Any) -> bool:
    """Equal, or as near as rounded numbers are."""
    if isinstance(expected, float):
        return abs(found - expected) <= _CLOSE
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    return bool(found == expected)
