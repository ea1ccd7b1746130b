"""Diagnostics inside a study: what they say at its states, what their proposals are worth there, what is near them."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.helpers.branch_frames import branches_of, readings_of, work_by_axis
from unmask.adapt.diagnostics import DIAGNOSTICS, RegionDiagnostic, ScoreDiagnostic
from unmask.api.request import Request
from unmask.axes import ReMDM
from unmask.lab.branching import PROPOSAL, SUMMARY, BatchSettings, BranchPlan, branch
from unmask.lab.study import StudyConfig
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
    sets = StudyConfig.parse(TABLE | {"axes": list(AXES)}).candidate_sets(reference)
    chosen = {axis: DIAGNOSTICS[axis] for axis in axes}
    asked = {"operator": ReMDM("conf"), "rollouts": 2, "states": 5, "seed": 0, "diagnostics": chosen} | options
    return BranchPlan(reference=next(iter(sets["score"].values())), candidates=sets, **asked)


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
    return branch(MODEL, plan(), STARTS, BatchSettings(rows=16))


class TestProposals:
    def test_candidates_do_not_notice(self, block):
        without = branch(MODEL, plan(axes=()), STARTS, BatchSettings(rows=16))
        assert [b for b in branches_of(block) if b.candidate != PROPOSAL] == branches_of(without)
        assert without.readings.empty

    def test_where_nothing_is_known_it_abstains_and_the_reference_is_branched(self, block):
        abstained = {(r.prompt, r.state, r.axis) for r in block.readings.itertuples() if r.abstained}
        assert {(s.id, 0, axis) for s in STARTS for axis in AXES} <= abstained
        assert all(math.isnan(r.signal) == r.abstained for r in block.readings.itertuples())
        assert len(abstained) < len(block.readings)
        references = {axis: next(iter(named)) for axis, named in plan().candidates.items()}
        answers = {(b.prompt, b.state, b.axis, b.candidate, b.rollout): b.answer for b in branches_of(block)}
        for (prompt, state, axis, candidate, rollout), answer in answers.items():
            if candidate == PROPOSAL and (prompt, state, axis) in abstained:
                assert answer == answers[prompt, state, axis, references[axis], rollout]

    def test_the_same_next_state_has_the_same_future(self, block):
        answers = {}
        for b in branches_of(block):
            answers.setdefault((b.prompt, b.state, b.axis, b.candidate), []).append(b.answer)
        compared = 0
        for r in block.readings.itertuples():
            for name in r.same:
                assert answers[r.prompt, r.state, r.axis, name] == answers[r.prompt, r.state, r.axis, PROPOSAL]
                compared += 1
            other = set(plan().candidates[r.axis]) - set(r.same)
            compared += len(other) == 0
        assert compared > 20
        assert block.readings["same"].map(len).min() < 3


class TestSummaries:
    def test_they_are_kept_where_asked_for_and_nothing_else_changes(self, block):
        asked = branch(MODEL, plan(summaries=True), STARTS, BatchSettings(rows=16))
        assert branches_of(asked) == branches_of(block)
        summaries = asked.readings[list(SUMMARY)]
        assert not set(SUMMARY) & set(block.readings)
        assert readings_of(asked._replace(readings=asked.readings.drop(columns=list(SUMMARY)))) == readings_of(block)
        by_state = summaries.groupby([asked.readings["prompt"], asked.readings["state"]])
        assert (by_state.nunique() == 1).all(axis=None)
        assert len(by_state.first().drop_duplicates()) > len(by_state) / 2


@dataclass(frozen=True)
class NarrowRegion(RegionDiagnostic):
    """Another diagnostic of the region axis."""

    name: ClassVar[str] = "narrow region"
    budget: float = 0.25


def proposals_of(block, name):
    """Readings of one diagnostic, and the branches of its proposals."""
    return (
        readings_of(block._replace(readings=block.readings[block.readings["diagnostic"] == name])),
        [one for one in branches_of(block) if one.diagnostic == name],
    )


TWO = {one.name: one for one in (NarrowRegion(), ScoreDiagnostic(), RegionDiagnostic())}
"""Two of the region axis, and one of another between them."""


@pytest.fixture(scope="module")
def both():
    return branch(MODEL, plan(diagnostics=TWO), STARTS, BatchSettings(rows=16))


class TestSeveralOfOneAxis:
    @pytest.mark.parametrize("temperature", [0.0, 0.8])
    def test_merging_changes_nothing(self, temperature):
        chosen = plan(diagnostics=TWO, temperature=temperature)
        merged, naive = (branch(MODEL, chosen, STARTS, BatchSettings(rows=16, merge=merge)) for merge in (True, False))
        assert branches_of(merged) == branches_of(naive)
        assert readings_of(merged) == readings_of(naive)
        ours, each = work_by_axis(merged).loc[list(AXES)], work_by_axis(naive).loc[list(AXES)]
        assert ours["naive"].tolist() == each["done"].tolist()
        assert ours["branches"].tolist() == each["branches"].tolist()

    def test_each_is_read_and_branched_at_every_state(self, both):
        points = list(dict.fromkeys((b.prompt, b.state) for b in branches_of(both)))
        named = [("score", "score"), ("region", "narrow region"), ("region", "region")]
        assert [(r.prompt, r.state, r.axis, r.diagnostic) for r in both.readings.itertuples()] == [
            (*point, *one) for point in points for one in named
        ]
        proposed = [b for b in branches_of(both) if b.candidate == PROPOSAL]
        assert [(b.prompt, b.state, b.axis, b.diagnostic, b.rollout) for b in proposed] == [
            (*point, *one, rollout) for point in points for one in named for rollout in range(2)
        ]
        assert all(b.diagnostic == "" for b in branches_of(both) if b.candidate != PROPOSAL)

    @pytest.mark.parametrize("name", TWO)
    def test_as_if_it_were_alone(self, both, name):
        alone = branch(MODEL, plan(diagnostics={name: TWO[name]}), STARTS, BatchSettings(rows=16))
        assert proposals_of(both, name) == proposals_of(alone, name)
