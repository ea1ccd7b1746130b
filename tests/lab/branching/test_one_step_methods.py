"""Whole methods as candidates: their branches against decoding by hand, merged against naive, alone and in company."""

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar

import pytest
import torch

from tests.helpers.branch_frames import branches_of, states_of, work_by_axis
from tests.helpers.method_branches import MODEL, SEED, STARTS, by_hand
from tests.helpers.method_branches import plan as branched
from unmask.adapt.adaptive import combine_actions
from unmask.api.load import load
from unmask.api.request import Request, start_trajectory
from unmask.axes import POLICY, ReMDM
from unmask.base.errors import ConfigError, ContractError
from unmask.core import ALL, Noise, SamplingParams, row_key
from unmask.engine import decode, decode_one_step
from unmask.lab.branching import BatchSettings, BranchFrames, branch, stream
from unmask.methods import (
    DUS,
    KLASS,
    P2,
    VSB,
    WINO,
    Composed,
    CoRe,
    Dream,
    InfoGain,
    LLaDA,
    ReMDMLLaDA,
    ReMDMSampler,
    Swordsman,
    candidates,
    fixed_action,
)
from unmask.models import ExactDenoiser


@dataclass(frozen=True)
class Remembers(Composed):
    """Reveals as many as steps lie behind it, in each of which it finds nobody's notes."""

    name: ClassVar[str] = "remembers"
    past_steps = ALL

    def act(self, traj, look_ahead):
        assert not any(step.action.notes for step in traj.steps)
        return fixed_action(cardinality=f"count:{max(len(traj.steps), 1)}").act(traj, look_ahead)


@dataclass(frozen=True)
class TakesTurns(Composed):
    """By its own note the leftmost position or the surest two; `count` is what it begins with."""

    name: ClassVar[str] = "turns"
    past_steps = 1
    count: int = 0

    def act(self, traj, look_ahead):
        turn_B = traj.notes.get("turn_B", torch.full_like(traj.state.step_B, self.count)) + 1
        left, sure = (
            fixed_action(region="window:1").act(traj, look_ahead),
            fixed_action(cardinality="count:2").act(traj, look_ahead),
        )
        return replace(combine_actions(turn_B % 2 == 1, left, sure), notes={"turn_B": turn_B})


GUESTS = {
    "llada": LLaDA(),
    "llada, random": LLaDA(remasking="random"),
    "klass": KLASS(),
    "klass, one step": KLASS(window=1, threshold=0.3, epsilon=2.0),
    "wino": WINO(block_length=4, tau1=0.3, tau2=0.99),
    "info-gain": InfoGain(threshold=None, candidates=4, tau_pos=1.0),
    "core": CoRe(revise_every=1, tail=0, window=(0.0, 1.0), replacement=0.0),
    "core, again": CoRe(revise_every=1, tail=0, window=(0.0, 1.0), replacement=0.0, joint_reeval=True),
    "dus": DUS(block_length=4),
    "remdm": ReMDMSampler(ReMDM("rescale", eta=0.9)),
    "remdm-llada": ReMDMLLaDA(k=2),
    "vsb": VSB(window=4, least=1),
    "swordsman": Swordsman(),
    "p2": P2(),
    "remembers": Remembers(),
}
LEAVES = fixed_action(region="block:2", commitment="none")
"""A reference that commits nothing, so that methods which re-mask find something to."""
REFERENCES = {
    "llada": fixed_action(),
    "leaves all open": LEAVES,
    "dream": Dream(),
    "klass": KLASS(window=1, threshold=0.5, epsilon=0.5),
    "remdm": ReMDMSampler(),
}
REGIMES = [("llada", 0.0), ("leaves all open", 4.0), ("dream", 0.0), ("klass", 0.8), ("remdm", 0.8)]


plan = partial(branched, guests=GUESTS)


@cache
def merged_frames(name: str, temperature: float) -> BranchFrames:
    """Of a regime; several tests compare with it."""
    return branch(MODEL, plan(REFERENCES[name], temperature), STARTS, BatchSettings(rows=16))


