"""Folders that hold other results, or broken ones, are refused and left as they are."""

import json
import shutil
from dataclasses import replace

import pytest

from unmask.errors import OtherStudy, SchemaError
from unmask.lab.store import Store


class TestOtherResults:
    def test_of_another_study(self, tiny_run, tiny_study):
        before = sorted((p, p.stat().st_mtime_ns) for p in tiny_run.folder.rglob("*"))
        other = replace(tiny_study, seed=4)
        with pytest.raises(OtherStudy, match="seed differ"):
            Store.create(tiny_run.folder, other.config)
        assert sorted((p, p.stat().st_mtime_ns) for p in tiny_run.folder.rglob("*")) == before

    def test_of_another_version(self, tiny_study, tmp_path):
        place = Store.create(tmp_path / "out", tiny_study.config)
        path = place.folder / "manifest.json"
        manifest = place.manifest
        path.write_text(json.dumps({**manifest, "format": "unmask-study-0"}))
        with pytest.raises(SchemaError, match="unmask-study-0"):
            Store.create(place.folder, tiny_study.config)
        with pytest.raises(SchemaError, match="unmask-study-0"):
            Store.open(place.folder)
        path.write_text(json.dumps({**manifest, "versions": {**manifest["versions"], "torch": "1.0"}}))
        with pytest.raises(OtherStudy, match=r"torch 1\.0 then"):
            Store.create(place.folder, tiny_study.config)
        path.write_text("{")
        with pytest.raises(SchemaError, match="cannot be read"):
            Store.open(place.folder)

    def test_a_folder_that_is_something_else(self, tiny_study, tmp_path):
        (tmp_path / "thesis.tex").write_text("mine")
        with pytest.raises(OtherStudy, match="no study in it"):
            Store.create(tmp_path, tiny_study.config)
        with pytest.raises(SchemaError, match="no study"):
            Store.open(tmp_path / "nowhere")

    def test_a_damaged_table(self, tiny_run, tmp_path):
        shutil.copytree(tiny_run.folder, tmp_path / "out")
        place = Store.open(tmp_path / "out")
        path = place.shards / place.names()[0] / "branches.parquet"
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(SchemaError, match="remove the shard"):
            place.table("branches")
