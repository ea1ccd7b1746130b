"""Several axes at once: each behind its gate, each reading what those before it decided."""

import pytest
import torch

from tests.helpers.adaptive_arms import joint, selective
from unmask.adapt import Adaptive, DetectorRule, joint_arm
from unmask.adapt.diagnostics import (
    DIAGNOSTICS,
    CardinalityDiagnostic,
    CommitmentDiagnostic,
    RegionDiagnostic,
    ScoreDiagnostic,
)
from unmask.axes import AXES
from unmask.base.errors import ConfigError
from unmask.core import NO_LOOK_AHEAD
from unmask.methods import Dream, fixed_action

NEVER, WHEREVER = DetectorRule((), (0.0,), None), DetectorRule((), (0.0,), float("-inf"))
ALL = tuple(DIAGNOSTICS[axis] for axis in AXES)
BASES = {"llada": fixed_action(), "dream": Dream()}


def gates(*open_axes):
    return tuple(WHEREVER if diagnostic.axis in open_axes else NEVER for diagnostic in ALL)


@pytest.mark.parametrize("kind", BASES)
class TestJoint:
    def test_with_all_gates_shut_is_the_fixed_action(self, kind, kit):
        assert kit.record(kit.run(joint(BASES[kind], ALL, gates()))) == kit.record(kit.run(BASES[kind]))

    @pytest.mark.parametrize("axis", ["score", "region", "cardinality"])
    def test_with_one_gate_is_the_selective_policy(self, kind, axis, kit):
        alone = selective(BASES[kind], DIAGNOSTICS[axis], WHEREVER)
        assert kit.record(kit.run(joint(BASES[kind], ALL, gates(axis)))) == kit.record(kit.run(alone))


class TestTogether:
    def test_the_diagnosed_mixture_is_used_in_the_region_and_cardinality_diagnostics(self, kit):
        """At each state of a joint run: what they say when they read the action with the new mixture."""
        seen = []

        class Watch(Adaptive):
            def act(self, traj, look_ahead):
                seen.append(traj)
                return super().act(traj, look_ahead)

        axes = list(zip(ALL, gates("score", "region"), strict=True))
        kit.run(Watch(fixed_action(), axes), kit.small(steps=(5, 3, 6)))
        mattered = False
        for traj in seen:
            mixture = ScoreDiagnostic().read(traj, fixed_action().act(traj, NO_LOOK_AHEAD)).action
            region = RegionDiagnostic().read(traj, mixture)
            count = CardinalityDiagnostic().read(traj, region.action)
            notes = joint(fixed_action(), ALL, gates("score", "region")).act(traj, NO_LOOK_AHEAD).notes
            torch.testing.assert_close(notes["region/signal_B"], region.signal_B, rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close(notes["cardinality/signal_B"], count.signal_B, rtol=0, atol=0, equal_nan=True)
            apart = RegionDiagnostic().read(traj, fixed_action().act(traj, NO_LOOK_AHEAD)).signal_B
            mattered |= bool((apart.nan_to_num() != region.signal_B.nan_to_num()).any())
        assert mattered

    def test_axes_must_be_in_order(self):
        with pytest.raises(ConfigError, match="in this order"):
            joint(fixed_action(), (RegionDiagnostic(), ScoreDiagnostic()), (NEVER, NEVER))
        with pytest.raises(ConfigError, match="in this order"):
            joint(fixed_action(), (), ())


class TestArm:
    def test_combines_the_fixed_actions(self, kit):
        policy = joint_arm([kit.arms_of("cardinality", fixed=2), kit.arms_of("score", fixed=1)])
        assert policy.fixed == fixed_action(score="margin", cardinality="count:2")
        assert [one.axis for one in policy.diagnostics] == ["score", "cardinality"]
        assert policy.rules[0].tau == 0.05

    def test_commitment_brings_its_operator(self, kit):
        policy = joint_arm([kit.arms_of("commitment", fixed=1), kit.arms_of("region")])
        assert policy.operator is not None
        assert policy.base.fixed == fixed_action(commitment="none")
        assert isinstance(policy.base.diagnostics[1], CommitmentDiagnostic)

    def test_refused(self, kit):
        with pytest.raises(ConfigError, match="one model"):
            joint_arm([kit.arms_of("region"), kit.arms_of("score", "dream")])
        with pytest.raises(ConfigError, match="no axis twice"):
            joint_arm([kit.arms_of("region"), kit.arms_of("region")])
