"""One step of any rows: a forward, the policy's decision, the transition. Functions that return what they cost.

Nothing here remembers a run. Costs are tensors with one entry per row, so rows may join and leave between two steps.
The one object with a memory is `LookCache`, and whoever steps decides whether there is one.
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
    """What all steps of a run have in common, whatever its rows and its policy."""

    denoiser: Denoiser
    sampling: SamplingParams
    planner: Denoiser | None = None
    """The second network, for policies that consult one."""
    eos_ids: tuple[int, ...] = ()
    """End-of-text tokens after which the tail of a row is filled; empty where it is not filled."""
    record_top: int = 0
    """How many of the largest probabilities a recorded step keeps, where the policy reads fewer."""


@dataclass(frozen=True)
class StepCost:
    """What one step costs each row, under the names that `Step` keeps it by."""

    forwards_B: Tensor
    processed_B: Tensor
    """Tokens that those forwards read."""
    planner_forwards_B: Tensor | None = None
    """None where the run has no planner."""
    prepaid_B: Tensor | None = None
    """Rows whose own forward was a look-ahead of the step before; None where no look-ahead was remembered."""

    @classmethod
    def zero(cls, rows_B: Tensor, planner: Denoiser | None = None) -> "StepCost":
        zero_B = torch.zeros_like(rows_B)
        return cls(zero_B, zero_B, None if planner is None else zero_B)

    def charge(self, owner_U: Tensor, inputs: ModelInput, output: ModelOutput) -> "StepCost":
        """Add a pass over some rows, each of which is paid for by the row that `owner_U` names."""
        forwards_U, processed_U = _pass_cost(inputs, output)
        return replace(
            self,
            forwards_B=self.forwards_B.index_add(0, owner_U, forwards_U),
            processed_B=self.processed_B.index_add(0, owner_U, processed_U),
        )

    def __add__(self, looks: "StepCost") -> "StepCost":
        """Add what look-aheads cost to what the step's own forward did."""
        return StepCost(
            self.forwards_B + looks.forwards_B,
            self.processed_B + looks.processed_B,
            add_counts(self.planner_forwards_B, looks.planner_forwards_B),
            self.prepaid_B,
        )


