"""The named candidate sets of the four axes: what the paper's a_fix is chosen from.

A candidate is the model's reference with one axis changed, the same change at every state. `CANDIDATES` are those of
the LLaDA-type reference (confidence, full answer, k_min, all committed), as `fixed` policies. `candidates("dream")`
are those of Dream's native update.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor

from unmask.axes import AXES, REGION, SCORE, Axis, Cardinality, Commitment, Mixture, Region, ReMDM, cardinality, score
from unmask.base.errors import ConfigError, UnknownName, UnnamedPolicy, require
from unmask.core import Action, LookAhead, Needs, Policy, Search, State, Trajectory
from unmask.methods import describe_policy
from unmask.methods.dream import Dream
from unmask.methods.fixed import Fixed
from unmask.methods.revised import Revised, own_view

Sets = Mapping[str, Mapping[str, Policy]]
"""Policies by axis and name."""
HOLDS = ("count", "share")
SHARE = ":share"
"""What a candidate of the region axis ends in that holds the share: "block:8:share"."""


@dataclass(frozen=True)
class Instead(Policy):
    """Another policy with some axes of its action replaced; its count stays unless `kappa` changes it.

    With nothing but a region changed, only *where* changes: kappa = min(1, k / |region|). A region smaller than k_min
    grows by its own rule, and a count of `kappa` does not fall below k_min, whatever the base reveals.
    """

    name: ClassVar[str] = "instead"
    base: Policy
    alpha: Mixture | None = None
    region: str | None = None
    kappa: str | float | None = None
    commit: str | None = None
    holds: str = "count"
    """What of the base stays where a region is changed: its count, or its share (kappa) of what is masked."""

    def __post_init__(self) -> None:
        require(self.holds in HOLDS, "holds", self.holds, " or ".join(HOLDS), "a smaller region holds the count")
        _ = (self._region, self._kappa, self._commit, self.alpha is None or score.weights(self.alpha))

    @property
    def needs(self) -> Needs:
        return self.base.needs | score.needs(self.alpha or "confidence")

    @property
    def past_steps(self) -> int:
        return (
            self.base.past_steps if self.base.past_steps < 0 else max(self.base.past_steps, int(self.needs.divergence))
        )

    @property
    def random(self) -> bool:
        return self.base.random

    @property
    def looks_ahead(self) -> bool:
        return self.base.looks_ahead

    @property
    def steps(self) -> str:
        return self.base.steps if self.kappa is None else "end"

    def check(self, state: State) -> None:
        self.base.check(state)

    @property
    def cuda_graph(self) -> bool:
        return self.base.cuda_graph

    def bounded(self, length: int) -> Policy:
        return replace(self, base=self.base.bounded(length))

    def act(self, traj: Trajectory, look_ahead: LookAhead) -> Action:
        state, action = traj.state, self.base.act(traj, look_ahead)
        if self.alpha is None and self.region is None and self.kappa is None:
            region_BL, kappa_B = action.region_BL, action.kappa_B
        else:
            region_BL = self._where(state)
            kappa_B = self._how_many(traj, action, region_BL)
        alpha_BJ, rule = self._mixture(state, action)
        return Action(
            alpha_BJ,
            region_BL,
            kappa_B,
            action.commit_BL if self._commit is None else self._commit(state, traj.current_prediction),
            remask_BL=action.remask_BL,
            tokens_BL=action.tokens_BL,
            notes=action.notes,
            rule=rule,
        )

    def _where(self, state: State) -> Tensor:
        """The full answer for a base such as Dream, whose region is the very set that it reveals."""
        rule = self._region or Region.parse("full")
        return rule(state, cardinality.k_min(state))

    def _how_many(self, traj: Trajectory, action: Action, region_BL: Tensor) -> Tensor:
        state, n_B = traj.state, region_BL.sum(-1)
        if self._kappa is None:
            eligible_B = (action.region_BL & state.masked_BL).sum(-1)
            of_B = n_B if self.holds == "count" else state.masked_BL.sum(-1)
            return cardinality.fraction(cardinality.reveal_count(action.kappa_B, eligible_B), of_B)
        alpha_BJ, rule = self._mixture(state, action)
        order_BL = (
            score.order(alpha_BJ, traj.current_prediction, region_BL.shape[1], rule)
            if self._kappa.needs_order
            else None
        )
        return self._kappa.within_steps(state, traj.current_prediction, region_BL, order_BL)

    def _mixture(self, state: State, action: Action) -> tuple[Tensor, str | None]:
        """The weights of the scoring rules, and the only rule among them if there is one."""
        if self.alpha is None:
            return action.alpha_BJ, action.rule
        return score.rows(self.alpha, state), score.single_rule(self.alpha)

    @cached_property
    def _region(self) -> Region | None:
        return None if self.region is None else Region.parse(self.region)

    @cached_property
    def _kappa(self) -> Cardinality | None:
        return None if self.kappa is None else Cardinality.parse(self.kappa)

    @cached_property
    def _commit(self) -> Commitment | None:
        return None if self.commit is None else Commitment.parse(self.commit)


def candidates(reference: str = "llada") -> Sets:
    """The four sets around a reference, which is the first member of each."""
    if reference == "llada":
        return CANDIDATES
    if reference == "dream":
        return _DREAM
    if reference in _AROUND:
        return _sets(lambda axis, name: _varied(_AROUND[reference], axis, name), _own(_AROUND[reference]))
    if re.fullmatch(r".+-[0-9a-f]{12}", reference) is None:
        raise UnknownName("reference with candidate sets", reference, ("llada", "dream"))
    raise UnnamedPolicy(
        f"the reference {reference!r} is a policy that nobody has named here; allowed: llada, dream, or the policy "
        "that was used, with the same settings and code; name it: --policy path.py:Class, policy=... in Python"
    )


def around(policy: Policy | Search, *, whole: bool = False) -> str:
    """Let a policy be a reference, in this process: the name under which `candidates` knows it from now on.

    The name holds a hash of its settings and, where it is a user's own, of its code: a file that says it (a study, a
    gate) cannot run anything, and another policy does not pass for it. `whole` is for studies of whole methods alone,
    which cut nothing out of its action: there it may look ahead, read views of its own and end as it likes.
    """
    check_continues(policy, whole=whole)
    assert isinstance(policy, Policy)
    described = json.dumps(describe_policy(policy), sort_keys=True, default=str)
    name = f"{policy.name}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"
    _AROUND[name] = policy
    return name


def check_continues(policy: Policy | Search, *, whole: bool) -> None:
    """Refuse a reference that cannot go on after somebody else's step, or whose action cannot be cut where it must."""
    why = _why_not(policy, whole)
    if why:
        allowed = (
            "a method with memory 0 or 1"
            if whole
            else "a policy that decides from one plain forward, with memory 0 or 1"
        )
        raise ConfigError(f"the reference is {policy.name!r}; allowed: {allowed}; {why}")


