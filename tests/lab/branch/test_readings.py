"""Diagnostics inside a study: what they say at its states, what their proposals are worth there, what is near them."""

import json
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from unmask.adapt.diagnostics import DIAGNOSTICS, RegionDiagnostic, ScoreDiagnostic
from unmask.api.load import load
from unmask.api.request import Request
from unmask.axes import ReMDM
from unmask.base.errors import ConfigError
from unmask.lab.branch import PROPOSAL, EngineSettings, Plan, run
from unmask.lab.study import Study
from unmask.models import ExactDenoiser, JointDistribution

N, V, PROMPT = 9, 3, 2
MODEL = ExactDenoiser(JointDistribution.random(N, V, dependence=2.5, seed=4))
AXES = ("score", "region", "cardinality", "commitment")


def start(a, b):
    blanks = N - PROMPT
    return Request(
        f"{a}{b}",
        (a, b) + (MODEL.mask_id,) * blanks,
        (True,) * PROMPT + (False,) * blanks,
        steps=5,
        answer=(PROMPT, N),
    )


STARTS = [start(0, 0), start(1, 2), start(2, 1)]


def plan(axes=AXES, reference="llada", **options):
    sets = Study.parse(TABLE | {"axes": list(AXES)}).sets(reference)
    chosen = {axis: DIAGNOSTICS[axis] for axis in axes}
    asked = {"operator": ReMDM("conf"), "rollouts": 2, "states": 5, "seed": 0, "diagnostics": chosen} | options
    return Plan(reference=next(iter(sets["score"].values())), candidates=sets, **asked)


TABLE = {
    "name": "proposals",
    "seed": 0,
    "tasks": ["csv-missing-cells"],
    "axes": ["score"],
    "states": 3,
    "rollouts": 2,
    "temperature": 0.0,
    "models": [{"model": "mini", "reference": "llada"}],
    "splits": {"validation": 2, "evaluation": 2},
    "steps": {"share": 0.5},
    "revision": {"variant": "conf"},
    "engine": {"rows": 4},
}


@pytest.fixture(scope="module")
def block():
    return run(MODEL, plan(), STARTS, EngineSettings(rows=16))


class TestProposals:
    @pytest.mark.parametrize("temperature", [0.0, 0.8])
    def test_merging_changes_nothing(self, temperature):
        chosen = plan(temperature=temperature)
        merged, naive = (run(MODEL, chosen, STARTS, EngineSettings(rows=16, merge=merge)) for merge in (True, False))
        assert merged.branches == naive.branches
        assert repr(merged.readings) == repr(naive.readings)
        assert merged.report.total.done < naive.report.total.done

    def test_on_a_network(self, scaled, tmp_path):
        model = load(str(scaled.dream(tmp_path / "dream", layers=2)), dtype="fp32", device="cpu")
        mask = model.denoiser.vocabulary.mask_id
        starts = [Request(f"p{i}", (5, 6 + i) + (mask,) * 8, (True,) * 2 + (False,) * 8, 4, (2, 10)) for i in range(2)]
        chosen = plan(states=3, reference="dream")
        merged, naive = (
            run(model.denoiser, chosen, starts, EngineSettings(rows=8, merge=merge)) for merge in (True, False)
        )
        assert merged.branches == naive.branches
        assert repr(merged.readings) == repr(naive.readings)
        assert not all(reading.abstained for reading in merged.readings)

    def test_candidates_do_not_notice(self, block):
        without = run(MODEL, plan(axes=()), STARTS, EngineSettings(rows=16))
        assert tuple(b for b in block.branches if b.candidate != PROPOSAL) == without.branches
        assert without.readings == ()

    def test_one_reading_per_state_and_axis(self, block):
        states = {(b.prompt, b.state) for b in block.branches}
        assert [(r.prompt, r.state, r.axis) for r in block.readings] == [
            (start.id, state, axis)
            for start in STARTS
            for state in sorted(s for p, s in states if p == start.id)
            for axis in AXES
        ]

    def test_where_nothing_is_known_it_abstains_and_the_reference_is_branched(self, block):
        abstained = {(r.prompt, r.state, r.axis) for r in block.readings if r.abstained}
        assert {(s.id, 0, axis) for s in STARTS for axis in AXES} <= abstained
        assert all(math.isnan(r.signal) == r.abstained for r in block.readings)
        assert len(abstained) < len(block.readings)
        references = {axis: next(iter(named)) for axis, named in plan().candidates.items()}
        answers = {(b.prompt, b.state, b.axis, b.candidate, b.rollout): b.answer for b in block.branches}
        for (prompt, state, axis, candidate, rollout), answer in answers.items():
            if candidate == PROPOSAL and (prompt, state, axis) in abstained:
                assert answer == answers[prompt, state, axis, references[axis], rollout]

    def test_the_same_next_state_has_the_same_future(self, block):
        answers = {}
        for b in block.branches:
            answers.setdefault((b.prompt, b.state, b.axis, b.candidate), []).append(b.answer)
        compared = 0
        for r in block.readings:
            for name in r.same:
                assert answers[r.prompt, r.state, r.axis, name] == answers[r.prompt, r.state, r.axis, PROPOSAL]
                compared += 1
            other = set(plan().candidates[r.axis]) - set(r.same)
            compared += len(other) == 0
        assert compared > 20
        assert any(not r.same for r in block.readings) or any(len(r.same) < 3 for r in block.readings)

    def test_company_does_not_matter(self, block):
        alone = run(MODEL, plan(), STARTS[1:2], EngineSettings(rows=16))
        assert repr(alone.readings) == repr(tuple(r for r in block.readings if r.prompt == STARTS[1].id))

    def test_ingredients_are_kept(self, block):
        ingredients = [json.loads(r.ingredients) for r in block.readings if r.axis == "score" and not r.abstained]
        assert ingredients
        assert all({"mu_BJ", "sigma_BJJ", "alpha_BJ"} <= set(parts) for parts in ingredients)

    def test_an_axis_without_candidates(self):
        sets = {"score": plan().candidates["score"]}
        with pytest.raises(ConfigError, match="axis of a diagnostic is 'region'"):
            replace(plan(), candidates=sets)


