"""What a study will take, beside what it took."""

import csv
from dataclasses import replace

import pytest

from tests.helpers.paths import RESULTS, STUDIES
from tests.helpers.tiny_studies import by_hash, table
from unmask.api.request import text_side
from unmask.lab.run import judging
from unmask.lab.run.driver import run_study
from unmask.lab.run.estimate import MERGED, ForwardTimer, decodes_of, estimate
from unmask.lab.run.jobs import prompts_of
from unmask.lab.store import Store
from unmask.lab.study import Study


def planned(study, loaded):
    (spec,), model = study.models, loaded(study.models[0])
    (row,) = estimate(study, spec, prompts_of(study)[0], text=text_side(model), timer=ForwardTimer(model, study))
    return row


@pytest.fixture(name="study")
def _study(tiny_folder):
    return Study.parse(table(models__0__model=str(tiny_folder), end_to_end=True))


class TestEndToEnd:
    def test_is_part_of_the_plan(self, study, tiny_study, tiny_load):
        whole, branches = planned(study, tiny_load), planned(tiny_study, tiny_load)
        assert (branches.end_to_end, branches.end_to_end_most) == (0, 0)
        assert (whole.expected, whole.naive) == (branches.expected, branches.naive)
        # Candidates on 3 validation prompts, the reference once; 2 evaluation prompts; 4 steps.
        assert whole.end_to_end_most == 4 * (3 * (1 + 2 + 3) + 2 * (1 + 2 * 9 + 2))
        assert 0 < whole.end_to_end < whole.end_to_end_most
        assert whole.seconds > 0

    def test_a_dream_type_reference_has_no_joint_arm_of_one_axis(self, study):
        both = replace(study, candidates={})
        llada, dream = (decodes_of(both, reference, most=True).evaluation for reference in ("llada", "dream"))
        assert llada - dream == 2

    def test_further_gates_are_counted(self, study):
        more = replace(study, gates=("mean", "lift-together"))
        for most in (False, True):
            one, other = (decodes_of(s, "llada", most=most) for s in (study, more))
            assert other.validation == one.validation
            assert other.evaluation > one.evaluation
        assert other.evaluation - one.evaluation == len(study.diagnostics) * 2 * 2

    def test_is_what_a_run_takes_about(self, study, tiny_load, tmp_path, monkeypatch):
        """A network with random weights, whose branches seldom agree and whose utilities are made."""
        monkeypatch.setattr(judging, "scores", by_hash)
        store = Store.create(tmp_path / "out", study.config)
        assert run_study(study, store, tiny_load).complete
        (unit,) = list(store.infos("decodes").values())
        row = planned(study, tiny_load)
        assert row.end_to_end / 2 < unit["forwards"] <= row.end_to_end_most
        done = sum(info["forwards"]["done"] + info["forwards"]["trajectory"] for info in list(store.infos().values()))
        assert row.expected / 2 < done < 3 * row.expected


def test_proposals_of_diagnostics_are_counted(tiny_folder, tiny_load):
    with_them, without = (
        planned(Study.parse(table(models__0__model=str(tiny_folder), diagnostics=names)), tiny_load)
        for names in (["score", "commitment"], [])
    )
    assert with_them.expected > without.expected
    assert with_them.branches == without.branches
    assert with_them.proposals == with_them.states * 2 * 2
    assert without.proposals == without.naive_proposals == 0


class TestWithoutAModel:
    def test_counts_are_the_same_and_nothing_is_guessed(self, study, tiny_load):
        """All prompts of the study fit into the tiny model."""
        here = planned(study, tiny_load)
        (bare,) = estimate(study, study.models[0])
        assert (bare.slots, bare.memory, bare.seconds) == (None, None, None)
        assert (here.slots, here.seconds > 0, here.memory > 0) == (352, True, True)
        assert bare == here._replace(slots=None, memory=None, seconds=None)

    def test_a_rate_gives_the_time_and_nothing_else(self, study):
        (bare,), (timed,) = (estimate(study, study.models[0], rate=rate) for rate in (None, 50.0))
        assert timed == bare._replace(seconds=(bare.expected + bare.end_to_end) / 50)

    def test_a_tokenizer_gives_buckets_without_a_time(self, study, tiny_load):
        text = text_side(tiny_load(study.models[0]))
        (row,) = estimate(study, study.models[0], prompts_of(study)[0], text=text)
        assert row == planned(study, tiny_load)._replace(seconds=None)


class TestMerged:
    def test_is_the_range_of_the_run_that_is_named(self):
        with (RESULTS / "mini" / "cost.csv").open(encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["axis"] != "all"]
        for axis, (low, high) in MERGED.items():
            shares = [int(row["done"]) / int(row["naive"]) for row in rows if row["axis"] == axis]
            assert len(shares) == 2
            assert (low, high) == pytest.approx((min(shares), max(shares)), abs=1e-4)

    def test_holds_what_that_run_took(self):
        study = Study.read(STUDIES / "mini.toml")
        for spec in study.models:
            rows = list(estimate(study, spec))
            low, high = (sum(row.merged[end] for row in rows) for end in (0, 1))
            # Forwards that were done, and the references' own runs, which both models have.
            took = {"mini": 1_999_405, "mini-dream": 2_102_589}[spec.name] + 84_096
            assert low * 0.99 <= took <= high * 1.01

    def test_drawn_tokens_have_none(self, study):
        (row,) = estimate(replace(study, temperature=0.7), study.models[0])
        assert row.merged is None
