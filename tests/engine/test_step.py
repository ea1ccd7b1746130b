"""What an engine may rely on: steps are functions of their rows, and costs, records and limits belong to a row."""

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import pytest
import torch

from tests.helpers.cases import each_case
from unmask.base.errors import ContractError, Unfinished
from unmask.core import (
    Needs,
    Noise,
    Policy,
    SamplingParams,
    Search,
    State,
    Trajectory,
    concat,
    cut_canvas,
    row_key,
    tensors,
)
from unmask.engine import (
    StepSettings,
    add_prediction,
    append_step,
    decide,
    decode,
    forward,
    take_step,
)
from unmask.engine.step import gather_rows
from unmask.methods import LLaDA, make_policy
from unmask.models import ExactDenoiser, JointDistribution

EXACT = ExactDenoiser(JointDistribution.random(9, 4, dependence=1.5, seed=3), eos_ids=(2, 3))
PROMPTS, NEW, STEPS = ((0,), (1, 2), (3,), (2, 1)), (2, 6, 4, 5), (2, 3, 4, 5)


def start(rows=range(4)):
    prompts = [list(PROMPTS[row]) for row in rows]
    new, steps = [NEW[row] for row in rows], [STEPS[row] for row in rows]
    state = State.from_prompts(prompts, new_tokens=new, steps=steps, mask_id=EXACT.mask_id)
    return Trajectory.start(state, Noise.of([row_key(0, bytes(p)) for p in prompts]))


@cache
def policies():
    return {name: make_policy(name) for name in ("llada", "klass", "fast-dllm", "remdm", "info-gain", "p2", "dream")}


def same(one, other):
    ours, theirs = tensors(one), tensors(other)
    assert ours.keys() == theirs.keys()
    return [path for path, part in ours.items() if not torch.equal(part.nan_to_num(), theirs[path].nan_to_num())]


@each_case("name", ["llada", "klass", "fast-dllm", "remdm", "info-gain", "p2", "dream"])
@each_case("temperature", [0.0, 0.8])
def test_steps_of_a_row_selected_from_a_run_are_its_steps_alone(name, temperature):
    """Every tensor that a step keeps, its costs and notes among them."""
    policy, sampling = policies()[name], SamplingParams(temperature=temperature)
    whole = decode(EXACT, policy, start(), sampling=sampling)
    for row in range(4):
        selected, alone = whole.row(row), decode(EXACT, policy, start([row]), sampling=sampling)
        assert len(selected.steps) == len(alone.steps)
        for ours, theirs in zip(selected.steps, alone.steps, strict=True):
            ours = cut_canvas(ours, theirs.state.tokens_BL.shape[1])
            # A batch marks rows whose forward was prepaid as soon as one of them looked ahead.
            assert not same(replace(ours, prepaid_B=None), replace(theirs, prepaid_B=None))
            if ours.prepaid_B is not None:
                assert bool(ours.prepaid_B) == (theirs.prepaid_B is not None and bool(theirs.prepaid_B))


@each_case("name", ["llada", "klass", "fast-dllm", "remdm", "dream"])
def test_rows_may_join_between_two_steps(name):
    """Two rows after their second step and two others after their first go on as one batch, as each does alone."""
    settings, policy = StepSettings(EXACT, SamplingParams(temperature=0.8)), policies()[name]
    first, second = start([1, 3]), replace(start([2, 1]), rows_B=torch.tensor([2, 3]))
    first, _, _ = take_step(settings, policy, first)
    first, _, _ = take_step(settings, policy, first)
    second, _, _ = take_step(settings, policy, second)
    together = concat([first, second])
    for _ in range(2):
        together, step, fault_B = take_step(settings, policy, together)
        assert not fault_B.any()
    assert step.rows_B.tolist() == [0, 1, 2, 3]
    alone = first
    for _ in range(2):
        alone, _, _ = take_step(settings, policy, alone)
    here = together.select(torch.tensor([0, 1]))
    # The posterior of the last step is packed: rows of several share one table.
    here, alone = (replace(traj, steps=tuple(step.drop_large_parts() for step in traj.steps)) for traj in (here, alone))
    assert not same(here, alone)


