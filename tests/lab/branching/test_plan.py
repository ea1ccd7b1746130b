"""Plans and settings: what is refused, what is tried and in which order, whose random numbers are whose."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.helpers.cases import each_case
from unmask.adapt.diagnostics import CardinalityDiagnostic, RegionDiagnostic, ScoreDiagnostic
from unmask.axes import AXES, ReMDM
from unmask.base.errors import ConfigError
from unmask.lab.branching import PROPOSAL, BatchSettings, BranchPlan, random_stream
from unmask.methods import candidates, fixed_action, with_remasking

REFERENCE = fixed_action()


def plan(**options):
    settings = {"reference": REFERENCE, "candidates": candidates(), "operator": ReMDM("conf")}
    return BranchPlan(**(settings | {"rollouts": 3, "states": 4, "seed": 0} | options))


@dataclass(frozen=True)
class NarrowRegion(RegionDiagnostic):
    name: ClassVar[str] = "narrow region"
    budget: float = 0.25


def by_name(*diagnostics):
    return {diagnostic.name: diagnostic for diagnostic in diagnostics}


@each_case(
    ("make", "bad"),
    [
        (plan, {"rollouts": 0}),
        (plan, {"candidates": {}}),
        (plan, {"candidates": {"score": {"margin": fixed_action(score="margin")}}}),
        (plan, {"diagnostics": {"region": NarrowRegion()}}),
        (plan, {"diagnostics": {"region": ScoreDiagnostic()}}),
        (plan, {"candidates": {"score": candidates()["score"]}, "diagnostics": {"region": RegionDiagnostic()}}),
        (BatchSettings, {"rows": 0}),
        (BatchSettings, {"rows": 4, "bucket": 20}),
        (BatchSettings, {"rows": 4, "waiting": 0}),
        (BatchSettings, {"rows": 4, "live": 0}),
    ],
)
def test_impossible_plans_and_settings_are_refused(make, bad):
    with pytest.raises(ConfigError):
        make(**bad)


def test_alternatives_are_the_candidates_and_then_the_proposals_of_each_axis():
    chosen = plan(diagnostics=by_name(NarrowRegion(), CardinalityDiagnostic(), RegionDiagnostic()))
    assert list(chosen.proposals) == ["narrow region", "region", "cardinality"]
    for axis, named in candidates().items():
        there = [one for one in chosen.alternatives if one.axis == axis]
        proposing = [name for name, proposed in chosen.proposals.items() if proposed.diagnostic.axis == axis]
        assert [one.candidate for one in there] == [*named, *(PROPOSAL for _ in proposing)]
        assert [one.diagnostic for one in there] == [*("" for _ in named), *proposing]
        assert all(one.policy == named[one.candidate] for one in there if not one.diagnostic)
        assert all(one.policy == chosen.proposals[one.diagnostic] for one in there if one.diagnostic)
    assert list(dict.fromkeys(one.axis for one in chosen.alternatives)) == list(candidates())


def test_the_operator_continues_on_revising_axes_alone():
    for axis in candidates():
        after = plan().continuation(axis)
        if AXES[axis].revises:
            assert after.policy == with_remasking(REFERENCE, ReMDM("conf"))
            assert after.settled == REFERENCE
        else:
            assert (after.policy, after.settled) == (REFERENCE, None)
    history = fixed_action(score="stability")
    sets = {axis: {"ref": history} for axis in candidates()}
    assert all(plan(reference=history, candidates=sets).continuation(axis).settled is None for axis in sets)


def test_streams_differ_and_are_never_the_reference_s():
    streams = {random_stream(step, rollout) for step in range(20) for rollout in range(20)}
    assert len(streams) == 400
    assert 0 not in streams
