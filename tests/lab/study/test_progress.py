"""Where a study stands, and how long the rest will take."""

import math
from dataclasses import replace

import pytest

from tests.helpers.tiny_studies import table
from unmask.lab.branching import BranchProgress
from unmask.lab.store import Store
from unmask.lab.study import Study, progress
from unmask.lab.study.jobs import load_examples
from unmask.lab.study.progress import DecodeProgress, ProgressTracker
from unmask.lab.study.protocol import run_study


@pytest.fixture(name="study")
def _study(tiny_folder):
    return Study.parse(table(models__0__model=str(tiny_folder), end_to_end=True))


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    """Seconds that pass when told to."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def tracker(study, store, told):
    return ProgressTracker(study, load_examples(study)[0], store, 100.0, told.append)


class TestLeft:
    def test_covers_branches_and_whole_runs_by_the_measured_pace(self, study, tmp_path, clock):
        told = []
        tracked = tracker(study, Store.create(tmp_path / "out", study.config), told)
        tracked.start()
        heard = tracked.inside("tiny", "shard")
        share = tracked.candidates["tiny"]
        clock[0] += 3
        heard(BranchProgress(1, 14, 31))
        assert math.isnan(told[-1].left), "too few forwards to say"
        clock[0] += 7
        heard(BranchProgress(2, round(21 / share), 40))
        # 10 s for 40 forwards, 21 branches of 210: 360 forwards more, and then the whole runs.
        assert told[-1].branches == 21
        assert tracked.whole_runs > 0
        assert told[-1].left == pytest.approx(10 / 40 * (40 / 21 * (210 - 21) + tracked.whole_runs))
        told.clear()
        alone = tracker(replace(study, end_to_end=False), tracked.store, told)
        assert alone.whole_runs == 0

    def test_of_whole_runs_is_by_their_own_pace_as_soon_as_there_is_one(self, tiny_run, study, clock):
        told = []
        tracked = tracker(study, tiny_run, told)
        infos = list(tiny_run.infos().values())
        stored = sum(info["seconds"] for info in infos) / sum(info["forwards"]["done"] for info in infos)
        tracked.report_decoding(DecodeProgress("tiny/t", 0, 80, 100))
        assert told[-1].left == pytest.approx(80 * stored), "what branches took stands in"
        clock[0] += 5
        tracked.report_decoding(DecodeProgress("tiny/t", 20, 60, 100))
        assert (told[-1].left, told[-1].decoded) == (pytest.approx(5 / 20 * 60), pytest.approx(0.4))

    def test_never_jumps_from_nothing_to_hours(self, study, tiny_load, tmp_path):
        """When branches are done the whole runs are still to come, and were counted from the beginning."""
        told = []
        store = Store.create(tmp_path / "out", study.config)
        assert run_study(study, store, tiny_load, on_progress=told.append).complete
        branching = [now for now in told if math.isnan(now.decoded)]
        assert branching[-1].branches == branching[-1].branches_total
        assert branching[-1].left > 0
        decoding = [now for now in told if not math.isnan(now.decoded)]
        assert decoding
        assert not any(math.isnan(now.left) for now in decoding)


def test_shards_of_others_that_appear_meanwhile_are_counted_once_each(tiny_run, study, tmp_path):
    """Between two looks at a folder others write: a shard's numbers must not be taken for another's."""
    infos = list(tiny_run.infos().values())

    class Growing(Store):
        looks = 0

        def names(self, kind):
            """One more at every look, and it sorts first."""
            self.looks += 1
            return super().names(kind)[-min(self.looks, len(infos)) :]

    tracked = tracker(study, Growing(tiny_run.folder), [])
    for _ in range(2 * len(infos)):
        tracked.refresh()
    assert tracked.tally.shards == len(infos)
    assert tracked.tally.branches == sum(info["branches"] for info in infos)
    assert tracked.tally.done == sum(info["forwards"]["done"] for info in infos)


def test_a_failed_attempt_counts_for_nothing(study, tmp_path):
    told = []
    tracked = tracker(study, Store.create(tmp_path / "out", study.config), told)
    tracked.inside("tiny", "shard")(BranchProgress(2, 20, 40))

    class Failed:
        name = "shard"

    tracked.count_failure(Failed())
    assert (told[-1].failed, told[-1].branches, told[-1].forwards) == (1, 0, 0)
