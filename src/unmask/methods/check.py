"""The contract of a method, checked on exact problems: `check_policy` for deciders, `check_search` for own loops.

Every promise that others build on is tried for real: rows that do not notice each other, runs that repeat to the
byte and resume anywhere, inputs left alone, forwards counted. A broken one raises `ContractError` and says which.
"""

from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unmask.base.errors import ConfigError, ContractError
from unmask.core import (
    Action,
    Denoiser,
    DenoiserWrapper,
    ForbiddenNoise,
    LookAhead,
    ModelInput,
    ModelOutput,
    Needs,
    Noise,
    Policy,
    SamplingParams,
    Search,
    State,
    Trajectory,
    row_key,
    tensors,
)
from unmask.engine import decode
from unmask.methods.composed import CombinedPolicy
from unmask.methods.search_tools import ForwardBudget
from unmask.models import ExactDenoiser, JointDistribution


@dataclass(frozen=True)
class Problem:
    """Rows of different prompts, lengths and horizons on one denoiser, to try a method on."""

    denoiser: Denoiser
    state: State
    noise: Noise

    @classmethod
    def default(cls, seed: int = 0, device: torch.device | str = "cpu") -> "Problem":
        """Generation and infilling on a strongly dependent joint of eight three-valued variables."""
        denoiser = ExactDenoiser(JointDistribution.random(8, 3, dependence=2.0, seed=seed), eos_ids=(2,))
        m = denoiser.mask_id
        canvases = [
            [0, m, m, m, m, m, m],
            [1, 2, m, m, m, m],
            [1, m, m, 0, m, m, 2, 2],
            [2, m, m, m, m, m, m],
            [m, m, m, m, 0],
        ]
        state = State.from_canvases(canvases, steps=[3, 2, 4, 6, 2], mask_id=m, device=device)
        return cls(denoiser, state, Noise.of([row_key(seed, bytes(c)) for c in canvases], device))


def check_policy(policy: Policy, problem: Problem | None = None) -> None:
    """Raise `ContractError` unless the policy keeps every promise, at temperature 0 and above."""
    _check_frozen(policy)
    problem = problem or Problem.default()
    for sampling in (SamplingParams(), SamplingParams(temperature=0.8)):
        try_run = _Trial(policy, problem, sampling)
        whole = try_run.run(problem.state, problem.noise)
        try_run.check_end(problem.state, whole)
        try_run.check_counts()
        try_run.check_repeats(whole)
        try_run.check_rows(whole)
        try_run.check_resumes(whole)


def check_search(search: Search, problem: Problem | None = None) -> None:
    """The same for a method that owns its loop: nobody resumes inside it, and its steps must tell the way."""
    _check_frozen(search)
    problem = problem or Problem.default()
    for sampling in (SamplingParams(), SamplingParams(temperature=0.8)):
        trial = _Trial(search, problem, sampling)
        whole = trial.run(problem.state, problem.noise)
        trial.check_end(problem.state, whole)
        trial.check_steps(problem.state, whole)
        trial.check_counts()
        trial.check_repeats(whole)
        trial.check_rows(whole)
        base_B = search.baseline_forwards(problem.state)
        if base_B is not None:
            trial.check_budget(whole, base_B)


