"""`--policy all`: the published methods that suit a model, and why the others do not."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from unmask.core import Policy, Search
from unmask.methods import METHODS, OURS, make_policy, method_status

OF_ONE_KIND: Mapping[str, str] = MappingProxyType(
    {"llada": "llada", "fast-dllm": "llada", "remdm-llada": "llada", "dream": "dream", "fast-dllm-dream": "dream"}
)
"""Loops that their authors wrote for one kind of model, by the reference of that kind."""
_SETTINGS: Mapping[tuple[str, str], Mapping[str, str]] = MappingProxyType({("dream", "klass"): {"variant": "dream"}})
"""Where one class holds the loops of both kinds and its defaults are those of the other."""


def suitable_methods(reference: str, heads: Collection[str] = ()) -> tuple[dict[str, Policy | Search], dict[str, str]]:
    """Every published method at its defaults for models of this reference, and the others with the reason.

    `heads` are the learned methods that have a head for the model, or need none with it.
    """
    chosen: dict[str, Policy | Search] = {}
    others: dict[str, str] = {}
    for name, method in METHODS.items():
        kind = OF_ONE_KIND.get(name)
        if method.label == OURS:
            others[name] = "this library's own, no published method"
        elif name == reference:
            others[name] = "it is the reference"
        elif kind is not None and kind != reference and reference in OF_ONE_KIND.values():
            others[name] = f"its authors' loop for models like {kind}"
        elif method.learned and name not in heads:
            others[name] = "needs a learned part beside the model"
        else:
            settings = _SETTINGS.get((reference, name), {})
            label = ":".join([name, *([",".join(f"{k}={v}" for k, v in settings.items())] if settings else [])])
            chosen[label] = make_policy(name, **settings)
    return chosen, others


def saving_methods(methods: Mapping[str, Policy | Search]) -> dict[str, Policy | Search]:
    """Of some methods those that can need fewer forwards than the reference and never look ahead.

    Steps do not bind them: they reveal as much at once as they trust. What is made for other settings than a run's
    defaults is left out. It is what somebody who names nothing sees first: it costs less than the reference itself.
    """
    return {
        name: method
        for name, method in methods.items()
        if isinstance(method, Policy)
        and not (method.looks_ahead or method.steps == "end" or method.random)
        and not method_status(method).get("made_for")
    }
