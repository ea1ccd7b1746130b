"""Branches against decoding by hand, the merging engine against the naive one, Q against enumeration."""

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
import torch

from tests.helpers.branch_frames import branches_of, readings_of, states_of, work_by_axis
from tests.helpers.cases import each_case
from tests.helpers.gpu import gpu
from unmask.adapt import needs_of
from unmask.api.load import load
from unmask.api.request import Request, start_trajectory
from unmask.axes import ReMDM
from unmask.base.errors import ConfigError, ContractError
from unmask.core import Noise, SamplingParams, row_key
from unmask.engine import decode
from unmask.lab.branching import REFERENCE_RUN, BatchSettings, BranchFrames, BranchPlan, branch, random_stream
from unmask.methods import WINO, Composed, CoRe, LLaDA, candidates, fixed_action, reference_of, with_remasking
from unmask.models import ExactDenoiser, JointDistribution

N, V, PROMPT = 8, 3, 2
MODEL = ExactDenoiser(JointDistribution.random(N, V, dependence=2.0, seed=0))
MASK = MODEL.mask_id
REFERENCE = fixed_action()
OPERATOR = ReMDM("conf")


def start(a: int, b: int, steps: int, length: int = N) -> Request:
    blanks = length - PROMPT
    given = (True,) * PROMPT + (False,) * blanks
    return Request(f"{a}{b}", (a, b) + (MASK,) * blanks, given, steps, (PROMPT, length))


STARTS = [start(a, b, steps=N - PROMPT - a if b else 3, length=N - a) for a, b in ((0, 0), (0, 1), (2, 1))]


def small(reference, *, commitment=True):
    """Candidates around any reference."""
    sets = {
        "score": {"ref": reference, **{n: Composed(reference, score=n) for n in ("confidence", "margin", "uniform")}},
        "region": {"ref": reference, "block:2": Composed(reference, region="block:2")},
        "cardinality": {"ref": reference, "count:1": Composed(reference, cardinality="count:1")},
    }
    if commitment:
        sets["commitment"] = {"ref": reference, "none": with_remasking(Composed(reference, commitment="none"))}
    return sets


def plan(reference=REFERENCE, sets=None, temperature=0.0, rollouts=3, states=4, operator=OPERATOR, **options):
    return BranchPlan(
        reference, sets or candidates(), operator, rollouts, states, seed=0, temperature=temperature, **options
    )


class FirstStep(NamedTuple):
    """Part of `Branch`."""

    revealed: tuple[int, ...]
    tokens: tuple[int, ...]
    remasked: tuple[int, ...]
    committed: tuple[int, ...]


class Branch(NamedTuple):
    """The form of a branch in which digests were frozen."""

    prompt: str
    state: int
    step: int
    masked: int
    axis: str
    candidate: str
    rollout: int
    answer: tuple[int, ...]
    first: FirstStep
    diagnostic: str
    extra_forwards: int
    extra_tokens: int


def digest(frames: BranchFrames) -> str:
    branches = [
        Branch(
            *(b.prompt, b.state, b.step, b.masked, b.axis, b.candidate, b.rollout, b.answer),
            FirstStep(b.revealed, b.revealed_tokens, b.remasked, b.newly_committed),
            *(b.diagnostic, b.extra_forwards, b.extra_tokens),
        )
        for b in branches_of(frames)
    ]
    return hashlib.sha256(repr(sorted(branches)).encode()).hexdigest()


DREAM = candidates("dream")
HISTORY = fixed_action(score="stability")
STABLE_REVISED = with_remasking(fixed_action(commitment="none"), ReMDM("cap", eta=0.3))
REGIMES = {
    "greedy": plan(),
    "drawn tokens": plan(temperature=0.7),
    "dream": plan(reference_of(DREAM), DREAM),
    "much revision": plan(operator=ReMDM("rescale", eta=0.9)),
    "drawn tokens, much revision": plan(operator=ReMDM("rescale", eta=0.9), temperature=0.7),
    "history": plan(HISTORY, small(HISTORY)),
    "history, drawn tokens": plan(HISTORY, small(HISTORY), temperature=0.7),
    "random order": plan(LLaDA(remasking="random"), small(LLaDA(remasking="random"))),
    "a reference that revises": plan(STABLE_REVISED, small(STABLE_REVISED, commitment=False)),
    "one rollout": plan(rollouts=1),
}


