"""The contract of a method, tried on exact problems: `check_policy` for policies, `check_search` for own loops.

Every promise that others build on is tried by running the method, the declared traits among them, with its settings and
with both ends of every setting that has a range. A broken promise raises `ContractError` and says which.
"""

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, get_args, get_type_hints

import torch
from pydantic.fields import FieldInfo
from torch import Tensor
from torch.overrides import TorchFunctionMode

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

PADDINGS = (1, 3, 24)
"""Positions that canvases are padded by. A count that depends on the padded width may stay equal under one of them."""
_MOST = 32
"""Largest value tried of a setting whose range goes further: more than any answer of the problems has positions."""


@dataclass(frozen=True)
class Problem:
    """Test problem for methods: rows with different prompts, lengths and numbers of steps, and a denoiser."""

    denoiser: Denoiser
    state: State
    noise: Noise

    @classmethod
    def default(cls, seed: int = 0, device: torch.device | str = "cpu") -> "Problem":
        """Generation and infilling on a joint of eight three-valued variables that depend strongly on each other."""
        denoiser = ExactDenoiser(JointDistribution.random(8, 3, dependence=2.0, seed=seed), eos_ids=(2,))
        m = denoiser.mask_id
        canvases = [
            [0, m, m, m, m, m, m],
            [1, 2, m, m, m, m],
            [1, m, m, 0, m, m, 2, 2],
            [2, m, m, m, m, m, m],
            [m, m, m, m, 0],
        ]
        return cls._of(denoiser, canvases, [3, 2, 4, 6, 2], seed, device)

    @classmethod
    def longer(cls, seed: int = 0, device: torch.device | str = "cpu") -> "Problem":
        """Answers of eleven and nine positions in as many steps: lengths that are not multiples of usual blocks."""
        denoiser = ExactDenoiser(JointDistribution.random(11, 2, dependence=2.0, seed=seed))
        m = denoiser.mask_id
        return cls._of(denoiser, [[m] * 11, [1, *[m] * 9]], [11, 9], seed, device)

    @classmethod
    def _of(
        cls, denoiser: ExactDenoiser, canvases: list[list[int]], steps: list[int], seed: int, device: torch.device | str
    ) -> "Problem":
        state = State.from_canvases(canvases, steps=steps, mask_id=denoiser.mask_id, device=device)
        return cls(denoiser, state, Noise.of([row_key(seed, bytes(c)) for c in canvases], device))


def check_policy(policy: Policy, problem: Problem | None = None) -> None:
    """Raise `ContractError` unless the policy keeps every promise, at temperature 0 and above."""
    _check_frozen(policy)
    given, problem = problem, problem or Problem.default()
    for sampling in (SamplingParams(), SamplingParams(temperature=0.8)):
        trial = _Trial(policy, problem, sampling)
        whole = trial.check_run()
        trial.check_rows(whole)
        trial.check_resumes(whole)
        trial.check_traits(whole)
    if given is not None:
        return
    longer = _Trial(policy, Problem.longer(), SamplingParams())
    ends = [_Trial(end, problem, SamplingParams(), f" with {change}") for end, change in _with_extreme_settings(policy)]
    # The cheaper promises only: resuming at every step of every end would take minutes.
    for trial in (longer, *ends):
        try:
            trial.policy.check(trial.problem.state)
        except ConfigError:
            continue  # a method may refuse a start
        whole = trial.run(trial.problem.state, trial.problem.noise)
        trial.check_end(whole)
        trial.check_padding(whole)
        trial.check_traits(whole)


def check_search(search: Search, problem: Problem | None = None) -> None:
    """Raise `ContractError` unless a method that owns its loop keeps its promises.

    They are a policy's, but nobody resumes inside it: its recorded steps must lead to its end, and its budget is kept.
    """
    _check_frozen(search)
    problem = problem or Problem.default()
    for sampling in (SamplingParams(), SamplingParams(temperature=0.8)):
        trial = _Trial(search, problem, sampling)
        whole = trial.check_run()
        trial.check_steps(whole)
        trial.check_rows(whole)
        base_B = search.baseline_forwards(problem.state)
        if base_B is not None:
            trial.check_budget(whole, base_B)