class TestAgainstDecode:
    @pytest.mark.parametrize(("name", "temperature"), REGIMES)
    def test_a_branch_is_one_step_of_the_method_and_then_the_reference(self, name, temperature):
        reference, block = REFERENCES[name], merged_frames(name, temperature)
        requests = {one.id: one for one in STARTS}
        states = states_of(block)
        seen = set()
        for one in branches_of(block)[:: 3 if temperature else 2]:
            guest, request = GUESTS.get(one.candidate), requests[one.prompt]
            if guest is None:
                continue
            noise = Noise.of([row_key(SEED, request.key, stream(one.step, one.rollout))])
            own, end = by_hand(reference, guest, states[one.prompt, one.state], noise, temperature)
            where = (one.candidate, one.prompt, one.state, one.rollout)
            assert tuple(own.revealed_BL[0].nonzero().flatten().tolist()) == one.revealed, where
            assert tuple(own.remasked_BL[0].nonzero().flatten().tolist()) == one.remasked, where
            assert tuple(end.state.tokens_BL[0, slice(*request.answer)].tolist()) == one.answer, where
            # What a decode of the one step counts.
            assert one.extra_forwards == int(own.forwards_B[0]) - 1, where
            canvas = len(request.canvas)
            assert one.extra_tokens == int(own.processed_B[0]) - canvas, where
            seen.add(one.candidate)
        assert seen == set(GUESTS)

    def test_the_regimes_try_what_is_special(self):
        """Some method looked ahead, some read longer views, some re-masked, and the reference did none of it."""
        branches = branches_of(merged_frames("leaves all open", 4.0))
        of = {name: [b for b in branches if b.candidate == name] for name in ("reference", *GUESTS)}
        assert any(b.extra_forwards for b in of["info-gain"])
        assert any(b.extra_forwards for b in of["core"])
        assert max(b.extra_forwards for b in of["core, again"]) == 2
        assert any(b.extra_forwards for b in of["vsb"])
        assert all(b.extra_tokens > 0 and b.extra_forwards == 0 for b in of["wino"])
        assert any(b.remasked for b in of["core"])
        assert any(b.remasked for b in of["wino"])
        assert any(b.remasked for b in of["remdm-llada"] + of["remdm"] + of["p2"])
        assert all((b.extra_forwards, b.extra_tokens, b.remasked) == (0, 0, ()) for b in of["reference"])

    def test_the_reference_goes_on_as_if_nothing_had_been(self):
        block = merged_frames("dream", 0.0)
        starts = {one.id: (one, start_trajectory(MODEL, [one], SEED)) for one in STARTS}
        ends = {
            name: tuple(decode(MODEL, Dream(), begin).state.tokens_BL[0, slice(*one.answer)].tolist())
            for name, (one, begin) in starts.items()
        }
        assert all(b.answer == ends[b.prompt] for b in branches_of(block) if b.candidate == "reference")

    def test_the_reference_has_its_own_notes_back(self):
        """A method's notes of the same name are not taken for the reference's, nor the other way round."""
        reference, guest = TakesTurns(), TakesTurns(count=6)
        block = branch(MODEL, plan(reference, 4.0, guests={"other": guest}), STARTS, BatchSettings(rows=8))
        states = states_of(block)
        noticed = False
        for one in (b for b in branches_of(block) if b.candidate == "other"):
            request = next(start for start in STARTS if start.id == one.prompt)
            begin = states[one.prompt, one.state]
            noise = Noise.of([row_key(SEED, request.key, stream(one.step, one.rollout))])
            _, end = by_hand(reference, guest, begin, noise, 4.0)
            assert tuple(end.state.tokens_BL[0, slice(*request.answer)].tolist()) == one.answer
            taken_over = decode_one_step(
                MODEL, guest, replace(begin, noise=noise, sampling=SamplingParams(temperature=4.0), steps=())
            )
            other = decode(MODEL, reference, taken_over)
            noticed |= not torch.equal(other.state.tokens_BL, end.state.tokens_BL)
        assert noticed

    def test_as_much_of_the_past_as_a_method_reads(self):
        counts = {
            (b.state, len(b.revealed)) for b in branches_of(merged_frames("llada", 0.0)) if b.candidate == "remembers"
        }
        assert len({revealed for _, revealed in counts}) > 1


class TestMergingChangesNothing:
    @pytest.mark.parametrize(("name", "temperature"), REGIMES)
    def test_same_branches_and_every_forward_accounted_for(self, name, temperature):
        merged = merged_frames(name, temperature)
        naive = branch(MODEL, plan(REFERENCES[name], temperature), STARTS, BatchSettings(rows=16, merge=False))
        assert branches_of(merged) == branches_of(naive)
        ours, each = work_by_axis(merged).loc[POLICY], work_by_axis(naive).loc[POLICY]
        assert ours["naive"] == each["done"] > ours["done"]
        assert each["saved"] == 0

    def test_beside_the_four_axes(self):
        """Nothing that stands on another axis changes, and what both name is done once."""
        sets = {axis: candidates()[axis] for axis in candidates()}
        guests = {"info-gain": GUESTS["info-gain"], "margin": fixed_action(score="margin"), "wino": GUESTS["wino"]}
        chosen = plan(fixed_action(), guests=guests, sets=sets)
        merged = branch(MODEL, chosen, STARTS, BatchSettings(rows=16))
        naive = branch(MODEL, chosen, STARTS, BatchSettings(rows=16, merge=False))
        branches = branches_of(merged)
        assert branches == branches_of(naive)
        without = replace(chosen, candidates=sets)
        alone = branches_of(branch(MODEL, without, STARTS, BatchSettings(rows=16)))
        assert alone == [b for b in branches if b.axis != POLICY]
        named = {(b.prompt, b.state, b.rollout): b.answer for b in branches if b.candidate == "margin"}
        by_axis = [b for b in branches if (b.axis, b.candidate) == ("score", "margin")]
        assert all(named[b.prompt, b.state, b.rollout] == b.answer for b in by_axis)
        axes = [*sets, POLICY]
        assert work_by_axis(merged).loc[axes, "naive"].equals(work_by_axis(naive).loc[axes, "done"].rename("naive"))

    @pytest.mark.slow
    def test_on_a_network(self, scaled, tmp_path):
        """Merged or not, alone or in company: the same bytes, looks ahead and shadow slots included."""
        model = load(str(scaled.llada(tmp_path / "llada", layers=1)), dtype="fp32", device="cpu")
        mask = model.denoiser.vocabulary.mask_id
        requests = []
        for i, size in enumerate((17, 30)):
            prompt = tuple(range(3 + i, 3 + i + size))
            given = (True,) * size + (False,) * 8
            requests.append(Request(f"p{i}", prompt + (mask,) * 8, given, 4, (size, size + 8)))
        guests = {
            "info-gain": InfoGain(threshold=None, candidates=3),
            "wino": WINO(block_length=4, tau1=0.0),
            "vsb": VSB(window=4, least=2),
            "klass": KLASS(window=1, threshold=0.0),
        }
        chosen = plan(fixed_action(), states=2, rollouts=1, guests=guests)
        whole = branch(model.denoiser, chosen, requests, BatchSettings(rows=4))
        naive = branch(model.denoiser, chosen, requests, BatchSettings(rows=4, live=7, merge=False))
        assert branches_of(whole) == branches_of(naive)
        for one in requests:
            alone = branches_of(branch(model.denoiser, chosen, [one], BatchSettings(rows=4, live=4)))
            assert alone == [b for b in branches_of(whole) if b.prompt == one.id]


