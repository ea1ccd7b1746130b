"""Whole methods as candidates and as references: against decoding by hand, merged against naive, and counted."""

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import pytest
import torch

from tests.helpers.branch_frames import branches_of, states_of, work_by_axis
from tests.helpers.cases import each_case
from tests.helpers.method_branches import MODEL, STARTS, by_hand, noise_of, plan
from unmask.adapt.adaptive import combine_actions
from unmask.api.load import load
from unmask.api.request import Request
from unmask.axes import POLICY, ReMDM
from unmask.base.errors import ConfigError, ContractError, DenoiserError
from unmask.core import ALL, ModelInput, Needs, SamplingParams
from unmask.engine import decode, decode_one_step
from unmask.lab.branching import REFERENCE_RUN, BatchSettings, BranchFrames, BranchPlan, branch
from unmask.lab.branching.stepper import FixedShapeDenoiser
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

CORE = CoRe(revise_every=1, tail=0, window=(0.0, 1.0), replacement=0.0)
LEAVES = fixed_action(region="block:2", commitment="none")
"""A reference that commits nothing, so that methods which re-mask find something to."""
PLAIN = {
    "llada": fixed_action(),
    "leaves all open": LEAVES,
    "dream": Dream(),
    "klass": KLASS(window=1, threshold=0.5, epsilon=0.5),
    "remdm": ReMDMSampler(),
}
LOOKING = {
    "core": CORE,
    "core, again": replace(CORE, joint_reeval=True),
    "info-gain": InfoGain(threshold=None, candidates=4, tau_pos=1.0),
    "vsb": VSB(window=4, least=1),
    "wino": WINO(block_length=6, tau1=0.45, tau2=1.0),
    "remdm-llada": ReMDMLLaDA(k=2),
}
"""References that look ahead or read views of their own."""
REFERENCES = PLAIN | LOOKING


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


@dataclass(frozen=True)
class Rereads(Composed):
    """Asks about revealed tokens too, and reveals two where its last step has done so."""

    name: ClassVar[str] = "rereads"
    past_steps = 1

    def model_input(self, traj):
        return ModelInput.of(traj.state, Needs(revealed=True))

    def act(self, traj, look_ahead):
        one, two = (fixed_action(cardinality=f"count:{n}").act(traj, look_ahead) for n in (1, 2))
        if traj.last is None:
            return one
        return combine_actions((traj.last.prediction.wanted_BN & ~traj.last.state.masked_BL).any(-1), two, one)


ALL_METHODS = {
    "llada": LLaDA(),
    "llada, random": LLaDA(remasking="random"),
    "klass": KLASS(),
    "klass, one step": KLASS(window=1, threshold=0.3, epsilon=2.0),
    "wino": WINO(block_length=4, tau1=0.3, tau2=0.99),
    "info-gain": InfoGain(threshold=None, candidates=4, tau_pos=1.0),
    "core": CORE,
    "core, again": replace(CORE, joint_reeval=True),
    "dus": DUS(block_length=4),
    "remdm": ReMDMSampler(ReMDM("rescale", eta=0.9)),
    "remdm-llada": ReMDMLLaDA(k=2),
    "vsb": VSB(window=4, least=1),
    "swordsman": Swordsman(),
    "p2": P2(),
    "remembers": Remembers(),
}
SOME_METHODS = {
    "llada": LLaDA(),
    "klass": KLASS(window=1, threshold=0.3, epsilon=2.0),
    "wino": WINO(block_length=2, tau1=0.3, tau2=0.99),
    "info-gain": InfoGain(threshold=None, candidates=3, tau_pos=1.0),
    "core": replace(CORE, candidates=1),
    "remdm-llada": ReMDMLLaDA(k=1),
    "vsb": VSB(window=3, least=1),
}
REGIMES = [
    ("llada", 0.0),
    ("leaves all open", 4.0),
    ("dream", 0.0),
    ("klass", 0.8),
    ("remdm", 0.8),
    *((name, 0.0) for name in LOOKING),
    ("core, again", 4.0),
    ("wino", 4.0),
    ("remdm-llada", 0.8),
]


def methods_beside(name):
    """The methods that are tried around a reference."""
    return ALL_METHODS if name in PLAIN else SOME_METHODS


def plan_around(name, temperature=0.0, **kwargs) -> BranchPlan:
    return plan(REFERENCES[name], temperature, guests=methods_beside(name), states=2, **kwargs)


@cache
def frames_of(name: str, temperature: float, merge: bool = True) -> BranchFrames:
    return branch(MODEL, plan_around(name, temperature), STARTS, BatchSettings(rows=16, merge=merge))