def _with_extreme_settings(policy: Policy) -> Iterator[tuple[Policy, str]]:
    """Yield the policy with one setting at an end of its range, for every setting that has a range."""
    hints = get_type_hints(type(policy), include_extras=True)
    for setting, field in policy.setting_fields.items():
        hint = hints.get(field)  # None where what is recorded is a property
        annotations = [hint, *get_args(hint)]
        parts = [part for annotation in annotations for part in getattr(annotation, "__metadata__", ())]
        limits = [limit for part in parts if isinstance(part, FieldInfo) for limit in part.metadata]
        for end in [getattr(limit, kind) for limit in limits for kind in ("ge", "le") if hasattr(limit, kind)]:
            value = min(end, _MOST)
            try:
                yield replace(policy, **{field: value}), f"{setting}={value}"  # type: ignore[type-var]
            except ConfigError:
                continue


@dataclass
class _Trial:
    policy: Policy | Search
    problem: Problem
    sampling: SamplingParams
    settings: str = ""
    """The setting that was changed, for messages."""

    def run(self, start: State | Trajectory, noise: Noise) -> Trajectory:
        """Decode from a start with a denoiser that counts its passes."""
        self.counter = _CountingDenoiser(self.problem.denoiser)
        policy = _WatchedPolicy(self.policy) if isinstance(self.policy, Policy) else self.policy
        return decode(self.counter, policy, start, noise=noise, sampling=self.sampling)

    def check_run(self) -> Trajectory:
        """Decode the problem twice: the run must finish, count its passes, and give the same bytes again."""
        state, noise = self.problem.state, self.problem.noise
        whole = self.run(state, noise)
        self.check_end(whole)
        counted = int(whole.forwards_B.sum()), int(whole.processed_B.sum())
        real = self.counter.rows, self.counter.tokens
        self._require_promise(
            counted == real, "counts its forwards", f"recorded (forwards, tokens) {counted}, ran {real}"
        )
        again = self.run(state, noise)
        same = all(_row_outcome(whole, row) == _row_outcome(again, row) for row in range(state.batch))
        self._require_promise(same, "gives the same bytes for the same seed", "two runs differ")
        return whole

    def check_end(self, end: Trajectory) -> None:
        start, final = self.problem.state, end.state
        self._require_promise(not bool(final.masked_BL.any()), "finishes", "masks are left at the end")
        same = torch.equal(final.tokens_BL[start.fixed_BL], start.tokens_BL[start.fixed_BL])
        self._require_promise(same, "leaves the prompt alone", "a fixed token changed")
        answers = final.tokens_BL[final.answer_BL]
        legal = bool(((answers >= 0) & (answers < self.problem.denoiser.vocabulary.size)).all())
        self._require_promise(legal, "writes tokens of the vocabulary", "an id out of range")

    def check_steps(self, end: Trajectory) -> None:
        """Check that recorded steps lead from start to end, and that each changes only what it says it changes."""
        start = self.problem.state
        for row in range(start.batch):
            alone = end.row(row)
            canvases = list(alone.canvases())
            begins = torch.equal(canvases[0], start.tokens_BL[row])
            self._require_promise(
                bool(alone.steps) and begins, "records its steps", f"row {row} has no first step at its start"
            )
            for step, before_L, after_L in zip(alone.steps, canvases, canvases[1:], strict=False):
                changed_L = step.revealed_BL[0] | step.remasked_BL[0]
                same = torch.equal(before_L[~changed_L], after_L[~changed_L])
                self._require_promise(same, "records its steps", f"row {row} changed where no step says so")

    def check_budget(self, whole: Trajectory, base_B: Tensor) -> None:
        """Check that the search spends no more than its own or the smallest budget, and refuses a smaller one."""
        search: Any = self.policy

        def within(traj: Trajectory, most: list[int]) -> bool:
            return all(spent <= limit for spent, limit in zip(traj.forwards_B.tolist(), most, strict=True))

        budget = ForwardBudget(search.budget, base_B)
        most = [base + spare for base, spare in zip(budget.base, budget.spare, strict=True)]
        self._require_promise(
            within(whole, most), "stops inside its budget", f"{whole.forwards_B.tolist()} of {most} forwards"
        )
        least = int(base_B.max())
        end = _Trial(replace(search, budget=least), self.problem, self.sampling).run(
            self.problem.state, self.problem.noise
        )
        self._require_promise(
            within(end, [least] * len(most)), "stops inside its budget", f"more than {least}, the smallest"
        )
        try:
            replace(search, budget=least - 1).check(self.problem.state)
        except ConfigError:
            return
        self._require_promise(least == 1, "refuses a budget below a base decode", f"took {least - 1} forwards")

    def check_rows(self, whole: Trajectory) -> None:
        """Check that a row's run is the same alone, in another order, and with more padding."""
        state, noise = self.problem.state, self.problem.noise
        order = torch.arange(state.batch - 1, -1, -1)
        turned = self.run(state.select(order), noise.select(order))
        for row in range(state.batch):
            one = torch.tensor([row])
            alone = self.run(state.select(one), noise.select(one))
            expected = _row_outcome(whole, row)
            self._require_promise(
                _row_outcome(alone, 0) == expected, "rows ignore their neighbours", f"row {row} alone differs"
            )
            reverse = _row_outcome(turned, state.batch - 1 - row)
            self._require_promise(
                reverse == expected, "rows ignore their order", f"row {row} differs in a reversed batch"
            )
        self.check_padding(whole)

    def check_padding(self, whole: Trajectory) -> None:
        state = self.problem.state
        for extra in PADDINGS:
            padded = self.run(state.pad_to(state.tokens_BL.shape[1] + extra), self.problem.noise)
            for row in range(state.batch):
                same = _row_outcome(padded, row) == _row_outcome(whole, row)
                self._require_promise(same, "rows ignore padding", f"row {row} differs when padded by {extra}")

    def check_resumes(self, whole: Trajectory) -> None:
        """Check that a run resumes from any recorded state with only the past steps that the policy declares."""
        for row in range(whole.state.batch):
            expected = _row_outcome(whole, row)
            for step in range(len(whole.row(row).steps)):
                start = whole.resume(row, step)
                resumed = self.run(start, start.noise)
                where = f"row {row} resumed at step {step}"
                self._require_promise(
                    _row_outcome(resumed, 0) == expected, "resumes from any recorded state", f"{where} differs"
                )
                memory = self.policy.past_steps if isinstance(self.policy, Policy) else -1
                if 0 <= memory < len(start.steps):
                    cut = self.run(replace(start, steps=start.steps[len(start.steps) - memory :]), start.noise)
                    promise = f"memory {memory} reads no {'past' if memory == 0 else 'more'}"
                    self._require_promise(
                        _answer_tokens(cut, 0) == _answer_tokens(whole, row),
                        promise,
                        f"{where} differs with its past cut",
                    )

    # --- traits

    def check_traits(self, whole: Trajectory) -> None:
        """Check that the run has the steps, remasking and blocks that the policy declares."""
        policy, start = self.policy, self.problem.state
        assert isinstance(policy, Policy)
        if policy.steps == "end" and not policy.extra_steps:
            steps, horizons = whole.state.step_B.tolist(), start.horizon_B.tolist()
            in_time = all(taken <= given for taken, given in zip(steps, horizons, strict=True))
            self._require_promise(in_time, "steps = 'end'", f"rows take {steps} steps where they were given {horizons}")
        if policy.steps == "ignore":
            # One step fewer, or one more where there is a single one: State refuses 0.
            other_B = torch.where(start.horizon_B > 1, start.horizon_B - 1, start.horizon_B + 1)
            other = self.run(replace(start, horizon_B=other_B), self.problem.noise)
            for row in range(start.batch):
                same = _row_decisions(other, row) == _row_decisions(whole, row)
                self._require_promise(
                    same, "steps = 'ignore'", f"row {row} goes another way with another number of steps"
                )
        for number, step in enumerate(whole.steps):
            taken_back = bool(step.remasked_BL.any())
            self._require_promise(
                policy.remasks or not taken_back, "remasks = False", f"step {number} masks a token again"
            )
            if policy.block_cache and not taken_back:
                self._check_block(policy, step.state, step.revealed_BL, number)

    def _check_block(self, policy: Policy, state: State, revealed_BL: Tensor, number: int) -> None:
        """Check that a step reveals only in the leftmost block that has masks."""
        length = getattr(policy, "block_length", None)
        if length is None:
            return
        block_BL = torch.where(state.masked_BL, state.rank_BL // length, torch.iinfo(torch.long).max)
        beyond = (revealed_BL & (block_BL > block_BL.amin(-1, keepdim=True))).any(-1)
        self._require_promise(
            not bool(beyond.any()), "block_cache = True", f"step {number} reveals beyond the first open block"
        )

    def _require_promise(self, ok: bool, promise: str, broken: str) -> None:
        if not ok:
            at = f"at temperature {self.sampling.temperature:g}{self.settings}"
            raise ContractError(f"{self.policy.name} breaks the promise '{promise}' {at}: {broken}; see {__name__}")


class _WatchedPolicy(CombinedPolicy):
    """A policy around another that raises when a decision changes its inputs, or breaks a declared trait.

    One that is not `random` gets noise that raises on every draw; one with `cuda_graph` may not read a tensor.
    """

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
        if self.inner.cuda_graph:
            bounded = self.inner.bounded(traj.state.tokens_BL.shape[1])
            bounded.act(shown, look_ahead)  # the first time may copy tables to the device
            with _NoHostReads(f"{self.name} breaks the promise 'cuda_graph = True'"):
                bounded.act(shown, look_ahead)
        pairs = zip(before, tensors(traj).values(), strict=True)
        kept = all(torch.allclose(was, now, rtol=0, atol=0, equal_nan=True) for was, now in pairs)
        if not kept or repr(self.inner) != settings:
            raise ContractError(f"{self.name} breaks the promise 'leaves its inputs alone'; see {__name__}")
        return action

    def model_input(self, traj: Trajectory) -> ModelInput:
        return self.inner.model_input(traj)

    def done(self, traj: Trajectory) -> Tensor:
        return self.inner.done(traj)


_HOST_READS = frozenset(
    {
        *("item", "tolist", "numpy", "cpu", "tensor", "as_tensor", "equal", "allclose"),
        *("nonzero", "masked_select", "unique", "__bool__", "__int__", "__float__", "__index__", "__array__"),
    }
)
"""Operations that read a tensor on the host, copy to the device, or make shapes of values."""


class _NoHostReads(TorchFunctionMode):
    """Refuse operations that a CUDA graph cannot hold: a GPU would stop at them, or replay the first step's answer."""

    def __init__(self, broken: str):
        super().__init__()
        self.broken = broken

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        indices = args[1] if name in ("__getitem__", "__setitem__") else ()
        flags = [i for i in (indices if isinstance(indices, tuple) else (indices,)) if isinstance(i, Tensor)]
        if name in _HOST_READS or any(index.dtype == torch.bool for index in flags):
            raise ContractError(f"{self.broken}: its decision calls {name} on a tensor; see {__name__}")
        return func(*args, **(kwargs or {}))


class _CountingDenoiser(DenoiserWrapper):
    """Denoiser that counts its forward passes over rows, and the tokens that these passes read."""

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


def _answer_tokens(traj: Trajectory, row: int) -> list[int]:
    return traj.state.tokens_BL[row, : int(traj.state.length_B[row])].tolist()


def _row_outcome(traj: Trajectory, row: int) -> list[object]:
    """Return a row's decisions and costs, which must not depend on the other rows of the batch."""
    return [*_row_decisions(traj, row), int(traj.forwards_B[row]), int(traj.processed_B[row])]


def _row_decisions(traj: Trajectory, row: int) -> list[object]:
    """Return all changes to a row's canvas, without padding and with floats as bytes."""
    alone = traj.row(row)
    length = int(alone.state.length_B[0])
    record: list[object] = [_answer_tokens(traj, row), len(alone.steps)]
    for step in alone.steps:
        record.append(step.revealed_BL[0, :length].tolist())
        record.append(step.remasked_BL[0, :length].tolist())
        record.append(step.confidence_BL[0, :length].cpu().numpy().tobytes())
    return record