@cache
def merged_frames(regime: str) -> BranchFrames:
    """The branches of a regime, equal work done once; several tests compare with them."""
    return branch(MODEL, REGIMES[regime], STARTS, BatchSettings(rows=16))


class TestMergingChangesNothing:
    @each_case("regime", REGIMES)
    def test_same_tables_and_every_forward_accounted_for(self, regime):
        merged = merged_frames(regime)
        naive = branch(MODEL, REGIMES[regime], STARTS, BatchSettings(rows=16, merge=False))
        assert branches_of(merged) == branches_of(naive)
        assert readings_of(merged) == readings_of(naive)
        ours, each = work_by_axis(merged), work_by_axis(naive)
        axes = list(REGIMES[regime].candidates)
        assert ours.loc[axes, "naive"].tolist() == each.loc[axes, "done"].tolist()
        assert ours.loc[axes, "branches"].tolist() == each.loc[axes, "branches"].tolist()
        assert ours.to_numpy().min() >= 0
        assert each["saved"].sum() == 0
        assert (ours.loc[axes, "done"] < each.loc[axes, "done"]).all()
        assert ours.loc[REFERENCE_RUN, "done"] == each.loc[REFERENCE_RUN, "done"]

    def test_on_a_network(self, scaled, tmp_path):
        model = load(str(scaled.llada(tmp_path / "llada", layers=2)), dtype="fp32", device="cpu")
        starts = network_starts(model, 2)
        for temperature in (0.0, 1.0):
            chosen = plan(states=2, rollouts=2, temperature=temperature)
            merged = branch(model.denoiser, chosen, starts, BatchSettings(rows=8))
            naive = branch(model.denoiser, chosen, starts, BatchSettings(rows=8, merge=False))
            assert digest(merged) == digest(naive)


def network_starts(model, count: int, steps: int = 4, horizon: int = 8) -> list[Request]:
    mask = model.denoiser.vocabulary.mask_id
    made = []
    for i in range(count):
        prompt = tuple(range(3 + i, 20 + 7 * i))
        given = (True,) * len(prompt) + (False,) * horizon
        ends = (len(prompt), len(prompt) + horizon)
        made.append(Request(f"p{i}", prompt + (mask,) * horizon, given, steps, ends))
    return made


BEFORE = {"greedy": "77b5e97b123394ec", "drawn tokens": "c40f6300f3d8c99f", "history": "0d30d7e65cdc7978"}
"""Digests by an earlier engine that ran one shard at a time and read the flags of every step at once."""


@pytest.mark.parametrize("regime", BEFORE)
def test_branches_are_those_of_the_engine_before(regime):
    assert digest(merged_frames(regime))[:16] == BEFORE[regime]


def branch_together(model, chosen, blocks, settings):
    """Several groups of prompts in one call, and each one's part of the frames."""
    requests = [request for block in blocks for request in block]
    return branch(model, chosen, requests, settings).split([len(block) for block in blocks])


class TestTogether:
    """Blocks of prompts that share forwards."""

    def blocks(self):
        """Prompts of one id in two of them, and two buckets in one."""
        longer = replace(start(1, 1, 3), id="longer", canvas=(1, 1) + (MASK,) * 6)
        return [STARTS[:1], [replace(STARTS[1], id=STARTS[0].id), STARTS[2]], [longer]]

    @pytest.mark.parametrize("regime", ["greedy", "drawn tokens, much revision", "history"])
    @pytest.mark.parametrize("merge", [True, False])
    def test_each_has_what_it_has_alone(self, regime, merge):
        settings = BatchSettings(rows=8, merge=merge)
        together = branch_together(MODEL, REGIMES[regime], self.blocks(), settings)
        for one, requests in zip(together, self.blocks(), strict=True):
            alone = branch(MODEL, REGIMES[regime], requests, settings)
            assert branches_of(one) == branches_of(alone)
            assert one.states.equals(alone.states)
            ours, theirs = work_by_axis(one), work_by_axis(alone)
            assert ours["naive"].equals(theirs["naive"])