def stepwise(reference, traj):
    """The reference to its end, step by step, every pass of every step counted."""
    spent = 0
    while not bool(reference.done(traj)):
        traj = decode_one_step(MODEL, reference, traj)
        spent += int(traj.steps[-1].forwards_B[0])
    return traj, spent


class TestAgainstDecode:
    @each_case(("name", "temperature"), REGIMES)
    def test_a_branch_is_one_step_of_the_method_and_then_the_reference(self, name, temperature):
        reference, block = REFERENCES[name], frames_of(name, temperature)
        requests, states = {one.id: one for one in STARTS}, states_of(block)
        seen = set()
        for one in branches_of(block)[:: 3 if temperature else 2]:
            guest, request = methods_beside(name).get(one.candidate, reference), requests[one.prompt]
            begin, noise = states[one.prompt, one.state], noise_of(one)
            if guest is reference:
                whole = replace(begin, noise=noise, sampling=SamplingParams(temperature=temperature))
                own, end = decode_one_step(MODEL, reference, whole).steps[-1], decode(MODEL, reference, whole)
            else:
                own, end = by_hand(reference, guest, begin, noise, temperature)
            where = (one.candidate, one.prompt, one.state, one.rollout)
            assert tuple(own.revealed_BL[0].nonzero().flatten().tolist()) == one.revealed, where
            assert tuple(own.remasked_BL[0].nonzero().flatten().tolist()) == one.remasked, where
            assert tuple(end.state.tokens_BL[0, slice(*request.answer)].tolist()) == one.answer, where
            assert one.extra_forwards == int(own.forwards_B[0]) - 1, where
            assert one.extra_tokens == int(own.processed_B[0]) - len(request.canvas), where
            seen.add(one.candidate)
        assert seen == {"reference", *methods_beside(name)}

    @pytest.mark.parametrize("name", LOOKING)
    def test_its_own_way_is_that_of_decode(self, name):
        frames = frames_of(name, 0.0)
        passes = frames.costs[frames.costs["axis"] == REFERENCE_RUN].set_index("request")["done"]
        answers = {b.prompt: b.answer for b in branches_of(frames) if b.candidate == "reference"}
        for number, request in enumerate(STARTS):
            begin = states_of(frames)[request.id, 0]
            end = decode(MODEL, REFERENCES[name], replace(begin, sampling=SamplingParams()))
            assert tuple(end.state.tokens_BL[0, slice(*request.answer)].tolist()) == answers[request.id]
            assert set(frames.states.loc[frames.states["prompt"] == request.id, "taken"]) == {len(end.steps)}
            # `decode` remembers a look that comes true; here every step has its own forward.
            known = sum(int(s.prepaid_B[0]) for s in end.steps if s.prepaid_B is not None)
            assert passes[number] == int(end.forwards_B[0]) + known

    def test_what_the_last_step_saw_is_its_own_view_or_a_candidates_canvas(self):
        """A candidate that does the very same leaves another record, so the two are not one future."""
        reference, guests = (
            Rereads(),
            {"one": fixed_action(cardinality="count:1"), "two": fixed_action(cardinality="count:2")},
        )
        chosen = plan(reference, 4.0, guests=guests, states=4)
        block = branch(MODEL, chosen, STARTS, BatchSettings(rows=8))
        naive = branch(MODEL, chosen, STARTS, BatchSettings(rows=8, merge=False))
        assert branches_of(block) == branches_of(naive)
        states = states_of(block)
        for one in (b for b in branches_of(block) if b.candidate in guests):
            begin = states[one.prompt, one.state]
            _, end = by_hand(reference, guests[one.candidate], begin, noise_of(one), 4.0)
            request = next(start for start in STARTS if start.id == one.prompt)
            assert tuple(end.state.tokens_BL[0, slice(*request.answer)].tolist()) == one.answer

    def test_the_reference_has_its_own_notes_back(self):
        """A method's notes of the same name are not taken for the reference's, nor the other way round."""
        reference, guest = TakesTurns(), TakesTurns(count=6)
        block = branch(MODEL, plan(reference, 4.0, guests={"other": guest}), STARTS, BatchSettings(rows=8))
        states = states_of(block)
        noticed = False
        for one in (b for b in branches_of(block) if b.candidate == "other"):
            request = next(start for start in STARTS if start.id == one.prompt)
            begin = states[one.prompt, one.state]
            noise = noise_of(one)
            _, end = by_hand(reference, guest, begin, noise, 4.0)
            assert tuple(end.state.tokens_BL[0, slice(*request.answer)].tolist()) == one.answer
            taken_over = decode_one_step(
                MODEL, guest, replace(begin, noise=noise, sampling=SamplingParams(temperature=4.0), steps=())
            )
            other = decode(MODEL, reference, taken_over)
            noticed |= not torch.equal(other.state.tokens_BL, end.state.tokens_BL)
        assert noticed

    def test_plain_references_do_none_of_what_methods_around_them_do(self):
        """Some method looked ahead, some read longer views, some re-masked, and the reference did none of it."""
        branches = branches_of(frames_of("leaves all open", 4.0))
        of = {name: [b for b in branches if b.candidate == name] for name in ("reference", *ALL_METHODS)}
        assert any(b.extra_forwards for b in of["info-gain"])
        assert any(b.extra_forwards for b in of["core"])
        assert max(b.extra_forwards for b in of["core, again"]) == 2
        assert any(b.extra_forwards for b in of["vsb"])
        assert all(b.extra_tokens > 0 and b.extra_forwards == 0 for b in of["wino"])
        assert any(b.remasked for b in of["core"])
        assert any(b.remasked for b in of["wino"])
        assert any(b.remasked for b in of["remdm-llada"] + of["remdm"] + of["p2"])
        assert all((b.extra_forwards, b.extra_tokens, b.remasked) == (0, 0, ()) for b in of["reference"])

    def test_the_regimes_try_what_is_special(self):
        """References look ahead, read longer views, re-mask, and do so after somebody else's step as well."""
        first = {name: branches_of(frames_of(name, 0.0)) for name in LOOKING}
        own = {name: [b for b in branches if b.candidate == "reference"] for name, branches in first.items()}
        assert all(any(b.extra_forwards for b in own[name]) for name in ("core", "core, again", "info-gain", "vsb"))
        assert all(b.extra_tokens > 0 and b.extra_forwards == 0 for b in own["wino"])
        for name in ("core, again", "wino", "remdm-llada"):
            drawn = plan(REFERENCES[name], 4.0, rollouts=1, states=9, guests={})
            assert any(branch(MODEL, drawn, STARTS, BatchSettings(rows=4)).branches["remasked"]), name
        for name, temperature in REGIMES[-3:]:
            block = branches_of(frames_of(name, temperature))
            own_answers = {(b.prompt, b.state, b.rollout, b.answer) for b in block if b.candidate == "reference"}
            assert any((b.prompt, b.state, b.rollout, b.answer) not in own_answers for b in block), name


