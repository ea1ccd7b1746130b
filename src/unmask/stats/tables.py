"""What a diagnostic met: states with their utilities, its signal and its proposals, for one model, task and axis.

There are two types. Whatever is fitted accepts a `ValidationTable` only; whatever is shown comes from a
`HeldOutTable`. They have the same columns and neither is the other, so a type checker and `only_validation` both see
held-out rows on their way into a fit. NumPy in, numbers out.
"""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.stats.crossfit import Array, Bools, CrossFit, Folds, Ints, cross_fit, snap, utilities
from unmask.stats.estimates import stages

PROPOSALS = ("raw", "snapped")
"""The diagnostic's own action, and the candidate nearest to it."""

_COLUMNS = ("prompt_S", "masked_S", "q_SAR", "signal_S", "abstained_S")


class LeakageError(ValueError):
    """Held-out rows were about to be fitted to, or validation rows to be shown as held out."""


@dataclass(frozen=True)
class ProposedAction:
    """What the diagnostic's action led to at each state; nothing where it abstained."""

    q_SR: Array
    """Its utility in each rollout, in [0, 1]; NaN where it abstained, and where none is known."""
    same_SA: Bools
    """Whether its next state is that of candidate a."""


@dataclass(frozen=True)
class _StateTable:
    """The columns of both types, checked. Use `ValidationTable` or `HeldOutTable`."""

    prompt_S: NDArray
    """Which prompt a state belongs to; prompts are what was drawn at random."""
    masked_S: Array
    """Masked fraction of the answer, in [0, 1]."""
    q_SAR: Array
    """Utility of candidate a in rollout r, in [0, 1]; NaN where it is missing."""
    signal_S: Array
    """d(z) of the diagnostic; NaN where it has none."""
    abstained_S: Bools
    """The diagnostic proposed nothing; the fixed action is taken there."""
    raw: ProposedAction
    snapped: ProposedAction
    candidates: tuple[str, ...]
    reference: int
    """Which candidate is the reference."""

    def __post_init__(self) -> None:
        q = utilities(self.q_SAR)
        states, actions, rollouts = q.shape
        self._set("q_SAR", q)
        self._set("prompt_S", _column("prompt_S", np.asarray(self.prompt_S), (states,)))
        self._set("masked_S", _column("masked_S", np.asarray(self.masked_S, dtype=np.float64), (states,)))
        stages(self.masked_S)
        self._set("signal_S", _column("signal_S", np.asarray(self.signal_S, dtype=np.float64), (states,)))
        self._set("abstained_S", _truths("abstained_S", self.abstained_S, (states,)))
        if len(self.candidates) != actions or len(set(self.candidates)) != actions:
            raise ValueError(f"candidates are {self.candidates}; q_SAR has {actions} actions: give each its own name")
        if not 0 <= self.reference < actions:
            raise ValueError(f"reference is {self.reference}; the table has actions 0..{actions - 1}")
        for name in PROPOSALS:
            given: ProposedAction = getattr(self, name)
            q_SR = _column(f"{name}.q_SR", np.asarray(given.q_SR, dtype=np.float64), (states, rollouts))
            utilities(q_SR[:, None])
            if np.isfinite(q_SR[self.abstained_S]).any():
                raise ValueError(
                    f"{name}.q_SR has a utility at a state where abstained_S is true; "
                    "without a proposal there is none: write NaN, or say that it did not abstain"
                )
            same_SA = _truths(f"{name}.same_SA", given.same_SA, (states, actions))
            object.__setattr__(self, name, ProposedAction(_frozen(q_SR), _frozen(same_SA)))

    def _set(self, name: str, value: NDArray) -> None:
        object.__setattr__(self, name, _frozen(value))

    def __len__(self) -> int:
        return len(self.q_SAR)

    def of(self: "T", prompts: ArrayLike) -> "T":
        """The states of some prompts."""
        these_S = np.isin(self.prompt_S, np.asarray(prompts))
        columns: dict[str, Any] = {name: getattr(self, name)[these_S] for name in _COLUMNS}
        for name in PROPOSALS:
            given: ProposedAction = getattr(self, name)
            columns[name] = ProposedAction(given.q_SR[these_S], given.same_SA[these_S])
        return replace(self, **columns)


class ValidationTable(_StateTable):
    """States of validation prompts: all choices are made here."""


class HeldOutTable(_StateTable):
    """States of held-out prompts: nothing is chosen here."""


T = TypeVar("T", bound=_StateTable)


