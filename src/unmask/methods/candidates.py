"""The named candidate sets of the four axes: what the paper's fixed action a_fix is chosen from.

A candidate is the model's reference with one axis changed, the same change at every state. `candidates("llada")` are
those of the LLaDA-type reference (confidence, full answer, k_min, all committed), as fixed actions;
`candidates("dream")` are those of Dream's native update. Other policies get their sets by `register_reference`.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from unmask.axes import AXES, REGION, SCORE, Axis, ReMDM
from unmask.base.errors import ConfigError, UnknownName, UnnamedPolicy, require
from unmask.core import Policy, Search
from unmask.methods.composed import Composed, fixed_action, has_own_input, with_remasking
from unmask.methods.dream import Dream
from unmask.methods.registry import describe_policy

CandidateSets = Mapping[str, Mapping[str, Policy]]
"""Policies by axis and name; the first of each axis is the reference."""
SHARE = ":share"
"""What a candidate of the region axis ends in that holds the share: "block:8:share"."""
OWN = "own"
"""What a registered reference is called among its candidates."""
ORDER = "confidence"
"""What orders positions where a registered reference's action is cut to another region or count."""
HOLDS = ("count", "share")
"""What of the reference a candidate of the region axis may hold: its count, or its share of what is masked."""


@dataclass(frozen=True)
class _Reference:
    base: Policy | None
    """None for LLaDA's own decoder, whose candidates are fixed actions without a base."""
    own: Mapping[str, str]
    """By axis the name of the reference itself, where it is no rule of the axis."""
    order: str
    """What orders positions where an action is cut to another region or count: an action such as Dream's is the very
    set that it reveals, so its order has to be given again."""

    def rules(self, axes: Mapping[str, str]) -> dict[str, str]:
        """Settings of `Composed` that change these axes of the reference."""
        ordered = self.base is not None and any(AXES[axis].cuts for axis in axes)
        return {**({SCORE.name: self.order} if ordered else {}), **axes}

    def candidate(self, axis: Axis, name: str) -> Policy:
        policy = Composed(self.base, **self.rules({axis.name: name}), floor=self.base is None)  # type: ignore[arg-type]
        # What a rule leaves revisable ReMDM's operator re-opens. Under the first rule it would find nothing.
        return with_remasking(policy) if axis.revises and name != axis.candidates[0] else policy

    def sets(self) -> CandidateSets:
        sets = {}
        for axis in AXES.values():
            own = {self.own[axis.name]: self.base} if self.base is not None else {}
            found = own | {name: self.candidate(axis, name) for name in axis.candidates if name not in own}
            sets[axis.name] = MappingProxyType(found)
        return MappingProxyType(sets)


_DREAM = {axis.name: "entropy" if axis is SCORE else axis.candidates[0] for axis in AXES.values()}
_REFERENCES = {
    "llada": _Reference(None, {}, ORDER),
    # Certainty is Dream's native order, at temperature 0 and without filters.
    "dream": _Reference(Dream(), _DREAM, "certainty"),
}
"""References by name; `register_reference` adds to them."""


@cache
def candidates(reference: str = "llada") -> CandidateSets:
    """Return the four candidate sets around a reference. The reference is the first member of each set."""
    return _find_reference(reference).sets()


def _find_reference(reference: str) -> _Reference:
    if reference in _REFERENCES:
        return _REFERENCES[reference]
    if re.fullmatch(r".+-[0-9a-f]{12}", reference) is None:
        raise UnknownName("reference with candidate sets", reference, ("llada", "dream"))
    raise UnnamedPolicy(
        f"the reference {reference!r} is a policy that nobody has named here; allowed: llada, dream, or the policy "
        "that was used, with the same settings and code; name it: --policy path.py:Class, policy=... in Python"
    )


def register_reference(policy: Policy | Search, *, whole: bool = False) -> str:
    """Make a policy usable as a reference in this process; return the name by which `candidates` finds it.

    The name holds a hash of its settings and, where it is a user's own, of its code: a file that says it (a study, a
    gate) cannot run anything, and another policy does not pass for it. `whole` is for studies of whole methods alone,
    which cut nothing out of its action: there it may look ahead, read inputs of its own and end as it likes.
    """
    check_reference(policy, whole=whole)
    assert isinstance(policy, Policy)
    # Settings and code, not the object: the same policy has the same name in another process.
    described = json.dumps(describe_policy(policy), sort_keys=True, default=str)
    name = f"{policy.name}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"
    _REFERENCES[name] = _Reference(policy, dict.fromkeys(AXES, OWN), "confidence")
    return name