def _why_not(policy: Policy | Search, whole: bool) -> str:
    """Why a method cannot be a reference, and what to do; empty where it can."""
    if not isinstance(policy, Policy):
        return "searches own their loop and cannot continue branches: take another"
    if policy.past_steps not in (0, 1):
        return "it reads more of the past than its last step, so it cannot continue branches: take another"
    if policy.needs.planner:
        return "it asks a second network, which a study has not, so it cannot continue branches: take another"
    if own_view(policy) and (policy.needs.divergence or policy.needs.posterior):
        return "it compares posteriors of a view of its own, so it cannot continue branches: candidates leave none"
    if not whole and (policy.looks_ahead or own_view(policy) or policy.own_end):
        return (
            "methods with look-ahead, views or an end of their own cannot continue branches around the four axes: "
            "take another, or study whole methods alone (axes = ['policy'])"
        )
    return ""


def reference_of(sets: Sets) -> Policy:
    """The policy that all four sets share."""
    return next(iter(next(iter(sets.values())).values()))


def candidate(reference: str, axis: str, name: str, operator: ReMDM | None = None) -> Policy:
    """A candidate by its name, in the default set or not; `operator` re-opens what it leaves revisable."""
    sets = candidates(reference)
    if axis not in sets:
        raise UnknownName("axis", axis, AXES)
    policy = sets[axis].get(name) or combined(reference, {axis: name})
    if AXES[axis].revises and not isinstance(policy, Revised) and policy != reference_of(sets):
        policy = Revised(policy)
    return replace(policy, operator=operator) if operator and isinstance(policy, Revised) else policy


