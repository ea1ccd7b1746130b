"""From stores with known truth to E1; from a real tiny study to the very numbers of the statistics."""

import numpy as np
import pytest

from tests.helpers import made_studies as made
from unmask.lab.analysis.opportunity import OpportunityFindings, measure
from unmask.stats import COVERAGES
from unmask.stats.measures import opportunity_measures, opportunity_states
from unmask.stats.protocol import choose_fixed


@pytest.fixture(scope="module")
def findings(tmp_path_factory) -> OpportunityFindings:
    return measure(made.store(tmp_path_factory.mktemp("e1") / "study", made.known()))


def cell(findings, task, axis, model="small"):
    (one,) = [c for c in findings.cells if (c.model, c.task, c.axis) == (model, task, axis)]
    return one


class TestKnownTruth:
    def test_fixed_action_comes_from_validation_alone(self, findings):
        """On the evaluation prompts of fill, block:8 is better everywhere: to choose there would give 0."""
        assert {(c.task, c.axis) for c in findings.cells} == set(made.TRUTH)
        for (task, axis), (fixed, base, delta) in made.TRUTH.items():
            one = cell(findings, task, axis)
            assert one.fixed_name == fixed
            assert one.base == pytest.approx(base)
            # All prompts are alike, so that no resample differs.
            assert [one.overall["delta"].value, one.overall["delta"].low, one.overall["delta"].high] == pytest.approx(
                [delta] * 3
            )

    def test_anatomy(self, findings):
        score = cell(findings, "fill", "score").overall
        assert score["frequency"].value == score["positive_rate"].value == pytest.approx(0.25)
        assert score["margin"].value == pytest.approx(0.5)
        assert cell(findings, "fill", "score").names(score.pair) == ("confidence", "margin")
        assert score["bidirectional"].value == pytest.approx(0.125)
        shares = {c: round(score["concentration", c].value, 9) for c in COVERAGES}
        assert shares == {0.05: 0.2, 0.1: 0.4, 0.2: 0.8, 0.5: 1.0, 1.0: 1.0}
        assert cell(findings, "fill", "commitment").names(None) is None

    def test_stages_are_quarters_of_the_masked_share(self, findings):
        """Only the last of four states gains."""
        parts = cell(findings, "fill", "score").stages
        assert {k: round(part["delta"].value, 9) for k, part in parts.items()} == {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.5}

    def test_tasks_count_the_same(self, tmp_path):
        tables = made.known()
        fewer = tables["small", "sort", "evaluation"]
        tables["small", "sort", "evaluation"] = {
            axis: {name: q[:4] for name, q in named.items()} for axis, named in fewer.items()
        }
        means = {m.axis: m for m in measure(made.store(tmp_path / "s", tables)).means}
        assert means["region"].overall["delta"].value == pytest.approx(0.35)
        assert means["region"].tasks == ("fill", "sort")

    def test_complete(self, findings):
        assert findings.complete
        assert findings.missing == findings.unjudged == ()
        assert findings.models == ("small",)
        assert all(c.partial == "" for c in findings.cells)

    def test_audit_without_noise(self, findings):
        audit = findings.audit
        assert (audit.states, audit.noisy) == (2 * 3 * 80, 0)
        assert sum(c.overall.same for c in findings.cells) == audit.states
        assert audit.naive == pytest.approx(audit.crossfitted)

    def test_few_positive_prompts_are_marked(self, findings):
        assert cell(findings, "fill", "score").overall.unreliable == ""
        assert "0 of 20 prompts" in cell(findings, "sort", "score").overall.unreliable

    def test_cost_adds_up(self, findings):
        (cost,) = findings.costs
        assert cost.seconds == pytest.approx(4 * 1.5)
        assert cost.forwards.total.naive == 4 * 3 * 50
        assert cost.forwards.trajectory == 4 * 7


def test_noise_is_cross_fitted_and_audited(tmp_path):
    """The challenger is lucky in the first two rollouts: naive 0.2, cross-fitted (0.4 - 0.5 + 0) / 2."""
    lucky = made.flat(0.4)
    lucky[:, :, :2] = 1.0
    tables = made.known()
    tables["small", "fill", "evaluation"]["score"] = {"confidence": lucky, "margin": made.flat(0.5)}
    findings = measure(made.store(tmp_path / "s", tables))
    overall = cell(findings, "fill", "score").overall
    assert overall["delta"].value == pytest.approx(-0.05)
    assert overall["naive"].value == pytest.approx(0.2)
    assert overall.bracket == pytest.approx((-0.05, 0.2))
    assert findings.audit.noisy == 80
    assert findings.audit.naive - findings.audit.crossfitted == pytest.approx(0.25 * 80 / 480)


