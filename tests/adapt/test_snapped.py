"""Proposals that land on candidates: which is nearest, and a selective policy that takes it."""

import pytest
import torch

from tests.helpers.adaptive_arms import random_gate, selective
from unmask.adapt import Adaptive, DetectorRule, nearest_candidate, read_policy_diagnostics
from unmask.adapt.diagnostics import DIAGNOSTICS, CardinalityDiagnostic, RegionDiagnostic
from unmask.base.errors import ConfigError
from unmask.core import NO_LOOK_AHEAD, Action, State
from unmask.engine import apply
from unmask.methods import Dream, candidates, fixed_action, with_explicit_order

NEVER, WHEREVER = DetectorRule((), (0.0,), None), DetectorRule((), (0.0,), float("-inf"))
BASES = {"llada": fixed_action(), "dream": Dream()}
AXES = ("score", "region", "cardinality")


def members(kind, axis):
    return tuple(candidates(kind)[axis].values())


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("axis", AXES)
class TestSnapped:
    def test_shut_it_is_the_fixed_action(self, kind, axis, kit):
        policy = selective(BASES[kind], DIAGNOSTICS[axis], NEVER, members(kind, axis))
        assert kit.record(kit.run(policy)) == kit.record(kit.run(BASES[kind]))

    def test_open_it_takes_a_candidate_that_none_is_nearer_than(self, kind, axis, kit):
        """And the signal is the diagnostic's own: only what is done instead is another."""
        policy = selective(BASES[kind], DIAGNOSTICS[axis], WHEREVER, members(kind, axis))
        plain = selective(BASES[kind], DIAGNOSTICS[axis], WHEREVER)
        seen = []

        class Watch(Adaptive):
            def act(self, traj, look_ahead):
                seen.append(traj)
                return super().act(traj, look_ahead)

        watch = Watch(BASES[kind], [(DIAGNOSTICS[axis], WHEREVER)], snap_to=members(kind, axis))
        kit.run(watch, kit.small(steps=(5, 3, 6)))
        taken = 0
        for traj in seen:
            mine, theirs = read_policy_diagnostics({"mine": policy, "theirs": plain}, traj).values()
            assert torch.equal(mine.signal_B.nan_to_num(-1), theirs.signal_B.nan_to_num(-1))
            done = apply(traj.state, traj.current_prediction, policy.act(traj, NO_LOOK_AHEAD)).check().state
            others = [
                apply(traj.state, traj.current_prediction, c.act(traj, NO_LOOK_AHEAD)).state
                for c in members(kind, axis)
            ]
            for row in (~mine.abstains_B).nonzero().flatten().tolist():
                assert any(torch.equal(done.tokens_BL[row], other.tokens_BL[row]) for other in others)
                taken += 1
        assert taken


def test_it_is_the_candidate_itself_where_the_proposal_is_one(kit):
    """The told diagnostic reveals everything: of these the last."""
    told = kit.Told((0.1, 0.1, 0.1))
    snapped = selective(
        fixed_action(), told, WHEREVER, tuple(fixed_action(cardinality=k) for k in ("schedule", "count:2", "share:1.0"))
    )
    assert kit.record(kit.run(snapped)) == kit.record(kit.run(selective(fixed_action(), told, WHEREVER)))
    without = selective(fixed_action(), told, WHEREVER, (fixed_action(), fixed_action(cardinality="count:2")))
    assert kit.record(kit.run(without)) == kit.record(kit.run(fixed_action(cardinality="count:2")))


def test_candidates_of_one_axis_alone():
    axes = [(RegionDiagnostic(), WHEREVER), (CardinalityDiagnostic(), WHEREVER)]
    with pytest.raises(ConfigError, match="axes with snap_to"):
        Adaptive(fixed_action(), axes, snap_to=(fixed_action(),))
    dependent = selective(fixed_action(), RegionDiagnostic(), WHEREVER, (fixed_action(score="dependency"),))
    assert dependent.needs.attention
    assert not selective(fixed_action(), RegionDiagnostic(), WHEREVER).needs.attention


class TestArms:
    def test_under_a_gate_of_its_own(self, kit):
        arms = kit.arms_of("cardinality", fixed=1)
        gate = kit.calibrated("cardinality", fixed=1, proposal="snapped", tau=0.07)
        names = list(candidates("llada")["cardinality"])
        snapped = arms.with_calibration(gate, names)
        made_of = (members("llada", "cardinality")[1], CardinalityDiagnostic())
        near = members("llada", "cardinality")
        base = with_explicit_order(fixed_action())
        assert snapped.selective == selective(*made_of, DetectorRule.of(gate), near, base=base)
        assert snapped.random_gate(0.3) == random_gate(*made_of, 0.3, near, base=base)
        assert arms.with_calibration(arms.calibration, names).selective == arms.selective


class TestNearest:
    """By hand, on a canvas of a prompt and six masks."""

    state = State.from_prompts([[0]], new_tokens=6, steps=3, mask_id=3)
    revealed_BL = torch.tensor([[False, True, True, False, False, False, False]])

    def action(self, alpha=(1, 0, 0, 0, 0), region=(0, 1, 1, 1, 1, 1, 1), kappa=1.0, commit=(1,) * 7):
        return Action(
            torch.tensor([alpha], dtype=torch.float64),
            torch.tensor([region], dtype=torch.bool),
            torch.tensor([kappa], dtype=torch.float64),
            torch.tensor([commit], dtype=torch.bool),
        )

    def near(self, axis, proposed, *others):
        candidates = [self.action(**other) for other in others]
        return nearest_candidate(axis, self.state, self.action(**proposed), self.revealed_BL, candidates).tolist()

    def test_score(self):
        pure, margin, uniform = ({"alpha": a} for a in ((1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0.2,) * 5))
        assert self.near("score", {"alpha": (0.1, 0.9, 0, 0, 0)}, pure, margin, uniform) == [1]
        assert self.near("score", {"alpha": (0.3, 0.3, 0.2, 0.1, 0.1)}, pure, margin, uniform) == [2]

    def test_cardinality(self):
        one, three, six = ({"kappa": k / 6} for k in (1, 3, 6))
        assert self.near("cardinality", {"kappa": 4 / 6}, one, three, six) == [1]
        assert self.near("cardinality", {"kappa": 5 / 6}, one, three, six) == [2]

    def test_commitment_looks_at_what_is_revealed(self):
        every, none, first = ({"commit": c} for c in ((1,) * 7, (0,) * 7, (0, 1, 0, 0, 0, 0, 0)))
        assert self.near("commitment", {"commit": (0, 0, 0, 1, 1, 1, 1)}, every, none, first) == [1]
        assert self.near("commitment", {"commit": (0, 1, 0, 1, 1, 1, 1)}, every, none, first) == [2]

    def test_the_first_of_equally_near_ones(self):
        two, four = {"kappa": 2 / 6}, {"kappa": 4 / 6}
        assert self.near("cardinality", {"kappa": 3 / 6}, four, two) == [0]
        assert self.near("cardinality", {"kappa": 3 / 6}, two, four) == [0]