def combined(reference: str, names: Mapping[str, str]) -> Policy:
    """The reference with the named candidate of each axis, all at once; nobody re-opens what it leaves revisable."""
    own = {axis: next(iter(named)) for axis, named in candidates(reference).items()}
    region = names.get(REGION.name, "")
    if region.endswith(SHARE):
        base = combined(reference, {axis: name for axis, name in names.items() if axis != REGION.name})
        mixture = names.get(SCORE.name, own[SCORE.name])
        alpha = None if reference == "llada" else _order_of(reference) if mixture == own[SCORE.name] else mixture
        return Instead(base, alpha, region.removesuffix(SHARE), holds="share")
    native = reference_of(candidates(reference))
    changed = [AXES[axis] for axis, name in names.items() if name != own[axis]]
    rules = {axis.setting: names[axis.name] for axis in changed}
    if reference == "llada":
        return Fixed(**rules)
    if not changed:
        return native
    return Instead(native, **{**_order(changed, _order_of(reference)), **rules})


def sharing(name: str) -> str:
    """The name of the same region, or region diagnostic, that holds the share."""
    return name.removesuffix(SHARE) + SHARE


def _order_of(reference: str) -> str:
    """What orders positions where a reference's action is the very set that it reveals."""
    return _NATIVE_ORDER if reference == "dream" else ORDER


def written_out(policy: Policy, ordered: bool = True) -> Policy:
    """The same policy with an action that a diagnostic can read: a mixture, a region and a count.

    Dream's action is the very set that it reveals, so its order has to be given again; not where the diagnostic asks
    for nothing but that set (`ordered=False`).
    """
    if not isinstance(policy, Dream) or not ordered:
        return policy
    rules = {"entropy": "certainty", "topk_margin": "margin", "maskgit_plus": "confidence"}
    readable = policy.alg in rules and policy.alg_temp == 0
    require(
        readable,
        "alg, alg_temp of dream",
        (policy.alg, policy.alg_temp),
        f"{', '.join(rules)} and 0 under a diagnostic",
        "a random order is no mixture of scoring rules",
    )
    return Instead(policy, alpha=rules[policy.alg])


_NATIVE = Dream()
_AROUND: dict[str, Policy] = {}
"""Other references, by the names that `around` gave them."""
OWN = "own"
"""What such a reference is called among its candidates."""
ORDER = "confidence"
"""What orders positions where such a reference's action is cut to another region or count."""
_NATIVE_ORDER = "certainty"
"""The same of Dream: its native order at temperature 0 and without filters."""


def _own(policy: Policy) -> dict[str, dict[str, Policy]]:
    return {axis: {OWN: policy} for axis in AXES}


def _varied(base: Policy, axis: Axis, name: str, order: str = ORDER) -> Policy:
    """A candidate around any policy: its action with one axis replaced."""
    policy = Instead(base, **{**_order([axis], order), axis.setting: name})
    return Revised(policy) if axis.revises and name != axis.candidates[0] else policy


def _fixed(axis: Axis, name: str) -> Policy:
    """A candidate of the LLaDA-type reference."""
    policy = Fixed(**{axis.setting: name})
    # What a rule leaves revisable is re-opened by ReMDM's operator; under the first rule it would find nothing.
    return Revised(policy) if axis.revises and name != axis.candidates[0] else policy


def _instead(axis: Axis, name: str) -> Policy:
    """A candidate of Dream's native update."""
    if axis is not SCORE and name == axis.candidates[0]:
        return _NATIVE
    return _varied(_NATIVE, axis, name, _NATIVE_ORDER)


def _order(changed: Iterable[Axis], rule: str) -> dict[str, str]:
    """An action such as Dream's is the very set that it reveals. Cut to a region, or with another count, its order has
    to be given again."""
    return {SCORE.setting: rule} if any(axis.cuts for axis in changed) else {}


def _sets(make: Callable[[Axis, str], Policy], own: Mapping[str, Mapping[str, Policy]] = MappingProxyType({})) -> Sets:
    """All axes' candidates; `own` are the reference's where no rule of the axis is."""
    return MappingProxyType(
        {
            axis.name: MappingProxyType(
                {**own.get(axis.name, {}), **{name: make(axis, name) for name in axis.candidates}}
            )
            for axis in AXES.values()
        }
    )


CANDIDATES: Sets = _sets(_fixed)
"""Candidates by axis and name; the first of each set is the reference."""

_DREAM: Sets = _sets(_instead, {SCORE.name: {"entropy": _NATIVE}})
