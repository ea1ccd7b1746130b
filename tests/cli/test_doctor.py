"""`unmask doctor`: what it says of this machine, and of one that lacks things."""

import json

from unmask.api.load import MODELS
from unmask.cli import doctor
from unmask.models.execution import ENGINES
from unmask.tasks import TASKS


def by_name(document, part):
    return {one["name"]: one for one in document[part]}


def test_everything_is_there_as_json(command, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("UNMASK_DATA", raising=False)
    document = command("doctor", "--json").json
    assert {"unmask", "torch", "python", "threads"} <= set(by_name(document, "versions"))
    assert "cpu" in by_name(document, "devices")
    engines = by_name(document, "engines")
    assert set(ENGINES) <= set(engines)
    assert sum("in use on" in one["what"] for one in engines.values()) == 1
    # Why not another.
    assert all(one["what"] for one in engines.values())
    assert set(by_name(document, "models")) == set(MODELS)
    assert not by_name(document, "models")["llada"]["ok"]
    assert {name for one in document["data"] for name in one["name"].split(", ")} == set(TASKS)
    assert not by_name(document, "data")["gsm8k"]["ok"]
    names = {"ray", "pandas", "scikit-learn", "transformers"}
    assert names <= set(by_name(document, "optional"))
    assert by_name(document, "cache")["hub cache"]["ok"]
    assert str(tmp_path / "hub") in by_name(document, "cache")["hub cache"]["what"]
    assert not (tmp_path / "hub").exists()
    assert by_name(document, "decoding")["mini"]["ok"]
    assert "unmask generate --watch" in by_name(document, "next")


def test_a_part_that_is_missing_is_named_with_what_it_is_for(command, monkeypatch):
    found = doctor.find_spec
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "ray" else found(name))
    ended = command("doctor", "--quick", "--json")
    optional = by_name(ended.json, "optional")
    assert not optional["ray"]["ok"]
    assert "cluster; pip install 'unmask[ray]'" in optional["ray"]["what"]
    assert "pip install 'unmask[ray]'" in by_name(ended.json, "next")


def test_where_nothing_decodes_it_fails(command, monkeypatch):
    def broken(name, **options):
        raise RuntimeError("illegal instruction")

    monkeypatch.setattr(doctor, "load", broken)
    ended = command("doctor", "--json")
    assert ended.code == 1
    (decoding,) = json.loads(ended.out)["decoding"]
    assert "RuntimeError: illegal instruction" in decoding["what"]