def test_two_temperatures_in_one_forward_equal_each_alone():
    """Rows share passes and are sampled in groups of one temperature, to the bit as each group by itself."""
    groups = {0.0: [0, 2], 0.8: [1, 3]}
    alone = {t: start(rows) for t, rows in groups.items()}
    shared = dict(alone)
    policy, width = LLaDA(), max(traj.state.tokens_BL.shape[1] for traj in alone.values())
    alone, shared = ({t: replace(g, state=g.state.pad_to(width)) for t, g in some.items()} for some in (alone, shared))
    for _ in range(2):
        inputs = [replace(policy.model_input(traj), row_B=traj.rows_B) for traj in shared.values()]
        output, _ = forward(StepSettings(EXACT, SamplingParams()), concat(inputs), policy.needs)
        first = 0
        for (temperature, traj), own in zip(shared.items(), inputs, strict=True):
            settings = StepSettings(EXACT, SamplingParams(temperature=temperature))
            part = gather_rows([(output, first + row) for row in range(traj.state.batch)])
            first += traj.state.batch
            seen = add_prediction(settings, traj, own, part, policy.needs)
            action, change = decide(settings, policy, seen)
            shared[temperature] = append_step(seen, policy.name, action, change, keep=1)
            alone[temperature], _, _ = take_step(settings, policy, alone[temperature])
    for temperature in groups:
        ours, theirs = shared[temperature], alone[temperature]
        assert not same(ours.state, theirs.state)
        assert torch.equal(ours.last.prediction.confidence_BN, theirs.last.prediction.confidence_BN)


def test_costs_are_returned_and_kept_nowhere():
    settings, traj = StepSettings(EXACT, SamplingParams()), start()
    inputs = replace(LLaDA().model_input(traj), row_B=traj.rows_B)
    for _ in range(2):
        _, cost = forward(settings, inputs, Needs())
        assert cost.forwards_B.tolist() == [1, 1, 1, 1]
        assert cost.processed_B.tolist() == [3, 8, 5, 7]
        assert cost.planner_forwards_B is None
    _, cost = forward(replace(settings, planner=EXACT), inputs, Needs())
    assert cost.planner_forwards_B.tolist() == [0, 0, 0, 0]


@dataclass(frozen=True)
class Stuck(Policy):
    """LLaDA, but for a row that never reveals anything."""

    name: ClassVar[str] = "stuck"
    key: int

    def act(self, traj, look_ahead):
        action = LLaDA().act(traj, look_ahead)
        return replace(action, kappa_B=torch.where(traj.noise.key_B == self.key, 0.0, action.kappa_B))


@each_case("rows", [[0], [0, 1], [1, 0, 3], [3, 2, 1, 0]])
def test_a_stuck_row_is_given_up_at_the_same_step_whoever_runs_beside_it(rows):
    policy = Stuck(row_key(0, bytes(PROMPTS[0])))
    with pytest.raises(Unfinished, match=rf"row {rows.index(0)}, step 20: the row had not finished .* 4 x .*kappa"):
        decode(EXACT, policy, start(rows))
    padded = start(rows)
    with pytest.raises(Unfinished, match="step 20: "):
        decode(EXACT, policy, replace(padded, state=padded.state.pad_to(30)))


def draw(traj):
    traj.noise.uniform(traj.state.step_B, torch.zeros_like(traj.state.tokens_BL), "order")


@dataclass(frozen=True)
class Sly(Policy):
    """Draws where it is told to."""

    name: ClassVar[str] = "sly"
    where: str = "act"
    says_so: bool = False

    @property
    def random(self):
        return self.says_so

    def act(self, traj, look_ahead):
        self.at("act", traj)
        return LLaDA().act(traj, look_ahead)

    def model_input(self, traj):
        self.at("model_input", traj)
        return super().model_input(traj)

    def done(self, traj):
        self.at("done", traj)
        return super().done(traj)

    def at(self, where, traj):
        if where == self.where:
            draw(traj)


@dataclass(frozen=True)
class SlySearch(Search):
    name: ClassVar[str] = "sly"
    says_so: bool = False

    @property
    def random(self):
        return self.says_so

    def decode(self, context, traj):
        draw(traj)
        return make_policy("soar").decode(context, traj)


@each_case("sly", [Sly("act"), Sly("model_input"), Sly("done"), SlySearch()])
@each_case("temperature", [0.0, 0.8])
def test_a_method_that_draws_must_say_so(sly, temperature):
    sampling = SamplingParams(temperature=temperature)
    with pytest.raises(ContractError, match=r"without saying so; allowed: `random` is True"):
        decode(EXACT, sly, start(), sampling=sampling)
    assert not decode(EXACT, replace(sly, says_so=True), start(), sampling=sampling).state.masked_BL.any()