class TestSchedulingChangesNothing:
    @each_case("regime", ["greedy", "drawn tokens", "drawn tokens, much revision", "history"])
    @each_case(
        "settings",
        [BatchSettings(rows=1), BatchSettings(rows=5, live=7, waiting=1), BatchSettings(rows=64, bucket=64)],
    )
    def test_rows_bucket_and_waiting(self, regime, settings):
        assert digest(branch(MODEL, REGIMES[regime], STARTS, settings)) == digest(merged_frames(regime))

    def test_order_and_company(self):
        whole = branches_of(merged_frames("drawn tokens"))
        turned = branches_of(branch(MODEL, REGIMES["drawn tokens"], STARTS[::-1], BatchSettings(rows=16)))
        assert sorted(whole) == sorted(turned)
        alone = branches_of(branch(MODEL, REGIMES["drawn tokens"], STARTS[2:3], BatchSettings(rows=16)))
        assert alone == [b for b in whole if b.prompt == STARTS[2].id]

    def test_rows_of_a_network_do_not_notice_their_company(self, scaled, tmp_path):
        model = load(str(scaled.llada(tmp_path / "llada", layers=2)), dtype="fp32", device="cpu")
        starts = network_starts(model, 3)
        chosen = plan(states=2, rollouts=2, temperature=1.0)
        whole = branch(model.denoiser, chosen, starts, BatchSettings(rows=8))
        for one in starts:
            alone = branches_of(branch(model.denoiser, chosen, [one], BatchSettings(rows=8)))
            assert alone == [b for b in branches_of(whole) if b.prompt == one.id]
        # In float32 another shape moves the last bits of logits, but hardly ever an answer.
        other = branch(model.denoiser, chosen, starts, BatchSettings(rows=24)).branches
        assert (whole.branches["answer"] == other["answer"]).mean() > 0.98


@dataclass(frozen=True)
class Once(Composed):
    """A candidate's action at one step, the reference's at all others; written without the engine."""

    name: ClassVar[str] = "once"
    past_steps = 1
    at: int = 0
    candidate: object = REFERENCE
    after: object = REFERENCE

    @property
    def random(self):
        return self.candidate.random or self.after.random

    @property
    def needs(self):
        return needs_of([self.candidate, self.after])

    def done(self, traj):
        early = traj.state.step_B <= self.at
        return torch.where(early, REFERENCE.done(traj), self.after.done(traj))

    def act(self, traj, look_ahead):
        policy = self.candidate if int(traj.state.step_B[0]) == self.at else self.after
        return policy.act(traj, look_ahead)


def end_of(model, policy, request):
    """The answer of a plain decode."""
    end = decode(model, policy, start_trajectory(model, [request], 0))
    return tuple(end.state.tokens_BL[0, slice(*request.answer)].tolist())


class TestAgainstDecode:
    @pytest.mark.parametrize("temperature", [0.0, 0.7])
    def test_every_branch_is_a_run_of_its_own(self, temperature):
        """A plain decode that deviates once, with the rollout's random numbers, gives the branch's answer."""
        chosen = plan(temperature=temperature, operator=ReMDM("rescale", eta=0.9), rollouts=2)
        block = branch(MODEL, chosen, STARTS, BatchSettings(rows=16))
        starts = {one.id: one for one in STARTS}
        states = states_of(block)
        for b in branches_of(block)[:: 7 if temperature else 3]:
            one = starts[b.prompt]
            after = REFERENCE if b.axis != "commitment" else with_remasking(REFERENCE, chosen.operator)
            policy = Once(at=b.step, candidate=candidates()[b.axis][b.candidate], after=after)
            begin = states[b.prompt, b.state]
            noise = Noise.of([row_key(0, one.key, random_stream(b.step, b.rollout))])
            end = decode(MODEL, policy, begin, noise=noise, sampling=SamplingParams(temperature=temperature))
            assert tuple(end.state.tokens_BL[0, slice(*one.answer)].tolist()) == b.answer

    def test_the_reference_continues_its_own_run(self):
        block = branch(MODEL, plan(), STARTS, BatchSettings(rows=16))
        ends = {one.id: end_of(MODEL, REFERENCE, one) for one in STARTS}
        references = [b for b in branches_of(block) if next(iter(candidates()[b.axis])) == b.candidate]
        assert references
        assert all(b.answer == ends[b.prompt] for b in references)

    def test_candidates_share_random_numbers(self):
        """At temperature 1 the reference is the same branch on every axis, rollout by rollout, but rollouts differ."""
        block = branch(MODEL, plan(temperature=1.5, rollouts=6), STARTS, BatchSettings(rows=16))
        by_axis = {}
        for b in branches_of(block):
            if next(iter(candidates()[b.axis])) == b.candidate:
                by_axis.setdefault((b.prompt, b.state, b.rollout), set()).add(b.answer)
        assert all(len(answers) == 1 for answers in by_axis.values())
        first = {r: answers for (p, s, r), answers in by_axis.items() if (p, s) == (STARTS[1].id, 0)}
        assert len(set(map(frozenset, first.values()))) > 1


