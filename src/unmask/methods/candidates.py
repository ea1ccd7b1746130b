"""Candidate sets of the four axes, from which the paper's fixed action a_fix is chosen.

A candidate is the model's reference with one axis changed in the same way at every state. `candidates("llada")` belong
to the LLaDA-type reference (confidence, full answer, k_min, all committed), `candidates("dream")` to Dream's native
update. `register_reference` makes sets around other policies.
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
SHARE_SUFFIX = ":share"
"""Suffix of a region's name, as in "block:8:share": keep the reference's share instead of its count."""
OWN_NAME = "own"
"""Name of a registered reference among its own candidates."""
DEFAULT_ORDER = "confidence"
"""Scoring rule that orders positions where a registered reference's region or count is changed."""
HOLDS_CHOICES = ("count", "share")
"""A candidate of the region axis keeps the reference's count of positions, or its share of the masked ones."""


@dataclass(frozen=True)
class _Reference:
    """A reference policy, and the rules that make its candidates."""

    base: Policy | None
    """The policy; None for LLaDA's own decoder, whose candidates are fixed actions without a base."""
    own: Mapping[str, str]
    """Name of the reference itself on each axis; empty if its rules have names of their own."""
    order: str
    """Scoring rule that orders positions where region or count is changed. The action of a policy such as Dream only
    names a set of positions, so their order has to be given again."""

    def rules(self, axes: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of `Composed` that change these axes of the reference."""
        ordered = self.base is not None and any(AXES[axis].cuts for axis in axes)
        return {**({SCORE.name: self.order} if ordered else {}), **axes}

    def candidate(self, axis: Axis, name: str) -> Policy:
        policy = Composed(self.base, **self.rules({axis.name: name}), floor=self.base is None)  # type: ignore[arg-type]
        # ReMDM's operator masks again what a rule leaves revisable; the first rule leaves nothing.
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
    "llada": _Reference(None, {}, DEFAULT_ORDER),
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

    The name has a hash of its settings and of a user's own code, so that a study or gate file which names it runs no
    code and accepts no other policy. `whole` is for studies of whole methods, which do not change single axes: there a
    policy may look ahead, read its own input and end by its own rule.
    """
    check_reference(policy, whole=whole)
    assert isinstance(policy, Policy)
    # Settings and code, not the object: the same policy has the same name in another process.
    described = json.dumps(describe_policy(policy), sort_keys=True, default=str)
    name = f"{policy.name}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"
    _REFERENCES[name] = _Reference(policy, dict.fromkeys(AXES, OWN_NAME), "confidence")
    return name


def check_reference(policy: Policy | Search, *, whole: bool) -> None:
    """Refuse a policy that cannot go on after another policy's step, or whose action cannot be changed on one axis."""
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
    allowed = "a policy that decides from one plain forward, with past_steps 0 or 1"
    if whole:
        allowed = "a method with past_steps 0 or 1"
    raise ConfigError(f"the reference is {policy.name!r}; allowed: {allowed}; {why}")


def reference_of(sets: CandidateSets) -> Policy:
    """Return the reference, which is the first member of all four sets."""
    return next(iter(next(iter(sets.values())).values()))


def candidate(reference: str, axis: str, name: str, operator: ReMDM | None = None) -> Policy:
    """Return the reference with one axis changed to any rule of that axis.

    `operator` replaces the ReMDM operator of a candidate that remasks.
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
    """Return the reference with several axes changed at once to the named candidates, without remasking."""
    found, sets = _find_reference(reference), candidates(reference)
    own = {axis: next(iter(named)) for axis, named in sets.items()}
    region = names.get(REGION.name, "")
    if region.endswith(SHARE_SUFFIX):
        base = combine_candidates(reference, {axis: name for axis, name in names.items() if axis != REGION.name})
        mixture = names.get(SCORE.name, own[SCORE.name])
        ordered = None if found.base is None else found.order if mixture == own[SCORE.name] else mixture
        return Composed(base, score=ordered, region=region.removesuffix(SHARE_SUFFIX), holds="share")
    changed = {axis: name for axis, name in names.items() if name != own[axis]}
    if found.base is None:
        return fixed_action(**changed)
    return Composed(found.base, **found.rules(changed)) if changed else found.base  # type: ignore[arg-type]


def name_with_share(name: str) -> str:
    """Return a region's or region diagnostic's name with the suffix for keeping the reference's share."""
    return name.removesuffix(SHARE_SUFFIX) + SHARE_SUFFIX


def with_explicit_order(policy: Policy, ordered: bool = True) -> Policy:
    """Return the policy with an action that has a mixture of scores, a region and a count, as diagnostics read it.

    Dream's action only names the set of positions that it reveals, so their order is added. A diagnostic that reads
    only this set needs no order (`ordered=False`).
    """
    if not isinstance(policy, Dream) or not ordered:
        return policy
    rules = {"entropy": "certainty", "topk_margin": "margin", "maskgit_plus": "confidence"}
    readable = policy.alg in rules and policy.alg_temp == 0
    allowed, hint = f"{', '.join(rules)} and 0 under a diagnostic", "a random order is no mixture of scoring rules"
    require(readable, "alg, alg_temp of dream", (policy.alg, policy.alg_temp), allowed, hint)
    return Composed(policy, score=rules[policy.alg])