def check_reference(policy: Policy | Search, *, whole: bool) -> None:
    """Refuse a policy that cannot continue after another policy's step, or whose action cannot be changed per axis."""
    if not isinstance(policy, Policy):
        why = "searches own their loop and cannot continue branches: take another"
    elif policy.past_steps not in (0, 1):
        why = "it reads more of the past than its last step, so it cannot continue branches: take another"
    elif policy.needs.planner:
        why = "it asks a second network, which a study has not, so it cannot continue branches: take another"
    elif has_own_input(policy) and (policy.needs.divergence or policy.needs.posterior):
        why = "it compares posteriors of a view of its own, so it cannot continue branches: candidates leave none"
    elif not whole and (policy.looks_ahead or has_own_input(policy) or policy.own_end):
        why = (
            "methods with look-ahead, views or an end of their own cannot continue branches around the four axes: "
            "take another, or study whole methods alone (axes = ['policy'])"
        )
    else:
        return
    allowed = "a policy that decides from one plain forward, with memory 0 or 1"
    if whole:
        allowed = "a method with memory 0 or 1"
    raise ConfigError(f"the reference is {policy.name!r}; allowed: {allowed}; {why}")


def reference_of(sets: CandidateSets) -> Policy:
    """Return the policy that all four sets share."""
    return next(iter(next(iter(sets.values())).values()))


def candidate(reference: str, axis: str, name: str, operator: ReMDM | None = None) -> Policy:
    """Return the reference policy with one axis changed to any rule of that axis.

    Where the result remasks, `operator` replaces the ReMDM operator that chooses which revisable tokens it remasks.
    """
    sets = candidates(reference)
    if axis not in sets:
        raise UnknownName("axis", axis, AXES)
    policy = sets[axis].get(name) or combine_candidates(reference, {axis: name})
    remasks = isinstance(policy, Composed) and policy.operator is not None
    if AXES[axis].revises and not remasks and policy != reference_of(sets):
        policy, remasks = with_remasking(policy), True
    return replace(policy, operator=operator) if operator and remasks else policy  # type: ignore[type-var]


def combine_candidates(reference: str, names: Mapping[str, str]) -> Policy:
    """Return the reference with the named candidate of each axis, all at once, without remasking."""
    found, sets = _find_reference(reference), candidates(reference)
    own = {axis: next(iter(named)) for axis, named in sets.items()}
    region = names.get(REGION.name, "")
    if region.endswith(SHARE):
        base = combine_candidates(reference, {axis: name for axis, name in names.items() if axis != REGION.name})
        mixture = names.get(SCORE.name, own[SCORE.name])
        ordered = None if found.base is None else found.order if mixture == own[SCORE.name] else mixture
        return Composed(base, score=ordered, region=region.removesuffix(SHARE), holds="share")
    changed = {axis: name for axis, name in names.items() if name != own[axis]}
    if found.base is None:
        return fixed_action(**changed)
    return Composed(found.base, **found.rules(changed)) if changed else found.base  # type: ignore[arg-type]


def holding_share(name: str) -> str:
    """Return the name of a region, or of a region diagnostic, that keeps the reference's share instead of its count."""
    return name.removesuffix(SHARE) + SHARE


def with_explicit_order(policy: Policy, ordered: bool = True) -> Policy:
    """Return the policy with an action that a diagnostic can read: a mixture of scores, a region and a count.

    Dream's action is the very set that it reveals, so its order has to be given again; not where the diagnostic asks
    for nothing but that set (`ordered=False`).
    """
    if not isinstance(policy, Dream) or not ordered:
        return policy
    rules = {"entropy": "certainty", "topk_margin": "margin", "maskgit_plus": "confidence"}
    readable = policy.alg in rules and policy.alg_temp == 0
    allowed, hint = f"{', '.join(rules)} and 0 under a diagnostic", "a random order is no mixture of scoring rules"
    require(readable, "alg, alg_temp of dream", (policy.alg, policy.alg_temp), allowed, hint)
    return Composed(policy, score=rules[policy.alg])
