"""One step of decoding: run the network, let the policy decide, apply its action.

The functions here remember nothing about a run. Costs are tensors with one entry per row, so rows can join and leave
between two steps. Only `LookAheadCache` has a memory, and the caller decides whether there is one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unmask.base.errors import ConfigError
from unmask.core import (
    ALL,
    NO_LOOK_AHEAD,
    Action,
    Denoiser,
    ForbiddenNoise,
    ModelInput,
    ModelOutput,
    Needs,
    Noise,
    Policy,
    Prediction,
    SamplingParams,
    Search,
    State,
    Step,
    Trajectory,
    concat,
    sample,
    select,
)
from unmask.engine.transition import Transition, apply, fill_after_eos


@dataclass(frozen=True)
class StepSettings:
    """Settings of a run that hold for all its steps and rows: the networks and how tokens are sampled."""

    denoiser: Denoiser
    sampling: SamplingParams
    planner: Denoiser | None = None
    """The second network, for policies that consult one."""
    eos_ids: tuple[int, ...] = ()
    """End-of-text tokens after which the tail of a row is filled; empty to fill no tails."""
    record_top: int = 0
    """Number of most probable tokens that a recorded step keeps, if the policy reads fewer."""


@dataclass(frozen=True)
class StepCost:
    """Forwards and tokens that one step cost each row, under the names that `Step` stores them by."""

    forwards_B: Tensor
    processed_B: Tensor
    """Tokens that those forwards read."""
    planner_forwards_B: Tensor | None = None
    """None in a run without a planner."""
    prepaid_B: Tensor | None = None
    """Rows whose own forward was a look-ahead of the step before; None if no look-ahead was remembered."""

    @classmethod
    def zero(cls, rows_B: Tensor, planner: Denoiser | None = None) -> "StepCost":
        zero_B = torch.zeros_like(rows_B)
        return cls(zero_B, zero_B, None if planner is None else zero_B)

    def charge(self, owner_U: Tensor, inputs: ModelInput, output: ModelOutput) -> "StepCost":
        """Return the cost with another forward added; `owner_U` has the row that pays for each row of its input."""
        forwards_U, processed_U = _count_forwards(inputs, output)
        return replace(
            self,
            forwards_B=self.forwards_B.index_add(0, owner_U, forwards_U),
            processed_B=self.processed_B.index_add(0, owner_U, processed_U),
        )

    def __add__(self, looks: "StepCost") -> "StepCost":
        """Add the cost of look-aheads to that of the step's own forward."""
        return StepCost(
            self.forwards_B + looks.forwards_B,
            self.processed_B + looks.processed_B,
            add_optional_counts(self.planner_forwards_B, looks.planner_forwards_B),
            self.prepaid_B,
        )