# Q by enumeration, on a smaller joint: every draw of every step, with its probability.

TINY = ExactDenoiser(JointDistribution.random(5, 2, dependence=2.0, seed=3))
TINY_START = Request("tiny", (1, 2, 2, 2, 2), (True, False, False, False, False), 2, (1, 5))


def utility(answer) -> float:
    """P(answer | prompt) over that of the likeliest."""
    p = TINY.joint.p[1]
    return float(p[tuple(answer)] / p.max())


def enumerate_q(canvas, choose, steps_left, temperature) -> float:
    """Expected utility: `choose` says what to reveal first, then the surest come."""
    masked = [i for i, token in enumerate(canvas) if token == 2]
    if not masked:
        return utility(canvas[1:])
    seen = {i: t for i, t in enumerate(canvas) if t != 2}
    p = {i: TINY.joint.marginals(seen)[i] for i in masked}
    drawn = {i: p[i] ** (1 / temperature) / (p[i] ** (1 / temperature)).sum() for i in masked}
    total = 0.0
    for tokens in product(range(2), repeat=len(masked)):
        weight = math.prod(drawn[i][t] for i, t in zip(masked, tokens, strict=True))
        proposal = dict(zip(masked, tokens, strict=True))
        confidence = {i: p[i][t] for i, t in proposal.items()}
        chosen = choose(masked, confidence, steps_left)
        after = [proposal[i] if i in chosen else token for i, token in enumerate(canvas)]
        total += weight * enumerate_q(after, surest, steps_left - 1, temperature)
    return total


