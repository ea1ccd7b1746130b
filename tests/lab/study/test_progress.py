"""Where a study stands, and how long the rest will take."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.helpers.tiny_studies import table
from unmask.lab.branching import BranchProgress
from unmask.lab.store import Shard, Store
from unmask.lab.study import StudyConfig, progress
from unmask.lab.study.progress import ProgressTracker
from unmask.lab.study.prompts import load_examples

SHARD = Shard(kind="branches", model="tiny", task="csv-missing-cells", split="validation", block=0, depends="k")


@pytest.fixture(name="study")
def _study(tiny_folder):
    return StudyConfig.parse(table(models__0__model=str(tiny_folder), end_to_end=True))


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    """Seconds that pass when told to."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def tracker(study, store, told):
    return ProgressTracker(study, load_examples(study)[0], store, 100.0, told.append)


def test_time_left_covers_branches_and_whole_runs_at_the_measured_pace(study, tmp_path, clock):
    told = []
    tracked = tracker(study, Store.create(tmp_path / "out", study.config), told)
    tracked.start_branching("tiny", 5)
    report = tracked.watch_group([SimpleNamespace(shard=SHARD)])
    share = tracked.candidate_share["tiny"]
    clock[0] += 3
    report(BranchProgress(1, 14, 31))
    assert math.isnan(told[-1].left), "too few forwards to say"
    clock[0] += 7
    report(BranchProgress(2, round(21 / share), 40))
    # 10 s for 40 forwards, 21 branches of 210: 360 forwards more, and then the whole runs.
    assert told[-1].branches == 21
    whole_runs = sum(tracked.whole_runs.values())
    assert whole_runs > 0
    assert told[-1].left == pytest.approx(10 / 40 * (40 / 21 * (210 - 21) + whole_runs))
    alone = tracker(replace(study, end_to_end=False), tracked.store, [])
    assert sum(alone.whole_runs.values()) == 0


def test_shards_that_others_write_meanwhile_are_counted_once_each(tiny_run, study):
    infos = list(tiny_run.infos().values())

    class Growing(Store):
        looks = 0

        def names(self, kind):
            """One more at every look, and it sorts first."""
            self.looks += 1
            return super().names(kind)[-min(self.looks, len(infos)) :]

    tracked = tracker(study, Growing(tiny_run.folder), [])
    for _ in range(2 * len(infos)):
        tracked.count_found()
    assert tracked.total["shards"] == len(infos)
    assert tracked.total["branches"] == sum(info["branches"] for info in infos)
    assert tracked.total["done"] == sum(info["forwards"]["done"] for info in infos)


def test_a_failed_attempt_counts_for_nothing(study, tmp_path):
    told = []
    tracked = tracker(study, Store.create(tmp_path / "out", study.config), told)
    tracked.watch_group([SimpleNamespace(shard=SHARD)])(BranchProgress(2, 20, 40))
    tracked.count_failure(SimpleNamespace(name=SHARD.name))
    assert (told[-1].failed, told[-1].branches, told[-1].forwards) == (1, 0, 0)
