"""Policies that say their steps can be recorded, at settings that run all of their code."""

from tests.helpers.adaptive_arms import always, joint, random_gate, selective
from unmask.adapt import DetectorRule, Staged
from unmask.adapt.diagnostics import DIAGNOSTICS, PAPER_DIAGNOSTICS
from unmask.core import Policy
from unmask.methods import METHODS, Composed, LLaDA, candidates, fixed_action, make_policy, with_remasking

OPEN = DetectorRule((0.0, 0.05), (0.2, None, 0.1), 0.1)
"""Deviates at some signals and not at others."""

SETTINGS = {
    "llada": [{}, {"remasking": "random"}, {"block_length": 2}],
    "fast-dllm": [{"threshold": 0.4}, {"rule": "factor"}, {"rule": "factor", "authors_tail": True}],
    "klass": [
        {"epsilon": 0.5, "threshold": 0.3},
        {"variant": "dream", "strategy": "random"},
        {"leave_unfinished": True},
    ],
    "dos": [{}, {"base": "eb", "drop_self": True, "sinks": 0.4}],
    "dus": [{"block_length": 4}, {"block_length": 4, "skip": 0.4}],
    "dcd": [{"s_init": 2, "s_max": 3, "threshold": 0.5}, {"score": "entropy", "threshold": -0.5}],
    "remdm": [{"operator.variant": v} for v in ("cap", "rescale", "conf", "loop")],
    "remdm-llada": [{}, {"k": 2}],
    "p2": [{}, {"exact": True, "form": "probability"}],
    "dream": [{}, {"alg": "origin"}, {"alg": "topk_margin", "alg_temp": 0.5}],
    "fixed": [{"alpha": name} for name in ("margin", "certainty", "stability", "dependency", "uniform")],
}


def four() -> Policy:
    """Selective adaptation with all four diagnostics."""
    return joint(fixed_action(), PAPER_DIAGNOSTICS, [OPEN] * len(PAPER_DIAGNOSTICS))


def recordable() -> dict[str, Policy]:
    """Every policy that says so, at several settings."""
    found: dict[str, Policy] = {}
    for name in METHODS:
        for options in SETTINGS.get(name, [{}]):
            found[f"{name} {options}"] = make_policy(name, **options)
    regions = ("block:2", "last-block:2", "window:2", "dilated:2", "near:1", "groups:2", "sliding:2:3", "masks:2:3")
    found |= {f"region {rule}": fixed_action(region=rule) for rule in regions}
    counts = ("quota", "count:2", "share:0.5", "above:0.5", "factor:1", "eb:0.1", "all", 0.3)
    found |= {f"cardinality {rule}": Composed(cardinality=rule) for rule in counts}
    found |= {f"score {rule}": Composed(score=rule) for rule in ("entropy", "random", "confidence+stability")}
    found |= {f"commit {rule}": Composed(commitment=rule) for rule in ("margin:0.5", "confidence:0.9+remdm-conf")}
    found |= {f"dream's {axis}": next(reversed(named.values())) for axis, named in candidates("dream").items()}
    found |= {f"selective {n}": selective(fixed_action(), one, OPEN) for n, one in DIAGNOSTICS.items()}
    found |= {
        "four": four(),
        "revised four": with_remasking(four()),
        "staged": Staged((LLaDA(), fixed_action(region="block:2"))),
    }
    found |= {
        "always": always(LLaDA(), DIAGNOSTICS["region"]),
        "random": random_gate(fixed_action(), DIAGNOSTICS["score"], 0.5),
    }
    found |= {"instead": Composed(LLaDA(), region="block:2", cardinality="count:2")}
    return {name: policy for name, policy in found.items() if isinstance(policy, Policy) and policy.cuda_graph}


POLICIES = recordable()