class TestMergingChangesNothing:
    @each_case(("name", "temperature"), REGIMES)
    def test_same_branches_and_every_forward_accounted_for(self, name, temperature):
        merged, naive = frames_of(name, temperature), frames_of(name, temperature, False)
        assert branches_of(merged) == branches_of(naive)
        ours, each = work_by_axis(merged), work_by_axis(naive)
        assert ours.loc[POLICY, "naive"] == each.loc[POLICY, "done"] > ours.loc[POLICY, "done"]
        assert ours.loc[REFERENCE_RUN, "done"] == each.loc[REFERENCE_RUN, "done"]
        assert each["saved"].sum() == 0

    def test_beside_the_four_axes(self):
        """Nothing that stands on another axis changes, and what both name is done once."""
        sets = {axis: candidates()[axis] for axis in candidates()}
        guests = {
            "info-gain": ALL_METHODS["info-gain"],
            "margin": fixed_action(score="margin"),
            "wino": ALL_METHODS["wino"],
        }
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

    @pytest.mark.parametrize(
        ("name", "temperature"), [("core", 0.0), ("vsb", 0.0), ("wino", 0.0), ("leaves all open", 4.0)]
    )
    def test_rows_bucket_order_and_company_change_nothing(self, name, temperature):
        whole = branches_of(frames_of(name, temperature))
        settings = BatchSettings(rows=5, live=7, waiting=1, bucket=64)
        assert branches_of(branch(MODEL, plan_around(name, temperature), STARTS, settings)) == whole
        turned = branches_of(branch(MODEL, plan_around(name, temperature), STARTS[::-1], BatchSettings(rows=16)))
        assert sorted(whole, key=repr) == sorted(turned, key=repr)
        alone = branches_of(branch(MODEL, plan_around(name, temperature), STARTS[1:], BatchSettings(rows=3)))
        assert alone == [b for b in whole if b.prompt == STARTS[1].id]


def _requests(mask):
    made = []
    for i, size in enumerate((17, 30)):
        given = (True,) * size + (False,) * 8
        made.append(Request(f"p{i}", (*range(3 + i, 3 + i + size), *(mask,) * 8), given, 4, (size, size + 8)))
    return made