@dataclass(frozen=True)
class Graded(Generic[T]):
    """A table beside its fixed action: what the best candidate gains, and what the proposal gains."""

    table: T
    fit: CrossFit
    gain_FS: Array
    """Q(proposal) - Q(fixed) in each fold; 0 where the diagnostic abstains, NaN where a utility is missing."""
    used_S: Bools
    """The fixed action and the proposal have utilities in both folds; other states are left out and counted."""

    @property
    def gain_S(self) -> Array:
        """The mean of both folds."""
        return snap(self.gain_FS.mean(0))

    @property
    def fixed(self) -> int:
        """The fixed action, where all states have the same."""
        if len(np.unique(self.fit.fixed_S)) > 1:
            raise ValueError("fixed actions differ from state to state; they must be one: grade beside one action")
        return int(self.fit.fixed_S[0])

    @property
    def fixed_utility_S(self) -> Array:
        """Q of the fixed action, the mean of its two fold means."""
        return np.asarray(self.fit.q_FSA[:, :, self.fixed].mean(0))

    def action_gain(self, action_S: Ints) -> Array:
        """Q(action) - Q(fixed) of one candidate for each state; NaN where it has no utility."""
        q_SA = self.fit.q_FSA.mean(0)
        return snap(q_SA[np.arange(len(q_SA)), action_S] - q_SA[:, self.fixed])


def grade(
    table: T, fixed: ArrayLike, proposal: str = "raw", *, folds: Folds | None = None, deterministic: bool = False
) -> Graded[T]:
    """Cross-fitted opportunity and the proposal's gain over `fixed`, one action or one per state.

    It was chosen on validation states.

    Q of any action is the mean of its two fold means, so that gains of proposals, candidates and the oracle add up.
    """
    if proposal not in PROPOSALS:
        raise ValueError(f"proposal is {proposal!r}; it must be one of {', '.join(PROPOSALS)}")
    fit = cross_fit(table.q_SAR, fixed, reference=table.reference, folds=folds, deterministic=deterministic)
    q_S1R = getattr(table, proposal).q_SR[:, None]
    proposed_FS = cross_fit(q_S1R, 0, folds=folds, deterministic=deterministic).q_FSA[:, :, 0]
    fixed_FS = np.take_along_axis(fit.q_FSA, fit.fixed_S[None, :, None], axis=2)[:, :, 0]
    gain_FS = snap(np.where(table.abstained_S, 0.0, proposed_FS - fixed_FS))
    return Graded(table, fit, gain_FS, fit.used_S & np.isfinite(gain_FS[0]))


def only_validation(table: object) -> None:
    """Refuse to fit to anything but a validation table."""
    if not isinstance(table, ValidationTable):
        raise LeakageError(
            f"the table to fit is a {type(table).__name__}; only a ValidationTable may be fitted to: "
            "held-out states would choose the numbers that they are then measured by"
        )


def check_apart(validation: object, held_out: object) -> None:
    """Refuse two tables that are not validation and held-out states of one setting, without a common prompt."""
    only_validation(validation)
    if not isinstance(held_out, HeldOutTable):
        raise LeakageError(
            f"the table to measure on is a {type(held_out).__name__}; it must be a HeldOutTable: "
            "numbers from states that choices were made on flatter"
        )
    assert isinstance(validation, ValidationTable)
    both = set(validation.prompt_S.tolist()) & set(held_out.prompt_S.tolist())
    if both:
        raise LeakageError(
            f"prompt {sorted(map(str, both))[0]!r} and {len(both) - 1} others are in both tables; "
            "a prompt may be in one of them: split by prompt"
        )
    if (validation.candidates, validation.reference) != (held_out.candidates, held_out.reference):
        raise ValueError(
            f"candidates are {validation.candidates} on validation and {held_out.candidates} on held-out states, "
            f"references {validation.reference} and {held_out.reference}; they must be the same, in one order"
        )


def _column(name: str, value: NDArray, shape: tuple[int, ...]) -> NDArray:
    if value.shape != shape:
        raise ValueError(f"{name} has shape {value.shape}; with this q_SAR it must be {shape}")
    return value


def _truths(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Bools:
    truths = _column(name, np.asarray(value), shape)
    if truths.dtype != np.bool_:
        raise ValueError(f"{name} has type {truths.dtype}; it must be true or false for each entry")
    return truths


def _frozen(value: NDArray) -> NDArray:
    out = value.copy()
    out.setflags(write=False)
    return out
