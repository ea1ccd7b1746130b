"""Arms built from a calibration are the policies that validation chose."""

import pytest

from tests.helpers.adaptive_arms import always, random_gate, selective
from tests.helpers.cases import each_case
from unmask.adapt import Arms, DetectorRule, Staged
from unmask.adapt.diagnostics import DIAGNOSTICS, CommitmentDiagnostic, RegionDiagnostic, ScoreDiagnostic
from unmask.axes import AXES, ReMDM
from unmask.base.errors import ConfigError, UnknownName
from unmask.methods import Composed, Dream, candidates, fixed_action, with_remasking

KINDS = {"llada": fixed_action(), "dream": Dream()}


class TestArms:
    @pytest.mark.parametrize("kind", KINDS)
    def test_of_a_region(self, kind, kit):
        arms = kit.arms_of("region", kind, fixed=2, stages=[0, 1, 2, 3])
        named = list(candidates(kind)["region"].values())
        assert arms.reference == KINDS[kind]
        assert arms.fixed == named[2]
        assert arms.stage == Staged(tuple(named[:4]))
        base = fixed_action() if kind == "llada" else Composed(Dream(), score="certainty")
        assert arms.always == always(named[2], RegionDiagnostic(), base=base)
        assert arms.selective == selective(
            named[2], RegionDiagnostic(), DetectorRule((0.0,), (0.0, 0.1), 0.05), base=base
        )
        assert arms.random_gate(0.2) == random_gate(named[2], RegionDiagnostic(), 0.2, base=base)

    def test_the_score_signal_is_against_the_fixed_mixture(self, kit):
        assert kit.arms_of("score", fixed=3).selective.base == fixed_action(score="stability")
        assert kit.arms_of("score", "dream", fixed=2).always.base == Composed(Dream(), score="margin")
        assert kit.arms_of("score", "dream").always.base == Composed(Dream(), score="certainty")

    @pytest.mark.parametrize("kind", KINDS)
    def test_of_commitment_revision_is_around_every_arm(self, kind, kit):
        arms = kit.arms_of("commitment", kind, fixed=1, stages=[0, 1, 2, 3])
        inner = fixed_action(commitment="none") if kind == "llada" else Composed(Dream(), commitment="none")
        assert arms.fixed == with_remasking(inner, arms.operator)
        assert arms.selective.operator == arms.operator
        assert arms.selective.base.fixed == inner
        assert arms.stage.base.policies[1] == inner
        # Its own set is what the diagnostic of commitment reads.
        assert arms.always.base.base == KINDS[kind]

    @each_case("axis", AXES)
    @each_case("kind", KINDS)
    def test_a_gate_that_never_opens_is_the_fixed_arm_and_one_that_always_does_the_always_arm(self, axis, kind, kit):
        for fixed in (0, 1, 3):
            never, ever = (kit.arms_of(axis, kind, fixed=fixed, tau=tau) for tau in (None, float("-inf")))
            assert kit.record(kit.run(never.selective)) == kit.record(kit.run(never.fixed))
            assert kit.record(kit.run(ever.selective)) == kit.record(kit.run(ever.always))

    def test_refused(self, kit):
        made = kit.calibrated("region")
        with pytest.raises(UnknownName, match="planning"):
            Arms("planning", "llada", made, RegionDiagnostic())
        with pytest.raises(ConfigError, match="axis of the diagnostic is 'score'"):
            Arms("region", "llada", made, ScoreDiagnostic())
        with pytest.raises(ConfigError, match=r"'snapped'.*'raw'"):
            Arms("region", "llada", kit.calibrated("region", proposal="snapped"), RegionDiagnostic())
        with pytest.raises(ConfigError, match="operator of region"):
            Arms("region", "llada", made, RegionDiagnostic(), ReMDM("conf"))
        with pytest.raises(ConfigError, match="operator of commitment"):
            Arms("commitment", "llada", kit.calibrated("commitment"), CommitmentDiagnostic())
        with pytest.raises(ConfigError, match="reference of the calibration"):
            Arms("score", "dream", kit.calibrated("score"), ScoreDiagnostic())
        with pytest.raises(UnknownName, match="gpt"):
            Arms("score", "gpt", kit.calibrated("score"), ScoreDiagnostic())
        assert {one.axis for one in DIAGNOSTICS.values()} == set(AXES)
        assert set(AXES) <= set(DIAGNOSTICS)