@dataclass
class _Trial:
    policy: Policy | Search
    problem: Problem
    sampling: SamplingParams

    def run(self, state: State | Trajectory, noise: Noise) -> Trajectory:
        self.counter = _Counting(self.problem.denoiser)
        policy = _Watched(self.policy) if isinstance(self.policy, Policy) else self.policy
        self.last = decode(self.counter, policy, state, noise=noise, sampling=self.sampling)
        return self.last

    def check_end(self, start: State, end: Trajectory) -> None:
        final = end.state
        self._must(not bool(final.masked_BL.any()), "finishes", "masks are left at the end")
        same = torch.equal(final.tokens_BL[start.fixed_BL], start.tokens_BL[start.fixed_BL])
        self._must(same, "leaves the prompt alone", "a fixed token changed")
        answers = final.tokens_BL[final.answer_BL]
        size = self.problem.denoiser.vocabulary.size
        legal = bool(((answers >= 0) & (answers < size)).all())
        self._must(legal, "writes tokens of the vocabulary", "an id out of range")

    def check_steps(self, start: State, end: Trajectory) -> None:
        """Recorded steps lead from the start to the end, each changing only what it says it changes."""
        for row in range(start.batch):
            alone = end.row(row)
            canvases = list(alone.canvases())
            begins = torch.equal(canvases[0], start.tokens_BL[row])
            self._must(bool(alone.steps) and begins, "records its steps", f"row {row} has no first step at its start")
            for step, before_L, after_L in zip(alone.steps, canvases, canvases[1:], strict=False):
                said_L = step.revealed_BL[0] | step.remasked_BL[0]
                same = torch.equal(before_L[~said_L], after_L[~said_L])
                self._must(same, "records its steps", f"row {row} changed where no step says so")

    def check_counts(self) -> None:
        counted = int(self.last.forwards_B.sum()), int(self.last.processed_B.sum())
        real = self.counter.rows, self.counter.tokens
        self._must(counted == real, "counts its forwards", f"recorded (forwards, tokens) {counted}, ran {real}")

    def check_budget(self, whole: Trajectory, base_B: Tensor) -> None:
        """Its own budget is kept, and so is the smallest; one below that is refused, whatever the setting is called."""
        search: Any = self.policy
        budget = ForwardBudget(search.budget, base_B)
        most = [base + spare for base, spare in zip(budget.base, budget.spare, strict=True)]
        self._must(_within(whole, most), "stops inside its budget", f"{whole.forwards_B.tolist()} of {most} forwards")
        least = int(base_B.max())
        end = _Trial(replace(search, budget=least), self.problem, self.sampling).run(
            self.problem.state, self.problem.noise
        )
        self._must(_within(end, [least] * len(most)), "stops inside its budget", f"more than {least}, the smallest")
        try:
            replace(search, budget=least - 1).check(self.problem.state)
        except ConfigError:
            return
        self._must(least == 1, "refuses a budget below a base decode", f"took {least - 1} forwards")

    def check_repeats(self, whole: Trajectory) -> None:
        again = self.run(self.problem.state, self.problem.noise)
        self._must(_same(whole, again), "gives the same bytes for the same seed", "two runs differ")

    def check_rows(self, whole: Trajectory) -> None:
        """Alone, in another order, with more padding: a row's run is the same."""
        state, noise = self.problem.state, self.problem.noise
        order = torch.arange(state.batch - 1, -1, -1)
        turned = self.run(state.select(order), noise.select(order))
        padded = self.run(state.pad_to(state.tokens_BL.shape[1] + 3), noise)
        for row in range(state.batch):
            one = torch.tensor([row])
            alone = self.run(state.select(one), noise.select(one))
            expected = _row_record(whole, row)
            self._must(_row_record(alone, 0) == expected, "rows ignore their neighbours", f"row {row} alone differs")
            reverse = _row_record(turned, state.batch - 1 - row)
            self._must(reverse == expected, "rows ignore their order", f"row {row} differs in a reversed batch")
            self._must(_row_record(padded, row) == expected, "rows ignore padding", f"row {row} differs when padded")

    def check_resumes(self, whole: Trajectory) -> None:
        """From any recorded state; and, where memory 0 is declared, from the bare state."""
        for row in range(whole.state.batch):
            expected = _row_record(whole, row)
            for step in range(len(whole.row(row).steps)):
                start = whole.resume(row, step)
                resumed = self.run(start, start.noise)
                where = f"row {row} resumed at step {step}"
                self._must(_row_record(resumed, 0) == expected, "resumes from any recorded state", f"{where} differs")
                if isinstance(self.policy, Policy) and self.policy.past_steps == 0:
                    bare = self.run(replace(start, steps=()), start.noise)
                    self._must(_end(bare, 0) == _end(whole, row), "memory 0 reads no past", f"{where} bare differs")

    def _must(self, ok: bool, promise: str, broken: str) -> None:
        if not ok:
            at = f"at temperature {self.sampling.temperature:g}"
            raise ContractError(f"{self.policy.name} breaks the promise '{promise}' {at}: {broken}; see {__name__}")