class TestAccounting:
    @pytest.mark.parametrize(("name", "temperature"), [*((name, 0.0) for name in LOOKING), ("wino", 4.0)])
    def test_a_naive_run_takes_what_decoding_each_branch_takes(self, name, temperature):
        reference, block, spent = REFERENCES[name], frames_of(name, temperature), 0
        states = states_of(block)
        for one in branches_of(block):
            guest = SOME_METHODS.get(one.candidate, reference)
            begin = replace(states[one.prompt, one.state], sampling=SamplingParams(temperature=temperature))
            begin = replace(begin, noise=noise_of(one))
            bare = begin if guest is reference else replace(begin, steps=_bare(begin.steps))
            after = decode_one_step(MODEL, guest, bare)
            own = after.steps[-1]
            # The canvas's forward, one more for a view of its own, and the looks ahead.
            spent += int(own.forwards_B[0]) + (type(guest) in (WINO, ReMDMLLaDA))
            notes = dict(own.action.notes if guest is reference else begin.notes)
            kept = replace(own, action=replace(own.action, notes=notes))
            spent += stepwise(reference, replace(after, steps=(*after.steps[:-1], kept), prepaid_B=None))[1]
        assert work_by_axis(block).loc[POLICY, "naive"] == spent

    @pytest.mark.parametrize("merge", [True, False])
    @pytest.mark.parametrize("name", ["core, again", "vsb", "wino"])
    def test_every_row_that_went_through_the_model_is_booked(self, name, merge, monkeypatch):
        rows, forward = [], FixedShapeDenoiser.__call__

        def watched(self, view, needs):
            rows.append(len(view.tokens_BN))
            return forward(self, view, needs)

        monkeypatch.setattr(FixedShapeDenoiser, "__call__", watched)
        frames = branch(MODEL, plan_around(name), STARTS, BatchSettings(rows=7, merge=merge))
        assert sum(rows) == frames.costs["done"].sum()


def _bare(steps):
    return tuple(replace(step, action=replace(step.action, notes={})) for step in steps)


class TestRefusals:
    @pytest.mark.parametrize("name", LOOKING)
    def test_around_the_four_axes(self, name, monkeypatch):
        monkeypatch.setattr(ExactDenoiser, "__call__", lambda self, view, needs: pytest.fail("a forward was run"))
        reference = REFERENCES[name]
        sets = {axis: {"own": reference, "other": Composed(reference, score="margin")} for axis in candidates()}
        chosen = BranchPlan(reference, {**sets, POLICY: {"own": reference}}, ReMDM("conf"), 1, 1, seed=0)
        with pytest.raises(ConfigError, match="study whole methods alone"):
            branch(MODEL, chosen, STARTS, BatchSettings(rows=4))

    def test_a_model_that_cannot_answer_its_slots(self, scaled, tmp_path, monkeypatch):
        model = load(str(scaled.dream(tmp_path / "dream", layers=1)), dtype="fp32", device="cpu")
        chosen = plan(WINO(block_length=4), states=1, rollouts=1, guests={"llada": LLaDA()})
        monkeypatch.setattr(
            type(model.denoiser.model), "forward", lambda *given, **named: pytest.fail("a forward was run")
        )
        with pytest.raises(DenoiserError, match="without shadow slots"):
            branch(model.denoiser, chosen, _requests(model.denoiser.vocabulary.mask_id)[:1], BatchSettings(rows=2))

    def test_what_needs_more_than_a_study_has(self):
        class Compares(WINO):
            @property
            def needs(self):
                return replace(super().needs, divergence=True)

        class Remembers(Composed):
            past_steps = -1

        for reference in (Compares(), Remembers()):
            with pytest.raises(ConfigError, match="cannot continue branches"):
                plan(reference, guests=SOME_METHODS)


@dataclass(frozen=True)
class LooksAheadSecretly(Composed):
    def act(self, traj, look_ahead):
        look_ahead.predict(traj.state, torch.arange(traj.state.batch))
        return super().act(traj, look_ahead)


class Beam:
    """A search by its looks: no policy."""

    name = "beam"


@each_case(
    ("guest", "words", "forwards"),
    [
        (Beam(), "a search owns its loop", False),
        (P2(planner=True), "asks a planner", True),
        (LLaDA(block_length=4), "divisor of the 6 new tokens", False),
        (LooksAheadSecretly(), "without saying so", True),
    ],
)
def test_impossible_methods_are_refused_before_the_first_forward(guest, words, forwards, monkeypatch):
    if not forwards:
        monkeypatch.setattr(ExactDenoiser, "__call__", lambda self, view, needs: pytest.fail("a forward was run"))
    with pytest.raises((ConfigError, ContractError), match=words):
        branch(MODEL, plan(fixed_action(), guests={"guest": guest}), STARTS[:1], BatchSettings(rows=4))
