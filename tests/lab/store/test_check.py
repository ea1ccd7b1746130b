"""A store, verified: what is sound, what is damaged, and what will be measured again."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from unmask.lab.store.check import check_store
from unmask.lab.store.hashes import bytes_hash
from unmask.lab.store.pieces import read_info, read_table

from tests.helpers import made_studies as made
from unmask.base.errors import SchemaError
from unmask.base.json_files import to_hashed_json
from unmask.cli.app import main
from unmask.lab.store import FORMAT, Shard, table_hash


@pytest.fixture(name="store")
def _store(tmp_path):
    return made.whole(tmp_path / "s")


def test_a_sound_one(store, capsys):
    check = check_store(store.folder)
    assert (check.sound, check.shards, check.planned, check.units) == (True, 2, 2, 1)
    assert main(["study", "check", str(store.folder)]) == 0
    said = capsys.readouterr().out
    assert "sound" in said
    assert "2 of 2 planned shards and 1 decoded units" in said


def test_what_is_damaged_and_what_it_costs(store, capsys):
    name, other = store.names()
    (store.shards / name / "readings.parquet").write_bytes(b"PAR1")
    (store.decodes / store.names("decodes")[0] / "unit.json").unlink()
    assert main(["study", "check", str(store.folder), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["sound"]
    assert [(one["name"], one["reason"].split(":")[0]) for one in told["damaged"]] == [
        (name, "readings.parquet"),
        (store.names("decodes")[0], "unit.json"),
    ]
    assert told["damaged"][0]["redo"] == "1 prompts are measured again (small, find, evaluation, block 0)"
    assert told["shards"] == 1
    assert main(["study", "check", str(store.folder)]) == 1
    assert f"damaged: {name}: readings.parquet" in capsys.readouterr().out
    assert other not in str(told["damaged"])


def test_values_are_checked_beside_bytes(store):
    """Whoever writes tables and their hashes of bytes anew is still found out by the values' own."""
    folder = store.shards / store.names()[0]
    info, path = read_info(folder, Shard), folder / "branches.parquet"
    table = pq.read_table(path)
    at = table.column_names.index("utility")
    for values, reason in (([2.5] * len(table), "a utility is 2.5"), ([0.25] * len(table), "its values")):
        pq.write_table(table.set_column(at, table.schema.field(at), pa.array(values)), path)
        info["tables"]["branches"]["bytes"] = bytes_hash(path.read_bytes())
        if reason.startswith("a utility"):
            info["tables"]["branches"]["content"] = table_hash(read_table(folder, "branches", info))
        (folder / "shard.json").write_text(to_hashed_json(FORMAT, info))
        (damage,) = check_store(store.folder).damaged
        assert reason in damage.reason


def test_nothing_to_check(tmp_path):
    with pytest.raises(SchemaError, match="no study in"):
        check_store(tmp_path)