class _Watched(CombinedPolicy):
    """A policy that passes every call on and sees to it that deciding changes nothing it was shown."""

    def __init__(self, inner: Policy):
        self.inner = inner
        self.name = inner.name  # type: ignore[misc]

    @property
    def parts(self) -> tuple[Policy, ...]:
        return (self.inner,)

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        before = [t.clone() for t in tensors(traj).values()]
        settings = repr(self.inner)
        shown = traj if self.inner.random else replace(traj, noise=ForbiddenNoise(traj.noise.key_B))
        action = self.inner.act(shown, look_ahead)
        kept = all(torch.equal(a, b) or _both_nan(a, b) for a, b in zip(before, tensors(traj).values(), strict=True))
        if not kept or repr(self.inner) != settings:
            raise ContractError(f"{self.name} breaks the promise 'leaves its inputs alone'; see {__name__}")
        return action

    def model_input(self, traj: Trajectory) -> ModelInput:
        return self.inner.model_input(traj)

    def done(self, traj: Trajectory) -> Tensor:
        return self.inner.done(traj)


class _Counting(DenoiserWrapper):
    """A denoiser that knows how many rows and tokens it was really run on."""

    def __init__(self, inner: Denoiser):
        self.denoiser, self.rows, self.tokens = inner, 0, 0

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        output = self.denoiser(inputs, needs)
        self.rows += output.forwards * inputs.tokens_BN.shape[0]
        self.tokens += output.forwards * int(inputs.valid_BN.sum())
        return output


def _check_frozen(policy: Policy | Search) -> None:
    if not isinstance(policy, Policy | Search):
        raise ContractError(
            f"{policy!r} is no policy; allowed: an instance of Policy or Search; e.g. LLaDA(), not LLaDA"
        )
    frozen = is_dataclass(policy) and type(policy).__dataclass_params__.frozen
    if not frozen:
        raise ContractError(f"{policy.name} breaks the promise 'is frozen'; make it a dataclass(frozen=True)")


def _end(traj: Trajectory, row: int) -> list[int]:
    length = int(traj.state.length_B[row])
    return traj.state.tokens_BL[row, :length].tolist()


def _row_record(traj: Trajectory, row: int) -> list[object]:
    """What must not depend on the batch: the row's decisions and what they cost."""
    return [*_decisions(traj, row), int(traj.forwards_B[row]), int(traj.processed_B[row])]


def _decisions(traj: Trajectory, row: int) -> list[object]:
    """Every change to the row's canvas, cut to its own length; floats as bytes."""
    alone = traj.row(row)
    length = int(alone.state.length_B[0])
    record: list[object] = [_end(traj, row), len(alone.steps)]
    for step in alone.steps:
        record.append(step.revealed_BL[0, :length].tolist())
        record.append(step.remasked_BL[0, :length].tolist())
        record.append(step.confidence_BL[0, :length].cpu().numpy().tobytes())
    return record


def _within(traj: Trajectory, most: list[int]) -> bool:
    return all(spent <= limit for spent, limit in zip(traj.forwards_B.tolist(), most, strict=True))


def _same(a: Trajectory, b: Trajectory) -> bool:
    rows = range(a.state.batch)
    return all(_row_record(a, row) == _row_record(b, row) for row in rows)


def _both_nan(a: Tensor, b: Tensor) -> bool:
    return a.is_floating_point() and torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan())
