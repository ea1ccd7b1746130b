"""Every adaptive policy keeps the contract of a policy: rows on their own, resumable, only what it declares."""

import pytest

from tests.helpers.adaptive_arms import always, joint, random_gate, selective
from unmask.adapt import DetectorRule, Staged
from unmask.adapt.diagnostics import DIAGNOSTICS, CommitmentDiagnostic, RegionDiagnostic
from unmask.axes import AXES, ReMDM
from unmask.methods import Composed, Dream, FastDLLM, candidates, fixed_action, with_remasking
from unmask.methods.check import check_policy

BASES = {"llada": fixed_action(), "dream": Dream()}
HALF = DetectorRule((0.05,), (0.1, 0.0), 0.1)
"""Neither always nor never open."""
ALL_AXES = tuple(DIAGNOSTICS[axis] for axis in AXES)


def revised(base):
    arm = selective(Composed(base, commitment="none"), CommitmentDiagnostic(), HALF)
    return with_remasking(arm, ReMDM("rescale", 0.5))


QUICK = {
    "selective-score-llada": selective(BASES["llada"], DIAGNOSTICS["score"], HALF),
    "always-region-dream": always(BASES["dream"], DIAGNOSTICS["region"]),
    "random-cardinality-llada": random_gate(BASES["llada"], DIAGNOSTICS["cardinality"], 0.5),
    "snapped-region": selective(
        BASES["llada"], DIAGNOSTICS["region"], HALF, tuple(candidates("llada")["region"].values())
    ),
    "revised-llada": revised(BASES["llada"]),
    "joint-llada": joint(BASES["llada"], ALL_AXES, (HALF,) * 4),
    "stage": Staged((FastDLLM(), Dream(), fixed_action(region="block:2"))),
    "always-fast-dllm": always(FastDLLM(), RegionDiagnostic()),
}
OTHERS = {
    **{f"always-{axis}-{kind}": always(base, DIAGNOSTICS[axis]) for axis in AXES for kind, base in BASES.items()},
    **{
        f"snapped-{axis}-{kind}": selective(base, DIAGNOSTICS[axis], HALF, tuple(candidates(kind)[axis].values()))
        for axis in ("score", "region", "cardinality")
        for kind, base in BASES.items()
    },
    "revised-dream": revised(BASES["dream"]),
    "joint-dream": with_remasking(joint(BASES["dream"], ALL_AXES, (HALF,) * 4), ReMDM("cap", 0.5)),
}


@pytest.mark.parametrize("name", QUICK)
def test_an_adaptive_policy_keeps_the_contract(name, kit):
    check_policy(QUICK[name], kit.small())


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_every_adaptive_policy_keeps_the_contract(name, kit):
    check_policy(OTHERS[name], kit.small())