def add_counts(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Add two counts; None stands for what this run does not count."""
    return other if one is None else one if other is None else one + other


def take_step(
    settings: StepSettings, policy: Policy, traj: Trajectory, look_ahead: "LookCache | None" = None
) -> tuple[Trajectory, Step, Tensor]:
    """Take one step; return the trajectory after it, the step to record, and the fault flags of each row.

    The trajectory keeps the steps that the policy reads, and at least the last, which holds the policy's notes.
    """
    needs = policy.needs | Needs(top_k=settings.record_top)
    seen, cost = predict(settings, traj, policy.model_input(hide_noise(traj, policy)), needs, look_ahead)
    if traj.prepaid_B is not None:
        # The run that is resumed has looked at this canvas, and has paid for it.
        cost = replace(
            cost,
            forwards_B=cost.forwards_B.masked_fill(traj.prepaid_B, 0),
            processed_B=cost.processed_B.masked_fill(traj.prepaid_B, 0),
            prepaid_B=traj.prepaid_B,
        )
    recorded = seen.current_prediction
    if needs != policy.needs:
        # The policy gets what it asked for: some read all that there is, and would decide otherwise.
        most = max(policy.needs.top_k, 2)
        clean, filtered = recorded.clean.largest(most), recorded.filtered.largest(most)
        seen = replace(seen, prediction=replace(recorded, clean=clean, filtered=filtered))
    if look_ahead is not None:
        look_ahead.begin(traj.rows_B)
    action, change = decide(settings, policy, seen, look_ahead)
    if look_ahead is not None:
        cost += look_ahead.cost
    after = append_step(seen, policy.name, action, change, cost, keep=policy.past_steps or 1)
    step = light_step(after.steps[-1])
    step = replace(step, prediction=replace(step.prediction, clean=recorded.clean, filtered=recorded.filtered))
    return after, step, change.fault_B


def forward(
    settings: StepSettings, inputs: ModelInput, needs: Needs, cache: "LookCache | None" = None
) -> tuple[ModelOutput, StepCost]:
    """Run the network on real rows, and say what that costs each; `inputs.row_B` are their numbers in the run.

    Rows whose canvas is in `cache` are answered from there for nothing.
    """
    known: dict[bytes, tuple[ModelOutput, int]] = {}
    if cache is not None:
        # What has not come true by this forward never will.
        known, cache.answers = cache.answers, {}
    if not known or inputs.attend_BNN is not None:
        output = settings.denoiser(inputs, needs)
        forwards_B, processed_B = _pass_cost(inputs, output)
        planner_B = None if settings.planner is None else torch.zeros_like(forwards_B)
        return output, StepCost(forwards_B, processed_B, planner_B)
    # By the row's number in the run, so that rows with the same canvas do not pay for each other.
    rows_B = inputs.row_B
    assert rows_B is not None, "real rows have numbers"
    keys = _canvas_keys(inputs, needs, rows_B)
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


def _pass_cost(inputs: ModelInput, output: ModelOutput) -> tuple[Tensor, Tensor]:
    """Forwards that a pass took for each of its rows, and tokens that they read."""
    read_B = inputs.valid_BN.sum(-1) if output.processed_B is None else output.processed_B
    return torch.full_like(read_B, output.forwards), output.forwards * read_B


def add_prediction(
    settings: StepSettings, traj: Trajectory, inputs: ModelInput, output: ModelOutput, needs: Needs
) -> Trajectory:
    """Add the prediction of an output, sampled with the rows' own random numbers, to the trajectory."""
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


def predict(
    settings: StepSettings, traj: Trajectory, inputs: ModelInput, needs: Needs, cache: "LookCache | None" = None
) -> tuple[Trajectory, StepCost]:
    """Run the network on real rows; return the trajectory with its prediction, and the cost."""
    inputs = replace(inputs, row_B=traj.rows_B)
    output, cost = forward(settings, inputs, needs, cache)
    return add_prediction(settings, traj, inputs, output, needs), cost


def decide(
    settings: StepSettings, policy: Policy, traj: Trajectory, look_ahead: "LookCache | None" = None
) -> tuple[Action, Transition]:
    """Let the policy act on the trajectory's prediction. The caller checks the fault flags of the transition."""
    action = policy.act(hide_noise(traj, policy), look_ahead or NO_LOOK_AHEAD)
    return action, apply_action_to_state(settings, traj, action)


def apply_action_to_state(settings: StepSettings, traj: Trajectory, action: Action) -> Transition:
    """Apply an action to the trajectory's state, and fill tails behind an end of text where the run does so."""
    change = apply(traj.state, traj.current_prediction, action)
    return fill_after_eos(change, settings.eos_ids) if settings.eos_ids else change


def hide_noise(traj: Trajectory, *policies: Policy | Search) -> Trajectory:
    """Bar random numbers from a trajectory that policies will see, unless one of them has the trait `random`.

    The trait must be enforced, because rollouts of a policy that draws nothing are run only once.
    """
    if any(policy.random for policy in policies):
        return traj
    return replace(traj, noise=ForbiddenNoise(traj.noise.key_B))


def append_step(
    traj: Trajectory, policy: str, action: Action, change: Transition, cost: StepCost | None = None, *, keep: int
) -> Trajectory:
    """Move a trajectory on by a transition, with `keep` steps of its past (`ALL` for every one).

    Only the last step keeps the parts that grow with the vocabulary. Without a cost the step counts as free.
    """
    cost = cost or StepCost.zero(traj.rows_B)
    step = Step(
        rows_B=traj.rows_B,
        policy=policy,
        state=traj.state,
        # Without hidden rows, which nobody reads in a later step; and made anew, because a record would also keep what
        # was derived from the prediction since.
        prediction=replace(traj.current_prediction, hidden_BNH=None),
        action=action if action.rule is None else replace(action, rule=None),
        revealed_BL=change.revealed_BL,
        remasked_BL=change.remasked_BL,
        confidence_BL=change.confidence_BL,
        **vars(cost),
    )
    steps = (*traj.steps[:-1], *map(light_step, traj.steps[-1:]), step)
    return replace(
        traj,
        state=change.state,
        prediction=None,
        prepaid_B=None,
        steps=steps if keep == ALL else steps[-keep:],
        forwards_B=traj.forwards_B + cost.forwards_B,
        processed_B=traj.processed_B + cost.processed_B,
        planner_forwards_B=add_counts(traj.planner_forwards_B, cost.planner_forwards_B),
        remasks_B=add_counts(traj.remasks_B, change.remasked_BL.sum(-1)),
    )


def light_step(step: Step) -> Step:
    """Return a step without the parts that grow with the vocabulary."""
    light = step.prediction.light
    return step if light is step.prediction else replace(step, prediction=light)


def recompute_last_step(
    settings: StepSettings, traj: Trajectory, model_input: Callable[[Trajectory], ModelInput], needs: Needs
) -> Trajectory:
    """Recompute the posterior and the attention of a resumed trajectory's last step, which no file keeps.

    This repeats a forward that was paid for when the step was taken, so it is not counted.
    """
    if traj.last is None or not (needs.divergence or needs.posterior or needs.attention):
        return traj
    before = replace(traj, state=traj.last.state, steps=traj.steps[:-1])
    again = predict(settings, before, model_input(before), needs)[0].current_prediction
    whole = replace(traj.last.prediction, posterior=again.posterior, attention_BNN=again.attention_BNN)
    return replace(traj, steps=(*traj.steps[:-1], replace(traj.last, prediction=whole)))


class LookCache:
    """The look-ahead of a policy: runs hypothetical canvases, and counts what that costs the rows that asked.

    Its passes are kept until the next real forward, so a look-ahead that comes true is not run again. They are kept by
    row and canvas: no row profits from a pass that its neighbour paid for.
    """

    keep = True
    """Whether passes are kept."""

    def __init__(self, settings: StepSettings):
        self.settings = settings
        self.answers: dict[bytes, tuple[ModelOutput, int]] = {}
        """The output that answers a canvas, and its row there."""

    def begin(self, rows_B: Tensor) -> None:
        """Start to count for these rows; `owner_U` of the calls that follow are indices into them."""
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
        """Predict for hypothetical rows, as `LookAhead.predict` says."""
        needs = needs or Needs()
        inputs = replace(inputs or ModelInput.of(states, needs), row_B=None)
        if given_UL is not None:
            inputs = replace(inputs, given_BN=given_UL)
        output = self.settings.denoiser(inputs, needs)
        self.cost = self.cost.charge(owner_U, inputs, output)
        # An attention of its own changes the output, and no key says which attention it was.
        if self.keep and inputs.attend_BNN is None:
            for row, key in enumerate(_canvas_keys(inputs, needs, self.rows_B[owner_U])):
                self.answers[key] = (output, row)
        sampling = self.settings.sampling if noise else self.settings.sampling.greedy
        if temperature is not None:
            sampling = replace(sampling, temperature=temperature)
        # The run's own draws of tokens, which a method that draws nothing itself may ask for, too. At a temperature of
        # its own they would be the method's.
        if isinstance(noise, ForbiddenNoise) and temperature is None:
            noise = Noise(noise.key_B)
        alone = Trajectory.start(states, noise or Noise(torch.zeros_like(states.step_B)))
        settings = replace(self.settings, sampling=sampling)
        return add_prediction(settings, alone, inputs, output, needs).current_prediction

    def ask_planner(
        self, states: State, owner_U: Tensor, needs: Needs | None = None, *, inputs: ModelInput | None = None
    ) -> ModelOutput:
        """Run the second network on hypothetical rows."""
        spent_B = self.cost.planner_forwards_B
        if self.settings.planner is None or spent_B is None:
            raise ConfigError("the policy asks a planner; allowed: a run that has one; pass planner=... to decode")
        needs = needs or Needs()
        output = self.settings.planner(replace(inputs or ModelInput.of(states, needs), row_B=None), needs)
        spent_B = spent_B.index_add(0, owner_U, torch.full_like(owner_U, output.forwards))
        self.cost = replace(self.cost, planner_forwards_B=spent_B)
        return output


def _canvas_keys(inputs: ModelInput, needs: Needs, rows_B: Tensor) -> list[bytes]:
    """Key of each row's pass: everything that its logits depend on, and the row that pays for them."""
    extras = bytes((needs.attention, needs.hidden))
    flags = (inputs.valid_BN.long(), inputs.wanted_BN.long(), inputs.fixed_BN.long())
    own_BN = rows_B[:, None].expand_as(inputs.tokens_BN)
    # One copy from the device for all rows.
    table = torch.stack((own_BN, inputs.tokens_BN, inputs.position_BN, *flags), 1).cpu().numpy()
    return [extras + row.tobytes() for row in table]


def gather_rows(answers: list[tuple[ModelOutput, int]]) -> ModelOutput:
    """Pack rows of several outputs into one, in the given order."""
    parts = []
    for output, row in answers:
        # Not what the input wants: a cache may have answered for fewer slots.
        wanted_BN = output.wanted_BN[row : row + 1]
        at_R = output.slot_BN[row][wanted_BN[0]]
        attention_BNN = None if output.attention_BNN is None else output.attention_BNN[row : row + 1]
        hidden_RH = None if output.hidden_RH is None else output.hidden_RH[at_R]
        parts.append(ModelOutput(output.logits_RV[at_R], wanted_BN, attention_BNN, hidden_RH))
    return concat(parts)