class TestSummaries:
    def test_they_are_kept_where_asked_for_and_nothing_else_changes(self, block):
        asked = run(MODEL, plan(summaries=True), STARTS, EngineSettings(rows=16))
        assert asked.branches == block.branches
        assert all(reading.summary is None for reading in block.readings)
        assert repr([reading._replace(summary=None) for reading in asked.readings]) == repr(list(block.readings))
        of_state = {}
        for reading in asked.readings:
            of_state.setdefault((reading.prompt, reading.state), set()).add(reading.summary)
        assert all(len(told) == 1 and None not in told for told in of_state.values())
        assert len({told.pop() for told in of_state.values()}) > len(of_state) / 2

    def test_merging_changes_nothing(self):
        chosen = plan(summaries=True, temperature=0.8)
        merged, naive = (run(MODEL, chosen, STARTS, EngineSettings(rows=16, merge=merge)) for merge in (True, False))
        assert repr(merged.readings) == repr(naive.readings)


@dataclass(frozen=True)
class NarrowRegion(RegionDiagnostic):
    """Another diagnostic of the region axis."""

    name: ClassVar[str] = "narrow region"
    budget: float = 0.25


def proposals_of(block, name):
    """Readings of one diagnostic, and the branches of its proposals."""
    return (
        repr([reading for reading in block.readings if reading.diagnostic == name]),
        [branch for branch in block.branches if branch.diagnostic == name],
    )


TWO = {one.name: one for one in (NarrowRegion(), ScoreDiagnostic(), RegionDiagnostic())}
"""Two of the region axis, and one of another between them."""


@pytest.fixture(scope="module")
def both():
    return run(MODEL, plan(diagnostics=TWO), STARTS, EngineSettings(rows=16))


class TestSeveralOfOneAxis:
    @pytest.mark.parametrize("temperature", [0.0, 0.8])
    def test_merging_changes_nothing(self, temperature):
        chosen = plan(diagnostics=TWO, temperature=temperature)
        merged, naive = (run(MODEL, chosen, STARTS, EngineSettings(rows=16, merge=merge)) for merge in (True, False))
        assert merged.branches == naive.branches
        assert repr(merged.readings) == repr(naive.readings)
        for axis, cost in merged.report.axes.items():
            assert cost.naive == naive.report.axes[axis].done
            assert cost.branches == naive.report.axes[axis].branches

    def test_each_is_read_and_branched_at_every_state(self, both):
        points = list(dict.fromkeys((b.prompt, b.state) for b in both.branches))
        named = [("score", "score"), ("region", "narrow region"), ("region", "region")]
        assert [(r.prompt, r.state, r.axis, r.diagnostic) for r in both.readings] == [
            (*point, *one) for point in points for one in named
        ]
        proposed = [b for b in both.branches if b.candidate == PROPOSAL]
        assert [(b.prompt, b.state, b.axis, b.diagnostic, b.rollout) for b in proposed] == [
            (*point, *one, rollout) for point in points for one in named for rollout in range(2)
        ]
        assert all(b.diagnostic == "" for b in both.branches if b.candidate != PROPOSAL)

    @pytest.mark.parametrize("name", TWO)
    def test_as_if_it_were_alone(self, both, name):
        alone = run(MODEL, plan(diagnostics={name: TWO[name]}), STARTS, EngineSettings(rows=16))
        assert proposals_of(both, name) == proposals_of(alone, name)

    def test_they_say_different_things(self, both):
        by_name = {name: [r for r in both.readings if r.diagnostic == name] for name in TWO}
        pairs = list(zip(by_name["narrow region"], by_name["region"], strict=True))
        assert any(narrow.snapped != wide.snapped or narrow.same != wide.same for narrow, wide in pairs)