class TestShapes:
    @pytest.mark.parametrize(
        "settings",
        [BatchSettings(rows=1), BatchSettings(rows=5, live=7, waiting=1), BatchSettings(rows=64, bucket=64)],
    )
    def test_rows_bucket_and_waiting_change_nothing(self, settings):
        changed = branch(MODEL, plan(fixed_action()), STARTS, settings)
        assert branches_of(changed) == branches_of(merged_frames("llada", 0.0))

    def test_order_and_company_change_nothing(self):
        whole = branches_of(merged_frames("leaves all open", 4.0))
        turned = branches_of(branch(MODEL, plan(LEAVES, 4.0), STARTS[::-1], BatchSettings(rows=16)))
        assert sorted(whole, key=repr) == sorted(turned, key=repr)
        alone = branches_of(branch(MODEL, plan(LEAVES, 4.0), STARTS[1:], BatchSettings(rows=3)))
        assert alone == [b for b in whole if b.prompt == STARTS[1].id]

    def test_every_forward_has_one_of_two_shapes(self, monkeypatch):
        """The canvas's, and that of canvas and shadow slots; `rows` rows each, whatever is looked at."""
        shapes, forward = [], ExactDenoiser.__call__

        def watched(self, view, needs):
            shapes.append(tuple(view.tokens_BN.shape))
            return forward(self, view, needs)

        monkeypatch.setattr(ExactDenoiser, "__call__", watched)
        guests = {name: GUESTS[name] for name in ("wino", "vsb", "info-gain", "core")}
        block = branch(MODEL, plan(fixed_action(), guests=guests), STARTS, BatchSettings(rows=7))
        assert set(shapes) == {(7, 32), (7, 64)}
        # Dummies are counted: passes are those that the denoiser saw.
        assert block.calls == len(shapes)
        assert block.costs["done"].sum() <= 7 * len(shapes)


class TestRefusals:
    def test_searches(self):
        class Beam:
            name = "beam"

        with pytest.raises(ConfigError, match=r"a search owns its loop"):
            plan(fixed_action(), guests={"beam": Beam()})

    def test_a_planner_that_is_not_there(self):
        with pytest.raises(ConfigError, match="asks a planner"):
            branch(MODEL, plan(fixed_action(), guests={"p2": P2(planner=True)}), STARTS[:1], BatchSettings(rows=4))

    def test_what_a_method_refuses_is_refused_before_the_first_forward(self, monkeypatch):
        monkeypatch.setattr(ExactDenoiser, "__call__", lambda self, view, needs: pytest.fail("a forward was run"))
        with pytest.raises(ConfigError, match="divisor of the 6 new tokens"):
            branch(
                MODEL, plan(fixed_action(), guests={"llada": LLaDA(block_length=4)}), STARTS[:1], BatchSettings(rows=4)
            )

    def test_methods_that_look_ahead_or_draw_without_saying_so(self):
        @dataclass(frozen=True)
        class Sly(Composed):
            def act(self, traj, look_ahead):
                look_ahead.predict(traj.state, torch.arange(traj.state.batch))
                return super().act(traj, look_ahead)

        with pytest.raises(ContractError, match="without saying so"):
            branch(MODEL, plan(fixed_action(), guests={"sly": Sly()}), STARTS[:1], BatchSettings(rows=4))

    def test_looking_ahead_is_for_the_policy_axis(self):
        sets = {"score": {"ref": fixed_action(), "core": GUESTS["core"]}}
        with pytest.raises(ConfigError, match="look ahead"):
            branch(MODEL, plan(fixed_action(), guests={}, sets=sets), STARTS[1:2], BatchSettings(rows=4))
