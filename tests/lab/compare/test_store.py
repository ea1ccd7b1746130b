"""What a comparison keeps: a run that goes on ends as one that was never stopped, and damage is noticed."""

import random
from dataclasses import replace

import pytest

from tests.helpers.compared import compare, rows
from tests.helpers.oracle import CARRY, oracle
from unmask.base.errors import ConfigError, StorageError
from unmask.lab.compare import store as compare_store
from unmask.lab.compare.store import BATCHES as BATCHES_FOLDER
from unmask.lab.compare.store import PLAN
from unmask.lab.compare.summary import summarise
from unmask.lab.study import prompts
from unmask.methods import fixed_action
from unmask.report import compare as report
from unmask.tasks import Extraction, Verdict

POLICIES = {
    "reference": fixed_action(),
    "in order": fixed_action(region="window:1", cardinality="count:1"),
    "blocks": fixed_action(region="block:8"),
}
BATCHES, STEPS = 9, 4
"""Three of each policy, and forwards of each batch."""


def run(work, model=None, **options):
    """Six prompts of one task in batches of two."""
    given = {
        "tasks": [CARRY],
        "split": "development",
        "policies": POLICIES,
        "prompts": 6,
        "steps": STEPS,
        "batch_size": 2,
    }
    options = given | options
    return compare(model or oracle(), options.pop("tasks"), work_dir=work, **options)


def written(evaluation):
    """The texts of the files that are the same in every run; the figure is drawn from the same numbers."""
    summary = summarise(evaluation, resamples=200)
    texts = report.markdown(evaluation, summary), report.summary_json(evaluation, summary)
    return report.answers_csv(evaluation.answers), *texts


@pytest.fixture(scope="module")
def never_stopped():
    return written(run(None))


@pytest.fixture
def finished(tmp_path):
    run(tmp_path)
    return tmp_path


def pieces(folder):
    return sorted((folder / BATCHES_FOLDER).iterdir())


class Stopped(BaseException):
    """As Ctrl-C, at a moment of our choice."""


class TestGoingOn:
    @pytest.mark.parametrize("after", [1, 4, 8])
    def test_a_stopped_run_ends_like_one_that_was_not(self, tmp_path, never_stopped, after):
        heard = []

        def stop(now):
            heard.append(now)
            if len(heard) == after:
                raise Stopped

        with pytest.raises(Stopped):
            run(tmp_path, on_progress=stop)
        assert len(pieces(tmp_path)) == after
        model, told = oracle(), []
        again = run(tmp_path, model, on_progress=told.append)
        assert written(again) == never_stopped
        # Nothing that was finished is decoded twice.
        assert len(model.denoiser.shapes) == STEPS * (BATCHES - after)
        assert [now.kept for now in told][-1] == 2 * after
        assert (told[-1].done, told[-1].total) == (18, 18)

    def test_a_finished_one_decodes_nothing(self, finished, never_stopped):
        model = oracle()
        assert written(run(finished, model)) == never_stopped
        assert model.denoiser.shapes == []

    def test_what_could_not_be_judged_is_judged_again(self, tmp_path, monkeypatch, never_stopped):
        def absent(pairs, jobs):
            return [Verdict(e.id, None, "not installed", Extraction(text, "", "", ""), ()) for text, e in pairs]

        with monkeypatch.context() as patched:
            patched.setattr(prompts, "score_all", absent)
            assert {row.reason for row in rows(run(tmp_path))} == {"not installed"}
        model = oracle()
        assert written(run(tmp_path, model)) == never_stopped
        assert model.denoiser.shapes == []


class TestDamage:
    def test_a_flipped_bit_is_noticed_and_its_batch_decoded_again(self, finished, never_stopped):
        draw = random.Random(0)
        sound = {path: path.read_bytes() for path in pieces(finished)}
        for _ in range(20):
            path = draw.choice(list(sound))
            damaged = bytearray(sound[path])
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
            path.write_bytes(damaged)
            model = oracle()
            again = run(finished, model)
            assert again.damaged == (path.name,)
            assert len(model.denoiser.shapes) == STEPS
            assert written(again) == never_stopped
            assert path.read_bytes() == sound[path]

    @pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"format": "unmask-compare-2"}', b"[" * 9999])
    def test_what_is_no_piece_is_decoded_again(self, finished, never_stopped, content):
        pieces(finished)[3].write_bytes(content)
        again = run(finished)
        assert len(again.damaged) == 1
        assert written(again) == never_stopped

    @pytest.mark.parametrize("content", [b"", b"[]", b'{"format": "other"}', b"\xff"])
    def test_a_damaged_plan_is_refused_with_what_to_do(self, finished, content):
        (finished / PLAN).write_bytes(content)
        with pytest.raises(ConfigError, match=r"plan.json' is there and no plan .*delete the file"):
            run(finished)
        (finished / PLAN).unlink()
        model = oracle()
        run(finished, model)
        assert model.denoiser.shapes == []


class TestWhatAPieceDependsOn:
    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"seed": 1}, "seed"),
            ({"temperature": 0.5}, "temperature"),
            ({"steps": 5}, "steps"),
            ({"prompts": 4}, "prompts"),
            ({"split": "validation"}, "split"),
            ({"policies": {"reference": fixed_action()}}, "policies, methods"),
            ({"model": replace(oracle(), options={"fingerprint": "beef"})}, "model"),
            ({"model": replace(oracle(), name="other")}, "model"),
        ],
    )
    def test_another_comparison_is_refused(self, finished, change, named):
        before = {path: path.read_bytes() for path in finished.rglob("*.json")}
        with pytest.raises(ConfigError, match=rf"plan.json' is of another comparison \({named} differ\)"):
            run(finished, **change)
        assert {path: path.read_bytes() for path in finished.rglob("*.json")} == before

    def test_other_code_and_other_batches_are_decoded_again(self, finished, monkeypatch, never_stopped):
        run(finished, batch_size=3)
        assert len(pieces(finished)) == BATCHES + 6
        monkeypatch.setattr(compare_store, "versions_behind_answers", lambda: {"unmask": "another state of the code"})
        model = oracle()
        assert written(run(finished, model)) == never_stopped
        assert len(model.denoiser.shapes) == STEPS * BATCHES


def test_a_folder_that_cannot_be_written_ends_the_run_with_what_to_do(tmp_path):
    (tmp_path / BATCHES_FOLDER).write_text("a file", encoding="utf-8")
    with pytest.raises(StorageError, match=r"cannot be written .*run the same command"):
        run(tmp_path)


def test_a_full_disk_is_no_fault_of_the_policy(tmp_path, monkeypatch):
    """Left out of the table it would be for ever, and nobody would know why."""

    def full(path, text):
        if path.parent.name == BATCHES_FOLDER and len(pieces(tmp_path)) == 4:
            raise OSError(28, "No space left on device")
        path.write_text(text, encoding="utf-8")

    with monkeypatch.context() as patched:
        patched.setattr(compare_store, "write_text", full)
        with pytest.raises(StorageError, match="No space left on device"):
            run(tmp_path)
    assert len(pieces(tmp_path)) == 4
    assert not run(tmp_path).left_out
