"""What was run, and what is missing, in a few words each."""

import pytest

from tests.helpers import made_studies as made
from unmask.lab.analysis.findings import Findings
from unmask.lab.analysis.opportunity import measure
from unmask.lab.store import ATTEMPTS, Shard
from unmask.report.study import study_report
from unmask.report.words.run import command


def test_a_complete_study(known, known_store):
    run = study_report(known, known_store).run
    assert run["models"] == "small, llada reference"
    assert run["tasks"] == "2: fill, sort"
    assert run["missing"] == "nothing"
    assert run["tried"] == f"{known.opportunity.branches:,} futures of 184 states"
    assert "of branching" in run["time"]


def test_the_command_names_folder_and_study(known, known_store):
    first, second = command(known.opportunity, known_store)
    assert first == f"unmask study run FILE --out {known_store.folder}"
    assert second.startswith("FILE: study made, fingerprint ")
    assert command(known.opportunity, None)[0] == "unmask study run FILE --out FOLDER"


def test_what_is_missing(broken_report):
    missing = broken_report.run["missing"]
    assert missing.startswith("the study is not complete: 3 of 4 shards are finished; ")
    assert "without numbers" in missing
    assert missing.endswith("4 futures that could not be judged")


@pytest.mark.parametrize("split", ["validation", "evaluation"])
def test_half_a_study_has_a_report_of_what_is_missing(tmp_path, split):
    """Interrupted before the other half began: there are no numbers, and the report says which are to come."""
    tables = made.known()
    lost = [key for key in tables if key[2] != split]
    store = made.store(tmp_path / "s", {k: v for k, v in tables.items() if k not in lost}, unfinished=lost)
    report = study_report(Findings(measure(store)), store)
    assert report.run["missing"].startswith("the study is not complete: 2 of 4 shards are finished; 6 model-task-axis")
    assert report.answers[0].verdict == "Not known: nothing could be measured."
    other = {"validation": "evaluation", "evaluation": "validation"}[split]
    assert any(f"no {other} prompt is finished yet" in text for text in report.warnings)


def test_what_failed_is_named(known, known_store, tmp_path):
    store = made.store(tmp_path / "s", made.known())
    shard = Shard(kind="branches", model="small", task="fill", split="validation", block=7, depends="0" * 16)
    for _ in range(ATTEMPTS):
        store.failures.add(shard, ValueError("no <luck>"))
    (text,) = study_report(known, store).warnings
    assert text.startswith(f"Set aside after 3 attempts: {shard.name}: ")
    assert "no <luck>" in text
    assert "--retry-failed" in text
    assert study_report(known, known_store).warnings == ()
