"""What a study will take, beside what it took."""

from dataclasses import replace

import pytest

from tests.helpers.tiny_studies import by_hash, table
from unmask.lab.run import judging
from unmask.lab.run.driver import run_study
from unmask.lab.run.estimate import decodes_of, estimate
from unmask.lab.run.jobs import prompts_of
from unmask.lab.store import Store
from unmask.lab.study import Study


def planned(study, loaded):
    (row,) = estimate(study, study.models[0], loaded(study.models[0]), prompts_of(study)[0])
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
        assert other.evaluation - one.evaluation == len(study.diagnostics) * 2 * 5

    def test_is_what_a_run_takes_about(self, study, tiny_load, tmp_path, monkeypatch):
        """A network with random weights, whose branches seldom agree and whose utilities are made."""
        monkeypatch.setattr(judging, "scores", by_hash)
        store = Store.create(tmp_path / "out", study.config)
        assert run_study(study, store, tiny_load).complete
        (unit,) = store.decode_infos()
        row = planned(study, tiny_load)
        assert row.end_to_end / 2 < unit["forwards"] <= row.end_to_end_most
        done = sum(info["forwards"]["done"] + info["forwards"]["trajectory"] for info in store.infos())
        assert row.expected / 2 < done < 3 * row.expected


def test_proposals_of_diagnostics_are_counted(tiny_folder, tiny_load):
    with_them, without = (
        planned(Study.parse(table(models__0__model=str(tiny_folder), diagnostics=names)), tiny_load)
        for names in (["score", "commitment"], [])
    )
    assert with_them.expected > without.expected
    assert with_them.branches == without.branches
