"""All findings of a study, made once."""

from collections import Counter

import pytest

from tests.helpers import made_studies as made
from unmask.lab.analysis.detection import detect
from unmask.lab.analysis.findings import findings
from unmask.lab.analysis.opportunity import measure
from unmask.lab.store import store as storage


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    tables, read = made.diagnosed({"find": "finds"})
    return made.store(tmp_path_factory.mktemp("findings") / "study", tables, read=read)


def test_the_same_as_its_parts(place):
    both = findings(place, resamples=100, draws=20)
    opportunity = measure(place, resamples=100)
    detection = detect(place, opportunity, draws=20)
    assert [c.overall["delta"] for c in both.opportunity.cells] == [c.overall["delta"] for c in opportunity.cells]
    assert both.opportunity.hashes == opportunity.hashes == place.content_hash()
    assert [repr(c.raw.measures.estimates) for c in both.detection.cells] == [
        repr(c.raw.measures.estimates) for c in detection.cells
    ]
    assert both.end_to_end is None


def test_no_table_is_read_twice(place, monkeypatch):
    read, asked = storage.read_table, Counter()

    def counting(files, shard, name, info):
        asked[name, shard] += 1
        return read(files, shard, name, info)

    monkeypatch.setattr(storage, "read_table", counting)
    findings(place, resamples=20, draws=5)
    assert set(asked.values()) == {1}
    assert {name for name, _ in asked} == {"branches", "readings", "states"}


def test_without_readings(tmp_path):
    alone = findings(made.store(tmp_path / "s", made.known()), resamples=20)
    assert len(alone.opportunity.cells) == 6
    assert (alone.detection, alone.end_to_end) == (None, None)


def test_whole_answers_build_on_the_rest(place, monkeypatch):
    given = []
    monkeypatch.setattr("unmask.lab.analysis.findings.end_to_end", lambda *parts: given.append(parts) or "decoded")
    whole = findings(place, resamples=20, draws=5)
    assert whole.end_to_end == "decoded"
    (parts,) = given
    assert parts[1:] == (whole.opportunity, whole.detection)
