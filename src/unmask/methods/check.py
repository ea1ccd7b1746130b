"""The contract of a method, tried on exact problems: `check_policy` for policies, `check_search` for searches.

Every promise that other code builds on is tried by running the method, with its settings and with both ends of every
setting that has a range. A broken promise raises `ContractError` and says which.
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
_LARGEST_VALUE = 32
"""Largest value tried of a setting whose range goes further: more than any answer of the problems has positions."""
TEMPERATURES = (SamplingParams(), SamplingParams(temperature=0.8))
"""Sampling options under which methods are tried: greedy, and at temperature 0.8."""


@dataclass(frozen=True)
class Problem:
    """Test problem for methods: rows with different prompts, lengths and numbers of steps, and a denoiser."""

    denoiser: Denoiser
    state: State
    noise: Noise

    @classmethod
    def default(cls, seed: int = 0, device: torch.device | str = "cpu") -> "Problem":
        """Return a problem of generation and infilling with eight dependent variables of three values each."""
        denoiser = ExactDenoiser(JointDistribution.random(8, 3, dependence=2.0, seed=seed), eos_ids=(2,))
        m = denoiser.mask_id
        canvases = [[0, *[m] * 6], [1, 2, *[m] * 4], [1, m, m, 0, m, m, 2, 2], [2, *[m] * 6], [*[m] * 4, 0]]
        return cls._of(denoiser, canvases, [3, 2, 4, 6, 2], seed, device)

    @classmethod
    def longer(cls, seed: int = 0, device: torch.device | str = "cpu") -> "Problem":
        """Return a problem with answers of 11 and 9 positions: lengths that are not multiples of usual blocks."""
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
    """Raise `ContractError` unless the policy keeps every promise, at temperature 0 and above.

    Without a `problem` the policy is also tried on longer answers and with settings at the ends of their ranges.
    """
    _check_frozen(policy)
    trials = [_Trial(policy, problem or Problem.default(), sampling) for sampling in TEMPERATURES]
    runs = [trial.check_run() for trial in trials]
    for trial, run in zip(trials, runs, strict=True):
        trial.check_rows(run)
        trial.check_resumes(run)
        trial.check_traits(run)
    if problem is not None:
        return
    # The cheaper promises only: resuming at every step with every setting would take minutes.
    others = [_Trial(policy, Problem.longer(), TEMPERATURES[0])]
    others += [replace(trials[0], method=end, change=f" with {change}") for end, change in _extreme_settings(policy)]
    for trial in others:
        if trial.accepts_start():
            run = trial.run()
            trial.check_end(run)
            trial.check_padding(run)
            trial.check_traits(run)
    if policy.steps == "pace":
        # A method that never minds would be said to need steps which it ignores.
        paced = any(trial.depends_on_steps(run) for trial, run in zip(trials, runs, strict=True))
        trials[0].require(paced, "steps = 'pace'", "no row goes another way with another number of steps")


def check_search(search: Search, problem: Problem | None = None) -> None:
    """Raise `ContractError` unless a method that owns its loop keeps its promises.

    They are a policy's, except that nobody resumes inside a search: its recorded steps must lead to its end, and it
    must keep its budget.
    """
    _check_frozen(search)
    problem = problem or Problem.default()
    for sampling in TEMPERATURES:
        trial = _Trial(search, problem, sampling)
        run = trial.check_run()
        trial.check_steps(run)
        trial.check_rows(run)
        base_B = search.baseline_forwards(problem.state)
        if base_B is not None:
            trial.check_budget(search, run, base_B)


def _check_frozen(method: Policy | Search) -> None:
    """Refuse what is no policy or search, and classes whose settings can be changed."""
    if not isinstance(method, Policy | Search):
        raise ContractError(
            f"{method!r} is no policy; allowed: an instance of Policy or Search; e.g. LLaDA(), not LLaDA"
        )
    if not (is_dataclass(method) and type(method).__dataclass_params__.frozen):
        raise ContractError(f"{method.name} breaks the promise 'is frozen'; make it a dataclass(frozen=True)")


def _extreme_settings(policy: Policy) -> Iterator[tuple[Policy, str]]:
    """Yield the policy with one setting at an end of its range, for every setting that has a range."""
    hints = get_type_hints(type(policy), include_extras=True)
    for setting, field in policy.setting_fields.items():
        hint = hints.get(field)  # None where what is recorded is a property
        annotations = [hint, *get_args(hint)]
        parts = [part for annotation in annotations for part in getattr(annotation, "__metadata__", ())]
        limits = [limit for part in parts if isinstance(part, FieldInfo) for limit in part.metadata]
        for end in [getattr(limit, kind) for limit in limits for kind in ("ge", "le") if hasattr(limit, kind)]:
            value = min(end, _LARGEST_VALUE)
            try:
                yield replace(policy, **{field: value}), f"{setting}={value}"  # type: ignore[type-var]
            except ConfigError:
                continue  # settings may exclude each other


@dataclass
class _Trial:
    """A method on a problem at one temperature, and the promises that its runs are checked for."""

    method: Policy | Search
    problem: Problem
    sampling: SamplingParams
    change: str = ""
    """The setting that was changed, for messages."""

    def require(self, ok: bool, promise: str, broken: str) -> None:
        """Raise `ContractError` with the method, the promise and how it was broken, unless `ok`."""
        if not ok:
            at = f"at temperature {self.sampling.temperature:g}{self.change}"
            raise ContractError(f"{self.method.name} breaks the promise '{promise}' {at}: {broken}; see {__name__}")

    def run(self, start: State | Trajectory | None = None, noise: Noise | None = None) -> Trajectory:
        """Decode from a start, by default the problem's, with a denoiser that counts its passes."""
        self.counter = _CountingDenoiser(self.problem.denoiser)
        method = _WatchedPolicy(self.method) if isinstance(self.method, Policy) else self.method
        noise = self.problem.noise if noise is None else noise
        start = self.problem.state if start is None else start
        return decode(self.counter, method, start, noise=noise, sampling=self.sampling)

    def accepts_start(self, state: State | None = None) -> bool:
        """Return whether the method accepts a start; it may refuse one."""
        try:
            self.method.check(self.problem.state if state is None else state)
        except ConfigError:
            return False
        return True

    def check_run(self) -> Trajectory:
        """Decode the problem twice: the run must finish, count its passes, and give the same bytes again."""
        run = self.run()
        self.check_end(run)
        counted = int(run.forwards_B.sum()), int(run.processed_B.sum())
        real = self.counter.rows, self.counter.tokens
        self.require(counted == real, "counts its forwards", f"recorded (forwards, tokens) {counted}, ran {real}")
        same = _collect_outcomes(self.run()) == _collect_outcomes(run)
        self.require(same, "gives the same bytes for the same seed", "two runs differ")
        return run

    def check_end(self, run: Trajectory) -> None:
        """Check that the answer is complete, in the vocabulary, and nothing else has changed."""
        start, final = self.problem.state, run.state
        self.require(not bool(final.masked_BL.any()), "finishes", "masks are left at the end")
        same = torch.equal(final.tokens_BL[start.fixed_BL], start.tokens_BL[start.fixed_BL])
        self.require(same, "leaves the prompt alone", "a fixed token changed")
        answers = final.tokens_BL[final.answer_BL]
        legal = bool(((answers >= 0) & (answers < self.problem.denoiser.vocabulary.size)).all())
        self.require(legal, "writes tokens of the vocabulary", "an id out of range")

    def check_rows(self, run: Trajectory) -> None:
        """Check that a row's run is the same alone, in another order, and with more padding."""
        state, noise, expected = self.problem.state, self.problem.noise, _collect_outcomes(run)
        order = torch.arange(state.batch - 1, -1, -1)
        reversed_rows = _collect_outcomes(self.run(state.select(order), noise.select(order)))
        self.require(reversed_rows[::-1] == expected, "rows ignore their order", "a reversed batch differs")
        for row in range(state.batch):
            one = torch.tensor([row])
            alone = _collect_outcomes(self.run(state.select(one), noise.select(one)))
            self.require(alone == [expected[row]], "rows ignore their neighbours", f"row {row} alone differs")
        self.check_padding(run)

    def check_padding(self, run: Trajectory) -> None:
        """Check that a run on longer, padded canvases gives every row the same decisions and costs."""
        state = self.problem.state
        for extra in PADDINGS:
            padded = _collect_outcomes(self.run(state.pad_to(state.tokens_BL.shape[1] + extra)))
            self.require(
                padded == _collect_outcomes(run), "rows ignore padding", f"a row differs when padded by {extra}"
            )

    def check_resumes(self, run: Trajectory) -> None:
        """Check that a run resumes from any recorded state with only the past steps that the policy declares."""
        assert isinstance(self.method, Policy)
        past = self.method.past_steps
        for row, expected in enumerate(_collect_outcomes(run)):
            for step in range(len(run.row(row).steps)):
                start = run.resume(row, step)
                where = f"row {row} resumed at step {step} differs"
                same = _collect_outcomes(self.run(start, start.noise)) == [expected]
                self.require(same, "resumes from any recorded state", where)
                if 0 <= past < len(start.steps):
                    cut = self.run(replace(start, steps=start.steps[len(start.steps) - past :]), start.noise)
                    promise = f"past_steps = {past} reads no {'past' if past == 0 else 'more'}"
                    self.require(
                        _select_answer_tokens(cut, 0) == _select_answer_tokens(run, row), promise, f"{where} without it"
                    )

    # --- declared traits

    def check_traits(self, run: Trajectory) -> None:
        """Check that the run has the steps, remasking and blocks that the policy declares."""
        policy = self.method
        assert isinstance(policy, Policy)
        if policy.steps == "end" and not policy.extra_steps:
            other = self._change_steps()
            for end in (run, *([self.run(other)] if self.accepts_start(other) else [])):
                late = bool((end.state.step_B > end.state.horizon_B).any())
                taken, given = end.state.step_B.tolist(), end.state.horizon_B.tolist()
                self.require(not late, "steps = 'end'", f"rows take {taken} steps where they were given {given}")
        if policy.steps == "ignore":
            same = not self.depends_on_steps(run)
            self.require(same, "steps = 'ignore'", "a row goes another way with another number of steps")
        for number, step in enumerate(run.steps):
            taken_back = bool(step.remasked_BL.any())
            self.require(policy.remasks or not taken_back, "remasks = False", f"step {number} masks a token again")
            length = getattr(policy, "block_length", None)
            if policy.block_cache and length is not None and not taken_back:
                # A cache holds the other blocks, so nothing may be revealed beyond the first one with masks.
                state = step.state
                block_BL = torch.where(state.masked_BL, state.rank_BL // length, torch.iinfo(torch.long).max)
                beyond_BL = step.revealed_BL & (block_BL > block_BL.amin(-1, keepdim=True))
                broken = f"step {number} reveals beyond the first open block"
                self.require(not bool(beyond_BL.any()), "block_cache = True", broken)

    def depends_on_steps(self, run: Trajectory) -> bool:
        """Return whether a row decides otherwise with another number of steps."""
        other = self._change_steps()
        return not self.accepts_start(other) or _collect_decisions(self.run(other)) != _collect_decisions(run)

    def _change_steps(self) -> State:
        """Return the start with another number of steps: one for each row, two where the problem has one."""
        horizon_B = self.problem.state.horizon_B
        return replace(self.problem.state, horizon_B=torch.where(horizon_B > 1, 1, 2))

    # --- searches

    def check_steps(self, run: Trajectory) -> None:
        """Check that recorded steps lead from start to end, and that each changes only what it says it changes."""
        start = self.problem.state
        for row in range(start.batch):
            alone = run.row(row)
            canvases = list(alone.canvases())
            begins = bool(alone.steps) and torch.equal(canvases[0], start.tokens_BL[row])
            self.require(begins, "records its steps", f"row {row} has no first step at its start")
            for step, before_L, after_L in zip(alone.steps, canvases, canvases[1:], strict=False):
                changed_L = step.revealed_BL[0] | step.remasked_BL[0]
                same = torch.equal(before_L[~changed_L], after_L[~changed_L])
                self.require(same, "records its steps", f"row {row} changed where no step says so")

    def check_budget(self, search: Any, run: Trajectory, base_B: Tensor) -> None:
        """Check that the search spends no more than its own or the smallest budget, and refuses a smaller one."""
        budget, least = ForwardBudget(search.budget, base_B), int(base_B.max())
        most = [base + spare for base, spare in zip(budget.base, budget.spare, strict=True)]
        smallest = replace(self, method=replace(search, budget=least)).run()
        for spent, allowed in ((run.forwards_B.tolist(), most), (smallest.forwards_B.tolist(), [least] * len(most))):
            within = all(forwards <= limit for forwards, limit in zip(spent, allowed, strict=True))
            self.require(within, "stops inside its budget", f"{spent} of {allowed} forwards")
        refused = not replace(self, method=replace(search, budget=least - 1)).accepts_start()
        self.require(refused, "refuses a budget below a base decode", f"took {least - 1} forwards")


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


def _select_answer_tokens(traj: Trajectory, row: int) -> list[int]:
    return traj.state.tokens_BL[row, : int(traj.state.length_B[row])].tolist()


def _collect_outcomes(traj: Trajectory) -> list[list[object]]:
    """Return each row's decisions and costs, which must not depend on the other rows of the batch."""
    costs = zip(traj.forwards_B.tolist(), traj.processed_B.tolist(), strict=True)
    return [[*decisions, *cost] for decisions, cost in zip(_collect_decisions(traj), costs, strict=True)]


def _collect_decisions(traj: Trajectory) -> list[list[object]]:
    """Return all changes to each row's canvas, without padding and with floats as bytes."""
    rows = []
    for row in range(traj.state.batch):
        alone, tokens = traj.row(row), _select_answer_tokens(traj, row)
        rows.append([tokens, len(alone.steps)])
        for step in alone.steps:
            masks = (step.revealed_BL, step.remasked_BL)
            rows[-1] += [mask_BL[0, : len(tokens)].tolist() for mask_BL in masks]
            rows[-1].append(step.confidence_BL[0, : len(tokens)].cpu().numpy().tobytes())
    return rows
