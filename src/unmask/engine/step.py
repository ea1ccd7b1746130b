"""Running a step and keeping what came of it: the only code that calls a denoiser in a decode."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from unmask.base.errors import ConfigError, Unfinished
from unmask.core import (
    ALL,
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
    State,
    Step,
    Trajectory,
    concat,
    sample,
    select,
)
from unmask.engine.search import together
from unmask.engine.transition import Transition, apply, fill_after_eos, raise_faults


class Runner:
    """Runs the denoiser for the loop and, as look-ahead, on hypothetical canvases; counts what rows spend.

    Looks are remembered by canvas until the next real forward, so a look-ahead that comes true is not run again.
    """

    def __init__(
        self,
        denoiser: Denoiser,
        sampling: SamplingParams,
        planner: Denoiser | None = None,
        eos_ids: tuple[int, ...] = (),
        record_top: int = 0,
    ):
        self.denoiser, self.sampling, self.planner = denoiser, sampling, planner
        self.eos_ids = eos_ids
        """Tokens after which a row's tail is closed; none where it is not."""
        self.record_top = record_top
        """How many of the largest probabilities a recorded step keeps, where the method reads fewer."""
        self._whole: Prediction | None = None
        self.remembers = True
        """Whether looks are kept until the next real forward: a search has none, and keeps its paths' predictions."""
        self.on_show: Callable[[Trajectory], None] | None = None
        self._memo: dict[bytes, tuple[ModelOutput, int]] = {}

    def reset_costs(self, traj: Trajectory) -> None:
        """Start counting for a step (or a whole search) of these rows."""
        self.rows_B = traj.rows_B
        self.forwards_B = torch.zeros_like(traj.rows_B)
        self.processed_B = torch.zeros_like(traj.rows_B)
        self.planner_forwards_B = None if self.planner is None else torch.zeros_like(traj.rows_B)
        self.prepaid_B: Tensor | None = None

    def observe(self, traj: Trajectory, inputs: ModelInput, needs: Needs) -> Trajectory:
        """The step's own forward: the trajectory with its prediction."""
        self.reset_costs(traj)
        output = self._run(replace(inputs, row_B=traj.rows_B), needs)
        if traj.prepaid_B is not None:
            self._mark_prepaid(traj.prepaid_B)
        return self._attach_prediction(traj, output, inputs, needs)

    def _attach_prediction(self, traj: Trajectory, output: ModelOutput, inputs: ModelInput, needs: Needs) -> Trajectory:
        """The trajectory with what the logits say under its noise."""
        if self.record_top <= max(needs.top_k, 2):
            return replace(traj, prediction=self._sample(output, inputs, needs, traj, self.sampling))
        # The method sees what it asked for: some read all that there is.
        self._whole = self._sample(output, inputs, replace(needs, top_k=self.record_top), traj, self.sampling)
        clean, filtered = (part.largest(max(needs.top_k, 2)) for part in (self._whole.clean, self._whole.filtered))
        return replace(traj, prediction=replace(self._whole, clean=clean, filtered=filtered))

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
        """Predictions for hypothetical rows, greedy or drawn; `owner_U` says which running row pays for each."""
        needs = needs or Needs()
        inputs = replace(inputs or ModelInput.of(states, needs), row_B=None)
        if given_UL is not None:
            inputs = replace(inputs, given_BN=given_UL)
        output = self._forward(inputs, needs, owner_U)
        if self.remembers and inputs.attend_BNN is None:
            for row, key in enumerate(_keys(inputs, needs, self.rows_B[owner_U])):
                self._memo[key] = (output, row)
        # These are the run's own draws of tokens, so a method that draws nothing itself may ask for them, too.
        if isinstance(noise, ForbiddenNoise) and temperature is None:
            noise = Noise(noise.key_B)
        alone = Trajectory.start(states, noise or Noise(torch.zeros_like(states.step_B)))
        sampling = self.sampling if noise else self.sampling.greedy
        sampling = sampling if temperature is None else replace(sampling, temperature=temperature)
        return self._sample(output, inputs, needs, alone, sampling)

    def ask_planner(
        self, states: State, owner_U: Tensor, needs: Needs | None = None, *, inputs: ModelInput | None = None
    ) -> ModelOutput:
        """What the second network says of hypothetical rows."""
        if self.planner is None or self.planner_forwards_B is None:
            raise ConfigError("the policy asks a planner; allowed: a run that has one; pass planner=... to decode")
        needs = needs or Needs()
        output = self.planner(replace(inputs or ModelInput.of(states, needs), row_B=None), needs)
        self.planner_forwards_B = _charged(self.planner_forwards_B, owner_U, output.forwards)
        return output

    def apply_action(self, traj: Trajectory, policy: str, action: Action) -> Trajectory:
        """One transition of hypothetical rows, recorded. What it cost is counted for the whole search."""
        change = self.change(traj, action)
        raise_faults(change.fault_B, traj.state.step_B, traj.rows_B)
        nothing_B = torch.zeros_like(traj.rows_B)
        step = record_of(traj, policy, action, change, nothing_B, nothing_B)
        return append_step(traj, light_step(step), change.state, ALL)

    def report_paths(self, paths: Sequence[Trajectory]) -> None:
        """Whoever watches the run sees the best path of each row."""
        if self.on_show is not None and paths:
            self.on_show(together(paths, self.forwards_B))

    def change(self, traj: Trajectory, action: Action) -> Transition:
        """What an action does to the rows; its fault flags are not looked at yet."""
        change = apply(traj.state, traj.current_prediction, action)
        return fill_after_eos(change, self.eos_ids) if self.eos_ids else change

    def recompute_last_step(
        self, traj: Trajectory, view_of: Callable[[Trajectory], ModelInput], needs: Needs
    ) -> Trajectory:
        """Give a resumed trajectory back the posterior and the attention that a recording does not keep.

        This repeats a forward that the recorded past has already been charged for; the next `observe` counts anew.
        """
        if traj.last is None or not (needs.divergence or needs.posterior or needs.attention):
            return traj
        last = traj.last
        before = replace(traj, state=last.state, steps=traj.steps[:-1])
        again = self.observe(before, view_of(before), needs).current_prediction
        whole = replace(last.prediction, posterior=again.posterior, attention_BNN=again.attention_BNN)
        return replace(traj, steps=(*traj.steps[:-1], replace(last, prediction=whole)))

    def step(self, traj: Trajectory, name: str, action: Action, change: Transition) -> Step:
        """The record of one transition, with what it cost."""
        step = record_of(traj, name, action, change, self.forwards_B, self.processed_B)
        if self.planner_forwards_B is None and self.prepaid_B is None:
            return step
        return replace(step, planner_forwards_B=self.planner_forwards_B, prepaid_B=self.prepaid_B)

    def recorded(self, step: Step) -> Step:
        """The step as the record keeps it: with as many of the largest probabilities as were asked for."""
        if self._whole is None:
            return step
        whole = replace(step.prediction, clean=self._whole.clean, filtered=self._whole.filtered)
        return replace(step, prediction=whole)

    def _sample(
        self, output: ModelOutput, inputs: ModelInput, needs: Needs, traj: Trajectory, sampling: SamplingParams
    ) -> Prediction:
        return sample(
            output,
            inputs,
            sampling,
            needs,
            self.denoiser.vocabulary,
            noise=traj.noise,
            step_B=traj.state.step_B,
            previous=traj.previous_posterior,
        )

    def _run(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        """Logits of every row, from memory where the canvas was looked at."""
        if not self._memo or inputs.attend_BNN is not None:
            self._memo = {}
            return self._forward(inputs, needs, None)
        keys = _keys(inputs, needs, self.rows_B)
        missing = [row for row, key in enumerate(keys) if key not in self._memo]
        if missing:
            rows_U = torch.tensor(missing, device=inputs.tokens_BN.device)
            fresh = self._forward(select(inputs, rows_U), needs, rows_U)
            self._memo.update({keys[row]: (fresh, at) for at, row in enumerate(missing)})
        answers = [self._memo[key] for key in keys]
        self._memo = {}
        self.prepaid_B = torch.ones_like(self.rows_B, dtype=torch.bool)
        self.prepaid_B[missing] = False
        return _gather(answers)

    def _mark_prepaid(self, foreseen_B: Tensor) -> None:
        """The recorded past paid for this forward: it had looked at the canvas that became the real one."""
        self.prepaid_B = foreseen_B
        self.forwards_B = self.forwards_B.masked_fill(foreseen_B, 0)
        self.processed_B = self.processed_B.masked_fill(foreseen_B, 0)

    def _forward(self, inputs: ModelInput, needs: Needs, owner_U: Tensor | None) -> ModelOutput:
        """One pass, charged to its owners; None: every row pays for itself."""
        output = self.denoiser(inputs, needs)
        read_U = inputs.valid_BN.sum(-1) if output.processed_B is None else output.processed_B
        if owner_U is None:
            self.forwards_B = self.forwards_B + output.forwards
            self.processed_B = self.processed_B + output.forwards * read_U
        else:
            self.forwards_B = _charged(self.forwards_B, owner_U, output.forwards)
            self.processed_B = self.processed_B.index_add(0, owner_U, output.forwards * read_U)
        return output


def _charged(spent_B: Tensor, owner_U: Tensor, forwards: int) -> Tensor:
    return spent_B.index_add(0, owner_U, torch.full_like(owner_U, forwards))


def record_of(
    traj: Trajectory, name: str, action: Action, change: Transition, forwards_B: Tensor, processed_B: Tensor
) -> Step:
    """One transition, as policies and recordings read it."""
    return Step(
        rows_B=traj.rows_B,
        policy=name,
        state=traj.state,
        # Without hidden rows, and without what was derived from it: a record would keep that, too.
        prediction=replace(traj.current_prediction, hidden_BNH=None),
        action=action if action.rule is None else replace(action, rule=None),
        revealed_BL=change.revealed_BL,
        remasked_BL=change.remasked_BL,
        confidence_BL=change.confidence_BL,
        forwards_B=forwards_B,
        processed_B=processed_B,
    )


def joined(parts: Sequence[Trajectory], steps: tuple[Step, ...] | None = None) -> Trajectory:
    """Rows that ended at different times as one trajectory; each step names its rows. By default the parts' steps."""
    everyone = concat([replace(part, steps=(), prediction=None) for part in parts])
    every_step = tuple(step for part in parts for step in part.steps) if steps is None else steps
    return replace(everyone.select(everyone.rows_B.argsort()), steps=every_step)


class Finished:
    """Rows that have left the loop, and the record of all."""

    def __init__(self, start: Trajectory, keep: bool):
        self.keep = keep
        self.steps = list(start.steps) if keep else []
        self.parts: list[Trajectory] = []
        self.watch(start)

    def watch(self, traj: Trajectory) -> None:
        """These rows run from now on, and none of them has gone wrong."""
        self.fault_B, self.faulty_at_B, self.rows_B = torch.zeros_like(traj.rows_B), traj.state.step_B, traj.rows_B

    def record(self, step: Step, fault_B: Tensor) -> None:
        """Keep the step; its fault flags are looked at when the loop next asks who is done."""
        self.fault_B, self.faulty_at_B, self.rows_B = fault_B, step.state.step_B, step.rows_B
        if self.keep:
            self.steps.append(light_step(step))

    def retire(self, traj: Trajectory, done_B: Tensor) -> Trajectory:
        """Take finished rows out of the batch. The step's one host read serves the fault flags too."""
        faulty, some = torch.stack((self.fault_B != 0, done_B)).any(-1).tolist()
        if faulty:
            raise_faults(self.fault_B, self.faulty_at_B, self.rows_B)
        if not some:
            return traj
        self.parts.append(replace(traj, steps=(), prediction=None, prepaid_B=None).select(done_B.nonzero().flatten()))
        return traj.select((~done_B).nonzero().flatten())

    def whole(self) -> Trajectory:
        """Every row's last state, in the order they came, and all steps."""
        return joined(self.parts, tuple(self.steps))


def append_step(traj: Trajectory, step: Step, state: State, keep: int) -> Trajectory:
    """The next state; of the past `keep` steps (`ALL` for every one), and heavy parts only of the last."""
    past = tuple(light_step(s) for s in traj.steps[-1:])
    steps = (*traj.steps[:-1], *past, step)
    return replace(
        traj,
        state=state,
        prediction=None,
        prepaid_B=None,
        steps=steps if keep == ALL else steps[-keep:],
        forwards_B=traj.forwards_B + step.forwards_B,
        processed_B=traj.processed_B + step.processed_B,
        planner_forwards_B=added(traj.planner_forwards_B, step.planner_forwards_B),
        remasks_B=added(traj.remasks_B, step.remasked_BL.sum(-1)),
    )


def light_step(step: Step) -> Step:
    """Without the parts that grow with the vocabulary."""
    light = step.prediction.light
    return step if light is step.prediction else replace(step, prediction=light)


def added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one + other


def step_limit(state: State) -> int:
    """More steps than any method here takes; reaching it means no progress."""
    return int(4 * (state.horizon_B.max() + state.tokens_BL.shape[1]))


def unfinished(policy: Policy, traj: Trajectory, limit: int) -> Unfinished:
    """What is raised when it is reached."""
    return Unfinished(
        f"{policy.name} had not finished row {int(traj.rows_B[0])} after {limit} steps; allowed: a policy that "
        "reveals positions; look at its kappa and at what it re-masks"
    )


def _keys(inputs: ModelInput, needs: Needs, rows_B: Tensor) -> list[bytes]:
    """What a row's logits depend on, as bytes; the row too, or a forward that its neighbour paid for would be free."""
    extras = bytes((needs.attention, needs.hidden))
    flags = (inputs.valid_BN.long(), inputs.wanted_BN.long(), inputs.fixed_BN.long())
    own_BN = rows_B[:, None].expand_as(inputs.tokens_BN)
    table = torch.stack((own_BN, inputs.tokens_BN, inputs.position_BN, *flags), 1).cpu().numpy()
    return [extras + row.tobytes() for row in table]


def _gather(answers: list[tuple[ModelOutput, int]]) -> ModelOutput:
    """One packed answer out of rows of several."""
    rows = [output.slot_BN[row][output.wanted_BN[row]] for output, row in answers]
    parts = [output.logits_RV[r] for (output, _), r in zip(answers, rows, strict=True)]
    attention = [output.attention_BNN[row] for output, row in answers if output.attention_BNN is not None]
    hidden = [lg.hidden_RH[r] for (lg, _), r in zip(answers, rows, strict=True) if lg.hidden_RH is not None]
    return ModelOutput(
        torch.cat(parts),
        # A cache may have answered for fewer slots than the view wants.
        torch.stack([output.wanted_BN[row] for output, row in answers]),
        attention_BNN=torch.stack(attention) if attention else None,
        hidden_RH=torch.cat(hidden) if hidden else None,
    )