def surest(masked, confidence, steps_left):
    k = -(-len(masked) // max(steps_left, 1))
    return sorted(masked, key=lambda i: (-confidence[i], i))[:k]


def leftmost_two(masked, confidence, steps_left):
    return sorted(masked)[:2]


def surest_one(masked, confidence, steps_left):
    return surest(masked, confidence, len(masked))


class TestUtilities:
    SETS: ClassVar = {
        "region": {"full": REFERENCE, "block:2": fixed_action(region="block:2")},
        "cardinality": {
            "schedule": REFERENCE,
            **{name: fixed_action(cardinality=name) for name in ("count:1", "count:1:below", "count:2")},
        },
    }
    RULES: ClassVar = {
        "full": surest,
        "block:2": leftmost_two,
        "schedule": surest,
        # k_min is 2 at the first of two steps: one is too few.
        "count:1": surest,
        "count:1:below": surest_one,
        "count:2": surest,
    }

    def test_greedy_q_is_exact(self):
        """At temperature 0 by a loop over arg-maxes."""
        block = branch(TINY, plan(sets=self.SETS, rollouts=2, states=1), [TINY_START], BatchSettings(rows=4))
        for b in branches_of(block):
            canvas, left, choose = list(TINY_START.canvas), 2, self.RULES[b.candidate]
            while 2 in canvas:
                masked = [i for i, t in enumerate(canvas) if t == 2]
                p = TINY.joint.marginals({i: t for i, t in enumerate(canvas) if t != 2})
                confidence = {i: p[i].max() for i in masked}
                for i in choose(masked, confidence, left):
                    canvas[i] = int(p[i].argmax())
                choose, left = surest, left - 1
            assert utility(b.answer) == utility(canvas[1:])

    @pytest.mark.slow
    def test_drawn_q_converges_to_the_expectation(self):
        rollouts = 1000
        chosen = plan(sets=self.SETS, rollouts=rollouts, states=1, temperature=1.0)
        block = branch(TINY, chosen, [TINY_START], BatchSettings(rows=64, waiting=100_000))
        for name, rule in self.RULES.items():
            utilities = [utility(b.answer) for b in branches_of(block) if b.candidate == name]
            assert len(utilities) == rollouts
            expected = enumerate_q(list(TINY_START.canvas), rule, 2, 1.0)
            # Utilities lie in [0, 1]: five standard errors are at most 0.08.
            assert abs(np.mean(utilities) - expected) < 5 * np.std(utilities) / math.sqrt(rollouts), name


@dataclass(frozen=True)
class DrawsSecretly(Composed):
    def act(self, traj, look_ahead):
        traj.uniform("order")
        return super().act(traj, look_ahead)


@dataclass(frozen=True)
class Fickle(Composed):
    """Commits while an even number of positions is masked, as there always is if it reveals two at a time."""

    def act(self, traj, look_ahead):
        action = super().act(traj, look_ahead)
        even_B = traj.state.masked_BL.sum(-1) % 2 == 0
        return replace(action, commit_BL=action.commit_BL & even_B[:, None])


CORE = CoRe(revise_every=1, tail=0, window=(0.0, 1.0))
FICKLE_SETS = {
    "cardinality": {"ref": Fickle(), "count:1:below": Composed(Fickle(), cardinality="count:1:below")},
    "commitment": {"ref": Fickle()},
}


@each_case(
    ("reference", "sets", "requests", "words"),
    [
        (CORE, {"score": {"ref": CORE}}, STARTS[1:2], "look ahead"),
        (REFERENCE, {"score": {"ref": REFERENCE, "core": CORE}}, STARTS[1:2], "look ahead"),
        (REFERENCE, {"score": {"ref": REFERENCE, "wino": WINO(block_length=2)}}, STARTS[:1], "cannot be branched"),
        (REFERENCE, {"score": {"ref": REFERENCE, "sly": DrawsSecretly()}}, STARTS[:1], "without saying so"),
        (Fickle(), FICKLE_SETS, STARTS[:1], "left a position revisable after a branch.*study commitment around"),
        (REFERENCE, None, [], "one or more"),
    ],
)
def test_what_cannot_be_branched_is_refused(reference, sets, requests, words):
    with pytest.raises((ConfigError, ContractError), match=words):
        branch(MODEL, plan(reference, sets), requests, BatchSettings(rows=4))


class TestOnAGpu:
    """`mini` in bf16 with the default engine: recorded graphs and kernels."""

    @pytest.fixture(scope="class")
    def mini(self):
        return load("mini", device="cuda", dtype="bf16")

    def blocks(self, mini):
        starts = network_starts(mini, 4, steps=6, horizon=12)
        return [starts[:1], starts[1:3], starts[3:]]

    @gpu
    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_merged_naive_together_and_alone_are_the_same(self, mini, temperature):
        chosen = plan(states=3, rollouts=2, temperature=temperature)
        settings = BatchSettings(rows=16, live=32)
        together = branch_together(mini.denoiser, chosen, self.blocks(mini), settings)
        for one, requests in zip(together, self.blocks(mini), strict=True):
            assert branches_of(one) == branches_of(branch(mini.denoiser, chosen, requests, settings))
            naive = branch(mini.denoiser, chosen, requests, replace(settings, merge=False))
            assert branches_of(one) == branches_of(naive)

    @gpu
    def test_the_steady_state_records_nothing(self, mini):
        """A second run of the same shapes replays what the first has recorded."""
        chosen = plan(states=2, rollouts=1)
        settings = BatchSettings(rows=16, live=32)
        branch_together(mini.denoiser, chosen, self.blocks(mini), settings)
        graphs = mini.denoiser.forward
        kept = dict(graphs.kept)
        assert kept
        branch_together(mini.denoiser, chosen, self.blocks(mini), settings)
        assert graphs.kept == kept
        assert not any(graphs._seen.values())
