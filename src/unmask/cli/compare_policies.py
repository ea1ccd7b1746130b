"""Which policies `unmask compare` decodes with: named ones, those of an axis, or those that may save forwards."""

from typing import TYPE_CHECKING

from unmask.base.errors import ConfigError, UnknownName
from unmask.base.files import storable
from unmask.cli.options import policy_of
from unmask.cli.progress import note

if TYPE_CHECKING:
    from unmask.api import Model
    from unmask.core import Policy, Search

REFERENCE, ALL_METHODS = "reference", "all"


def extras(given: list[str] | None, family: str) -> "dict[str, Policy | Search]":
    """Policies named on the command line, labelled as they were written."""
    policies: dict[str, Policy | Search] = {}
    for text in given or []:
        if text.strip() in (ALL_METHODS, REFERENCE):
            continue
        # An argument that is no UTF-8 names a file just the same, but no result could hold it.
        label = storable(text.strip())
        if label in policies:
            raise ConfigError(f"--policy {label} is given twice; allowed: once; drop one of them")
        policies[label] = policy_of(text, family=family)
    return policies


def _suitable(model: "Model") -> "tuple[dict[str, Policy | Search], dict[str, str]]":
    """The published methods that a model can run, and why not the others."""
    from unmask.lab.compare_methods import suitable_methods
    from unmask.methods import HEADS, shipped_heads
    from unmask.models import ExactDenoiser

    exact = isinstance(model.denoiser, ExactDenoiser)
    return suitable_methods(
        model.reference, [kind for kind in HEADS if exact or model.fingerprint in shipped_heads(kind)]
    )


def saving(model: "Model", prompts: int, quiet: bool) -> "dict[str, Policy | Search]":
    """What is compared where nobody said it; says what else there is."""
    from unmask.axes import AXES
    from unmask.lab.compare_methods import saving_methods

    suitable, _ = _suitable(model)
    chosen = saving_methods(suitable)
    if not quiet:
        note(
            f"no policy is named: the reference beside {len(chosen)} of {len(suitable)} methods, those that may need "
            f"fewer forwards and never look ahead ({', '.join(chosen)}), on {prompts} prompts of each task"
        )
        note(
            f"also: --policy NAME, of `unmask methods`; --policy all; --policy {REFERENCE} for that alone; --axis "
            f"{', '.join(AXES)} or all; --prompts N"
        )
    return chosen


def published(model: "Model", quiet: bool) -> "dict[str, Policy | Search]":
    """What --policy all stands for; says which methods it leaves out."""
    chosen, others = _suitable(model)
    if not quiet:
        reasons: dict[str, list[str]] = {}
        for name, reason in others.items():
            reasons.setdefault(reason, []).append(name)
        told = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
        note(f"--policy all: {len(chosen)} methods, without {told}")
    return chosen


def candidates(reference: str, axes: list[str], only: set[str] | None) -> "dict[str, Policy | Search]":
    """The reference first, then every other candidate of the axes, none twice; or those of all axes named in `only`."""
    from unmask.axes import AXES
    from unmask.lab.study_models import REFERENCES
    from unmask.methods import METHODS, make_policy, reference_of
    from unmask.methods import candidates as candidate_sets

    if reference not in REFERENCES and not axes and not only and reference in METHODS:
        return {REFERENCE: make_policy(reference)}
    sets = candidate_sets(reference)
    policies: dict[str, Policy | Search] = {REFERENCE: reference_of(sets)}
    for axis in axes if only is None else AXES:
        policies |= {f"{axis}={name}": p for name, p in sets[axis].items() if p not in policies.values()}
    if only is None:
        return policies
    for name in only:
        if name not in policies and name.partition("=")[0] not in AXES:
            raise ConfigError(f"--picks names {name!r}, no candidate of an axis; allowed: with --policy; give it again")
        if name not in policies:
            raise UnknownName("candidate of --picks", name, policies)
    return {name: policy for name, policy in policies.items() if name == REFERENCE or name in only}