class TestUnjudged:
    def test_is_counted_with_its_reason_and_left_out(self, tmp_path):
        tables = made.known()
        margin = tables["small", "fill", "evaluation"]["score"]["margin"].copy()
        margin[0, 3] = np.nan
        tables["small", "fill", "evaluation"]["score"]["margin"] = margin
        findings = measure(made.store(tmp_path / "s", tables))
        (lost,) = findings.unjudged
        assert (lost.task, lost.split, lost.axis, lost.reason, lost.branches) == (
            "fill",
            "evaluation",
            "score",
            "timed out",
            4,
        )
        overall = cell(findings, "fill", "score").overall
        assert (overall.states, overall.excluded) == (79, 1)
        assert overall["delta"].value == pytest.approx(19 * 0.5 / 79)

    def test_all_of_a_task(self, tmp_path):
        tables = made.known()
        for split in ("validation", "evaluation"):
            held = tables["small", "fill", split]
            held["score"] = {name: q * np.nan for name, q in held["score"].items()}
        tables["small", "fill", "evaluation"]["region"]["full"] *= np.nan
        findings = measure(made.store(tmp_path / "s", tables))
        why = {(m.task, m.axis): m.reason for m in findings.missing}
        assert set(why) == {("fill", "score"), ("fill", "region")}
        assert "no fixed action can be chosen" in why["fill", "score"]
        assert "judged answer of the fixed action" in why["fill", "region"]
        assert {m.axis: m.tasks for m in findings.means} == {
            "score": ("sort",),
            "region": ("sort",),
            "commitment": ("fill", "sort"),
        }

    def test_a_shape_bug_is_not_a_missing_row(self, tmp_path, monkeypatch):
        place = made.store(tmp_path / "s", made.known())
        monkeypatch.setattr("unmask.stats.protocol.mean_over_rollouts", lambda q_SAR: np.ones(2) + np.ones(3))
        with pytest.raises(ValueError, match="broadcast"):
            measure(place)


class TestOneRollout:
    def test_is_the_truth_where_nothing_is_drawn(self, tmp_path):
        findings = measure(made.store(tmp_path / "s", made.known(rollouts=1)))
        score = cell(findings, "fill", "score").overall
        assert score["delta"].value == pytest.approx(0.125)
        assert not score.crossfitted
        assert {(m.axis, m.task) for m in findings.missing} == {("commitment", "fill"), ("commitment", "sort")}
        assert all("cannot be cross-fitted" in m.reason for m in findings.missing)

    def test_is_not_enough_at_a_temperature(self, tmp_path):
        findings = measure(made.store(tmp_path / "s", made.known(rollouts=1), temperature=0.7))
        assert findings.cells == findings.means == ()
        assert len(findings.missing) == 6


def test_a_real_study_gives_the_numbers_of_the_statistics(tiny_study, tiny_run):
    study, place = tiny_study, tiny_run
    findings = measure(place)
    assert [(c.task, c.axis) for c in findings.cells] == [("csv-missing-cells", axis) for axis in study.axes]
    assert findings.hashes == place.content_hash()
    length = {row["prompt"]: row["fixed"].count(False) for row in place.read_arrow("states").to_pylist()}
    for one in findings.cells:
        tables = {role: place.utilities("tiny", one.task, role, one.axis) for role in study.splits}
        held_out = tables["evaluation"]
        share = held_out.masked_S / np.array([length[prompt] for prompt in held_out.prompt_S])
        fixed = choose_fixed(tables["validation"].utility_SAR, reference=0)
        states = {one.task: opportunity_states(held_out.utility_SAR, held_out.prompt_S, share, fixed, reference=0)}
        assert str(one.overall.estimates) == str(opportunity_measures(states, seed=3).estimates)
        assert list(one.stages) == np.unique(states[one.task].stage_S).tolist()
        for stage, part in one.stages.items():
            assert str(part.estimates) == str(opportunity_measures(states, stage=stage, seed=3).estimates)
