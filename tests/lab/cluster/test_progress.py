"""Who does what: in numbers, on a screen, and in a log for each worker."""

import io
import math

from rich.console import Console

from unmask.cli.study import progress_facts, progress_panel
from unmask.lab.cluster.progress import ClusterNow, WorkerLogs, WorkerNow
from unmask.lab.study.progress import StudyProgress

WORKERS = (WorkerNow("worker-0", "node7", "", 0.0), WorkerNow("worker-1", "node8", "tiny.mine.validation.0003", 7.0))


def test_the_terminal_says_who_does_what():
    counts = {"shards": 3, "shards_total": 9, "states": 1, "states_total": 2, "branches": 4, "branches_total": 8}
    work = {"forwards": 100, "naive": 0, "done": 0, "utility": math.nan, "unjudged": 0, "seconds": 10.0, "left": 60.0}
    now = StudyProgress(shard="1 of 2 workers", **counts, **work, cluster=ClusterNow(WORKERS, 5, 2, 1, 1))
    facts = progress_facts(now)
    assert (facts["workers"], facts["scoring"], facts["lost workers"], facts["copies"]) == ("1/2", "2", "1", "1")
    assert (facts["forwards/s"], facts["left"]) == ("10", "60 s")
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(progress_panel(now))
    shown = console.export_text()
    assert "worker-1 on node8, 7 s: tiny.mine.validation.0003" in shown
    assert "worker-0" not in shown, "it waits"


def test_every_worker_has_a_log(tmp_path):
    logs = WorkerLogs(tmp_path / "logs")
    logs.write("worker-1", "ready")
    logs.write("worker-1", "tiny: 3.0 s")
    first, second = (tmp_path / "logs" / "worker-1.log").read_text().splitlines()
    assert first.endswith(" ready")
    assert second.endswith(" tiny: 3.0 s")


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "logs").write_text("a file in its place")
    WorkerLogs(tmp_path / "logs").write("worker-1", "ready")
    WorkerLogs(None).write("worker-1", "ready")