def add_optional_counts(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Add two counts; None means that a run does not count, so the other one is returned."""
    return other if one is None else one if other is None else one + other


def take_step(
    settings: StepSettings, policy: Policy, traj: Trajectory, look_ahead: "LookAheadCache | None" = None
) -> tuple[Trajectory, Step, Tensor]:
    """Take one step; return the trajectory after it, the step to record, and the fault flags of each row.

    The trajectory keeps the past steps that the policy reads, and always the last one, which holds the policy's notes.
    """
    needs = policy.needs
    if settings.record_top:
        needs |= Needs(top_k=settings.record_top)
    seen, cost = predict(settings, traj, policy.model_input(forbid_noise(traj, policy)), needs, look_ahead)
    if traj.prepaid_B is not None:
        # In the resumed run a look-ahead was at this canvas already, and it was paid for then.
        cost = replace(
            cost,
            forwards_B=cost.forwards_B.masked_fill(traj.prepaid_B, 0),
            processed_B=cost.processed_B.masked_fill(traj.prepaid_B, 0),
            prepaid_B=traj.prepaid_B,
        )
    recorded = seen.current_prediction
    if needs != policy.needs:
        # A policy may read all probabilities that it is given, so it must not see those that are only recorded.
        most = max(policy.needs.top_k, 2)
        clean, filtered = recorded.clean.keep_top(most), recorded.filtered.keep_top(most)
        seen = replace(seen, prediction=replace(recorded, clean=clean, filtered=filtered))
    if look_ahead is not None:
        look_ahead.start_counting(traj.rows_B)
    action, change = decide(settings, policy, seen, look_ahead)
    if look_ahead is not None:
        cost += look_ahead.cost
    after = append_step(seen, policy.name, action, change, cost, keep=policy.past_steps or 1)
    step = after.steps[-1].drop_large_parts()
    if seen.prediction is not recorded:
        step = replace(step, prediction=replace(step.prediction, clean=recorded.clean, filtered=recorded.filtered))
    return after, step, change.fault_B


def predict(
    settings: StepSettings, traj: Trajectory, inputs: ModelInput, needs: Needs, cache: "LookAheadCache | None" = None
) -> tuple[Trajectory, StepCost]:
    """Run the network on real rows; return the trajectory with its prediction, and the cost."""
    inputs = replace(inputs, row_B=traj.rows_B)
    output, cost = forward(settings, inputs, needs, cache)
    return add_prediction(settings, traj, inputs, output, needs), cost


def forward(
    settings: StepSettings, inputs: ModelInput, needs: Needs, cache: "LookAheadCache | None" = None
) -> tuple[ModelOutput, StepCost]:
    """Run the network on real rows, whose numbers in the run are `inputs.row_B`; return the output and its cost.

    Rows whose canvas is in `cache` are answered from there at no cost.
    """
    known: dict[bytes, tuple[ModelOutput, int]] = {}
    if cache is not None:
        # Passes that this forward does not use are dropped: look-aheads are about the next canvas only.
        known, cache.answers = cache.answers, {}
    if not known or inputs.attend_BNN is not None:
        output = settings.denoiser(inputs, needs)
        forwards_B, processed_B = _count_forwards(inputs, output)
        planner_B = None if settings.planner is None else torch.zeros_like(forwards_B)
        return output, StepCost(forwards_B, processed_B, planner_B)
    # Keys contain the row's number in the run, so that no row profits from a pass that another row paid for.
    rows_B = inputs.row_B
    assert rows_B is not None, "real rows have numbers"
    keys = _make_canvas_keys(inputs, needs, rows_B)
    missing = [row for row, key in enumerate(keys) if key not in known]
    missing_U = torch.tensor(missing, dtype=torch.long, device=rows_B.device)
    cost = StepCost.zero(rows_B, settings.planner)
    if missing:
        unseen = select(inputs, missing_U)
        output = settings.denoiser(unseen, needs)
        cost = cost.charge(missing_U, unseen, output)
        known |= {keys[row]: (output, at) for at, row in enumerate(missing)}
    prepaid_B = torch.ones_like(rows_B, dtype=torch.bool).index_fill(0, missing_U, False)
    return gather_rows([known[key] for key in keys]), replace(cost, prepaid_B=prepaid_B)


def _count_forwards(inputs: ModelInput, output: ModelOutput) -> tuple[Tensor, Tensor]:
    """Return the number of forwards of each row, and the number of tokens that they read."""
    read_B = inputs.valid_BN.sum(-1) if output.processed_B is None else output.processed_B
    return torch.full_like(read_B, output.forwards), output.forwards * read_B


def add_prediction(
    settings: StepSettings, traj: Trajectory, inputs: ModelInput, output: ModelOutput, needs: Needs
) -> Trajectory:
    """Sample from an output with the rows' own random numbers, and store the prediction in the trajectory."""
    prediction = sample(
        output,
        inputs,
        settings.sampling,
        needs,
        settings.denoiser.vocabulary,
        noise=traj.noise,
        step_B=traj.state.step_B,
        previous=traj.previous_posterior,
    )
    return replace(traj, prediction=prediction)


def decide(
    settings: StepSettings, policy: Policy, traj: Trajectory, look_ahead: "LookAheadCache | None" = None
) -> tuple[Action, Transition]:
    """Ask the policy for its action and apply it; the caller checks the fault flags of the returned transition."""
    action = policy.act(forbid_noise(traj, policy), look_ahead or NO_LOOK_AHEAD)
    return action, apply_action(settings, traj, action)


def apply_action(settings: StepSettings, traj: Trajectory, action: Action) -> Transition:
    """Apply an action to the trajectory's state; fill the tail behind an end of text if the run does so."""
    change = apply(traj.state, traj.current_prediction, action)
    return fill_after_eos(change, settings.eos_ids) if settings.eos_ids else change


def forbid_noise(traj: Trajectory, *policies: Policy | Search) -> Trajectory:
    """Replace the trajectory's noise by one that raises when a policy draws from it without declaring `random = True`.

    This must be enforced: rollouts of a policy that draws nothing are decoded only once and shared.
    """
    if any(policy.random for policy in policies):
        return traj
    return replace(traj, noise=ForbiddenNoise(traj.noise.key_B))


def append_step(
    traj: Trajectory, policy: str, action: Action, change: Transition, cost: StepCost | None = None, *, keep: int
) -> Trajectory:
    """Move a trajectory on by a transition and keep its last `keep` steps (`ALL` for every one).

    Only the last step keeps the parts that grow with the vocabulary. Without a cost the step counts as free.
    """
    cost = cost or StepCost.zero(traj.rows_B)
    step = Step(
        rows_B=traj.rows_B,
        policy=policy,
        state=traj.state,
        # A copy without hidden rows, which no later step reads. A copy also drops what is cached on the prediction.
        prediction=replace(traj.current_prediction, hidden_BNH=None),
        action=action if action.rule is None else replace(action, rule=None),
        revealed_BL=change.revealed_BL,
        remasked_BL=change.remasked_BL,
        confidence_BL=change.confidence_BL,
        **vars(cost),
    )
    steps = (*traj.steps[:-1], *(last.drop_large_parts() for last in traj.steps[-1:]), step)
    return replace(
        traj,
        state=change.state,
        prediction=None,
        prepaid_B=None,
        steps=steps if keep == ALL else steps[-keep:],
        forwards_B=traj.forwards_B + cost.forwards_B,
        processed_B=traj.processed_B + cost.processed_B,
        planner_forwards_B=add_optional_counts(traj.planner_forwards_B, cost.planner_forwards_B),
        remasks_B=add_optional_counts(traj.remasks_B, change.remasked_BL.sum(-1)),
    )


def recompute_last_step(
    settings: StepSettings, traj: Trajectory, model_input: Callable[[Trajectory], ModelInput], needs: Needs
) -> Trajectory:
    """Recompute the posterior and the attention of a resumed trajectory's last step, which no file keeps.

    The forward was counted when the step was taken, so it is not counted again.
    """
    if traj.last is None or not (needs.divergence or needs.posterior or needs.attention):
        return traj
    before = replace(traj, state=traj.last.state, steps=traj.steps[:-1])
    again = predict(settings, before, model_input(before), needs)[0].current_prediction
    whole = replace(traj.last.prediction, posterior=again.posterior, attention_BNN=again.attention_BNN)
    return replace(traj, steps=(*traj.steps[:-1], replace(traj.last, prediction=whole)))


class LookAheadCache:
    """Runs the network on hypothetical canvases for a policy, and charges the rows that asked for them.

    Outputs are kept until the next real forward, so that a canvas that becomes real is not run again. They are kept by
    row and canvas, so that no row profits from a pass that another row paid for.
    """

    keep = True
    """Whether outputs are kept for the next real forward."""

    def __init__(self, settings: StepSettings):
        self.settings = settings
        self.answers: dict[bytes, tuple[ModelOutput, int]] = {}
        """Key of a canvas -> the output that answers it, and its row in that output."""

    def start_counting(self, rows_B: Tensor) -> None:
        """Start to count the cost of these rows; `owner_U` in the calls that follow are indices into them."""
        self.rows_B = rows_B
        self.cost = StepCost.zero(rows_B, self.settings.planner)

    def predict(
        self,
        states: State,
        owner_U: Tensor,
        needs: Needs | None = None,
        given_UL: Tensor | None = None,
        *,
        inputs: ModelInput | None = None,
        noise: Noise | None = None,
        temperature: float | None = None,
    ) -> Prediction:
        """Predict for hypothetical rows (see `LookAhead.predict`)."""
        needs = needs or Needs()
        inputs = replace(inputs or ModelInput.of(states, needs), row_B=None)
        if given_UL is not None:
            inputs = replace(inputs, given_BN=given_UL)
        output = self.settings.denoiser(inputs, needs)
        self.cost = self.cost.charge(owner_U, inputs, output)
        # A pairwise attention changes the output and is not part of the key.
        if self.keep and inputs.attend_BNN is None:
            for row, key in enumerate(_make_canvas_keys(inputs, needs, self.rows_B[owner_U])):
                self.answers[key] = (output, row)
        sampling = self.settings.sampling if noise else self.settings.sampling.greedy
        if temperature is not None:
            sampling = replace(sampling, temperature=temperature)
        # Tokens may be drawn as the run draws them, even for a method that may not draw by itself. At a temperature of
        # its own the draws would be the method's.
        if isinstance(noise, ForbiddenNoise) and temperature is None:
            noise = Noise(noise.key_B)
        alone = Trajectory.start(states, noise or Noise(torch.zeros_like(states.step_B)))
        settings = replace(self.settings, sampling=sampling)
        return add_prediction(settings, alone, inputs, output, needs).current_prediction

    def ask_planner(
        self, states: State, owner_U: Tensor, needs: Needs | None = None, *, inputs: ModelInput | None = None
    ) -> ModelOutput:
        """Run the second network on hypothetical rows (see `LookAhead.ask_planner`)."""
        spent_B = self.cost.planner_forwards_B
        if self.settings.planner is None or spent_B is None:
            raise ConfigError("the policy asks a planner; allowed: a run that has one; pass planner=... to decode")
        needs = needs or Needs()
        output = self.settings.planner(replace(inputs or ModelInput.of(states, needs), row_B=None), needs)
        spent_B = spent_B.index_add(0, owner_U, torch.full_like(owner_U, output.forwards))
        self.cost = replace(self.cost, planner_forwards_B=spent_B)
        return output


def _make_canvas_keys(inputs: ModelInput, needs: Needs, rows_B: Tensor) -> list[bytes]:
    """Return a key for each row, made of its number in the run and of everything that its logits depend on."""
    extras = bytes((needs.attention, needs.hidden))
    flags = (inputs.valid_BN.long(), inputs.wanted_BN.long(), inputs.fixed_BN.long())
    own_BN = rows_B[:, None].expand_as(inputs.tokens_BN)
    # One copy from the device for all rows.
    table = torch.stack((own_BN, inputs.tokens_BN, inputs.position_BN, *flags), 1).cpu().numpy()
    return [extras + row.tobytes() for row in table]


def gather_rows(answers: list[tuple[ModelOutput, int]]) -> ModelOutput:
    """Join rows of several model outputs into one output; each answer is an output and the number of a row in it."""
    parts = []
    for output, row in answers:
        # The output's own flags: a block cache may have answered fewer slots than the input wanted.
        wanted_BN = output.wanted_BN[row : row + 1]
        at_R = output.slot_BN[row][wanted_BN[0]]
        attention_BNN = None if output.attention_BNN is None else output.attention_BNN[row : row + 1]
        hidden_RH = None if output.hidden_RH is None else output.hidden_RH[at_R]
        parts.append(ModelOutput(output.logits_RV[at_R], wanted_BN, attention_BNN, hidden_RH))
    return concat(parts)
