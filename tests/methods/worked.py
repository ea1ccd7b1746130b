"""Worked examples of the methods: denoisers that answer from a table, and single moments of a decision."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unmask.core import (
    ALL,
    NO_LOOK_AHEAD,
    ModelInput,
    ModelOutput,
    Needs,
    Noise,
    Policy,
    SamplingParams,
    State,
    Trajectory,
    Vocabulary,
    sample,
)
from unmask.engine import append_step, apply, decode
from unmask.methods import make_policy
from unmask.methods.examples import VOCAB, ScriptedDenoiser, WorkedCase, load_cases, logs, peak_logits
from unmask.methods.medal import Node, add_visit, most_probable_actions, uct
from unmask.methods.order_token_search import block_log_p, rank_by_value

MOMENTS = Path(__file__).parent / "worked_data"


def moment_cases() -> list[WorkedCase]:
    """Cases of a single moment of a decision, which are no runs of a scripted denoiser."""
    return [
        WorkedCase(path.stem, **{"canvas": (), **case})
        for path in sorted(MOMENTS.glob("*.json"))
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]
    ]


def script(method: str, case: int = 0) -> Any:
    """The script of a worked case of the method."""
    moments = [moment for moment in moment_cases() if moment.method == method]
    return (moments or load_cases(method))[case].script


def table(method: str, case: int = 0) -> Any:
    """The denoiser's answers in a worked case of the method."""
    return script(method, case)["table"]


def confidences(table: Sequence[Sequence[float | None]]) -> ScriptedDenoiser:
    """The table's row of each forward pass, the last one for all after; None where nobody should ask."""

    def answer(tokens: list[int], slot: int, call: int) -> list[float]:
        p = table[min(call, len(table) - 1)][slot]
        assert p is not None, (slot, call)
        return peak_logits(p, VOCAB)

    return ScriptedDenoiser(answer, VOCAB)


def distributions(table: Sequence[Sequence[Sequence[float]]]) -> ScriptedDenoiser:
    """Whole distributions by forward pass and position."""
    return ScriptedDenoiser(
        lambda tokens, slot, call: logs(table[min(call, len(table) - 1)][slot]), vocab=len(table[0][0])
    )


class ReachDenoiser(ScriptedDenoiser):
    """A scripted denoiser whose shadow slots answer by how many canvas positions they may read.

    Its script gets that number in place of the call's: `logits(tokens, position, reach)`; -1 for a plain pass.
    """

    def _slot_logits(self, inputs: ModelInput, tokens: list[int], b: int, slot: int) -> Sequence[float]:
        if inputs.attend_BNN is None:
            return self.logits(tokens, slot, -1)
        length = int(inputs.wanted_BN[0].long().argmax())
        return self.logits(tokens, slot - length, int(inputs.attend_BNN[b, 0, :length].sum()))


def run(denoiser: ScriptedDenoiser, policy: Policy, n: int, steps: int | None = None, **options: Any) -> Trajectory:
    """Decode n masks to the end."""
    state = State.from_canvases(
        [[denoiser.vocab] * n], steps=steps or n, mask_id=denoiser.vocab, extra_steps=policy.extra_steps
    )
    return decode(denoiser, policy, state, noise=Noise.of([0]), **options)


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


def positions(mask_BL: torch.Tensor) -> list[int]:
    return mask_BL[0].nonzero().flatten().tolist()


def revealed(traj: Trajectory) -> list[list[int]]:
    """Positions that each step revealed."""
    return [positions(step.revealed_BL) for step in traj.steps]


def first(denoiser: ScriptedDenoiser, policy: Policy, n: int, steps: int | None = None) -> list[int]:
    """Positions that the first step reveals."""
    return revealed(run(denoiser, policy, n, steps))[0]


def run_moment(case: WorkedCase) -> dict[str, Any]:
    """Compute the outcome of a single moment, under the names that its `expected` uses."""
    script: Any = case.script
    policy: Any = make_policy(case.method, **case.settings)
    match script["kind"]:
        case "statistics":
            calls = [{int(at): pair for at, pair in call.items()} for call in script["table"]]
            return {"revealed": revealed(run_statistics(policy, calls, len(case.canvas)))}
        case "reach":
            now, by_reach = script["now"], script["reach"]

            def answer(_: list[int], slot: int, reach: int) -> list[float]:
                return logs(now[slot] if reach < 0 else by_reach[str(reach)][slot])

            return {"revealed": revealed(run(ReachDenoiser(answer, len(now[0])), policy, len(case.canvas), case.steps))}
        case "rates":
            psi = script["confidence_when_revealed"]
            state = State.from_canvases([[VOCAB] * 6], steps=case.steps or 1, mask_id=VOCAB, extra_steps=True)
            tokens_BL, psi_BL = state.tokens_BL.clone(), torch.full((1, 6), float("inf"), dtype=torch.float64)
            tokens_BL[0, : len(psi)], psi_BL[0, : len(psi)] = 1, torch.tensor(psi, dtype=torch.float64)
            state = replace(state, tokens_BL=tokens_BL, step_B=torch.tensor([case.taken]))
            reveal_B, sigma_BL = policy.rates(state, psi_BL)
            return {"reveal": float(reveal_B), "remask": sigma_BL[0, : len(psi)].tolist()}
        case "drafts":
            families = zip(script["parents"], script["drafts"], strict=True)
            values = [parent + block_log_p(p) for parent, drafts in families for p in drafts]
            return {"cumulative": values, "survivors": rank_by_value(values)[: policy.beams]}
        case "tree":
            tops = {int(at): [tuple(pair) for pair in pairs] for at, pairs in script["tops"].items()}
            nowhere = Trajectory.start(State.from_canvases([[VOCAB]], steps=1, mask_id=VOCAB), Noise.of([0]))
            children = [Node(nowhere, at=0, visits=visits, total=total) for visits, total in script["children"]]
            parent = Node(nowhere, visits=script["parent"], children=children)
            values = [uct(child, parent.visits, policy.explore) for child in children]
            selected = values.index(max(values))
            most_visited = max(range(len(children)), key=lambda at: children[at].visits)
            add_visit([parent, children[selected]], script["reward"])
            actions = most_probable_actions(tops, policy.positions, policy.tokens, policy.actions)
            return {
                "actions": [list(pair) for pair in actions],
                "uct": values,
                "selected": selected,
                "most_visited": most_visited,
                "after": [children[selected].visits, children[selected].total],
                "parent_visits": parent.visits,
            }
        case "dependence":
            confidence_BL = torch.tensor([script["confidence"]], dtype=torch.float64)
            candidate_BL = policy.candidates(confidence_BL, torch.ones_like(confidence_BL, dtype=torch.bool))
            depends_BLL = torch.tensor([script["depends"]], dtype=torch.float64)
            chosen_BL, total_B = policy.select(confidence_BL, candidate_BL, depends_BLL)
            return {"chosen": positions(chosen_BL), "total": float(total_B)}
        case "planner":
            noise: Any = case.noise or {}
            g_BL = torch.tensor([script["logits"]], dtype=torch.float64)
            able_BL = torch.ones_like(g_BL, dtype=torch.bool)
            at_BL, masked_BL = policy.plan(g_BL, able_BL, lambda what: torch.tensor([noise[what]], dtype=torch.float64))
            return {
                "noise": g_BL.sigmoid()[0].tolist(),
                "chances": policy.draw_probabilities(g_BL, able_BL)[0].tolist(),
                "written": positions(at_BL),
                "masked": positions(masked_BL),
                "filled": positions(g_BL.sigmoid() > policy.fill),
            }
    raise AssertionError(script["kind"])
