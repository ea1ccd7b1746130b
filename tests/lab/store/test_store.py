"""Folders that hold other results, or broken ones: refused and left as they are, or mended; never read as if whole."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.helpers import made_studies as made
from unmask.base import environment as code
from unmask.base.errors import OtherStudy, SchemaError, UnmaskError
from unmask.base.json_files import to_hashed_json
from unmask.cli.app import main
from unmask.lab.store import FORMAT, DamagedManifest, DamagedShard, OtherFormat, Shard, Store, table_hash
from unmask.lab.store.local import LocalFiles
from unmask.lab.store.manifest import write_manifest
from unmask.lab.store.shard import encode_shard
from unmask.lab.study.protocol import run_study


def files_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def everything(folder):
    """All that a reader of a store can ask for."""
    store = Store.open(folder)
    return store.manifest, store.infos(), store.infos("decodes"), store.content_hash()


def config_of(store):
    return store.manifest["study"]


def shard_folder(store, at=0):
    return store.folder / "shards" / store.names()[at]


def damage(path, how):
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "flipped":
        at = len(content) // 2
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    else:
        path.write_bytes(content[: 0 if how == "empty" else len(content) // 2])


@pytest.fixture(name="small")
def _small(tmp_path):
    return made.whole(tmp_path / "s")


class TestOtherResults:
    def test_of_another_study(self, tiny_run, tiny_study):
        before = sorted((p, p.stat().st_mtime_ns) for p in tiny_run.folder.rglob("*"))
        with pytest.raises(OtherStudy, match="seed differ"):
            Store.create(tiny_run.folder, replace(tiny_study, seed=4).config)
        assert sorted((p, p.stat().st_mtime_ns) for p in tiny_run.folder.rglob("*")) == before

    def test_of_another_version(self, small):
        manifest = small.manifest
        write_manifest(small.files, {**manifest, "versions": {**manifest["versions"], "threads": "77"}})
        assert Store.create(small.folder, config_of(small)).manifest["versions"]["threads"] == "77"
        write_manifest(small.files, {**manifest, "versions": {**manifest["versions"], "torch": "1.0"}})
        with pytest.raises(OtherStudy, match=r"torch 1\.0 then"):
            Store.create(small.folder, config_of(small))

    @pytest.mark.parametrize("format", ["unmask-study-2", "unmask-study-4"])
    @pytest.mark.parametrize("lost", [None, "manifest.json"])
    def test_of_another_format_is_refused_by_name(self, small, format, lost, capsys):
        """With `body` and hash as in ours: only the name tells it from damage."""
        for path in [*small.folder.rglob("*.json")]:
            path.write_text(to_hashed_json(format, json.loads(path.read_text())["body"]))
        study = small.folder.parent / "study.toml"
        if lost:
            (small.folder / lost).unlink()
        before = files_of(small.folder)
        with pytest.raises(OtherFormat, match=rf"{format}.*'{FORMAT}'.*`unmask study run FILE --out NEWFOLDER`"):
            Store.create(small.folder, {"name": "demo"})
        study.write_text((Path(__file__).parents[3] / "studies" / "demo.toml").read_text())
        for command in (["run", str(study), "--out"], ["status"], ["report"], ["status", "--verify"]):
            if not lost or command[0] == "run":
                assert main(["study", *command, str(small.folder)]) == 2
                assert f"'{format}'" in capsys.readouterr().err
        assert files_of(small.folder) == before

    def test_a_format_that_lost_a_bit_is_damage(self, small):
        path = small.folder / "manifest.json"
        path.write_text(path.read_text().replace(FORMAT, "unmask-study-7"))
        with pytest.raises(DamagedManifest):
            Store.open(small.folder)

    def test_a_folder_that_is_something_else(self, tmp_path):
        with pytest.raises(SchemaError, match="no study"):
            Store.open(tmp_path / "nowhere")
        (tmp_path / "thesis.tex").write_text("mine")
        (tmp_path / "app").mkdir()
        (tmp_path / "app" / "manifest.json").write_text("{}")
        before = files_of(tmp_path)
        for folder in (tmp_path, tmp_path / "app"):
            with pytest.raises(OtherStudy, match="no study in it"):
                Store.create(folder, {"name": "x"})
        assert files_of(tmp_path) == before

    def test_shards_that_nobody_planned_are_not_read(self, small):
        before = small.content_hash()
        shard = Shard(kind="branches", model="small", task="find", split="validation", block=9, depends="x")
        tables = {"branches": small.read_arrow("branches")}
        small.write(shard, tables, next(iter(small.infos().values())))
        assert small.is_finished(shard)
        assert small.content_hash() == before
        assert small.check() == []

    def test_other_code_is_refused_with_what_differs_unless_accepted(self, small, monkeypatch, capsys):
        study, old = config_of(small), code.code_fingerprint()
        parts = {**code.code_parts(), "decode.py": "other", "policies": "other"}
        monkeypatch.setattr(code, "_hash_parts", lambda: tuple(parts.items()))
        with pytest.raises(OtherStudy, match=rf"decode.py, policies differ; fingerprint {old}.*--allow-code"):
            Store.create(small.folder, study)
        store = Store.create(small.folder, study, accept_code=True)
        assert [entry["fingerprint"] for entry in store.manifest["code"]] == [old, code.code_fingerprint()]
        shard = Shard(kind="branches", model="later", task="find", split="validation", depends="x")
        about = {"task": "find", "split": "validation", "block": 0, "prompts": 1}
        store.set_metadata("models", "later", {"shards": {shard.name: about}})
        store.write(shard, {"branches": store.read_arrow("branches")}, next(iter(store.infos().values())))
        assert main(["study", "status", "--verify", str(small.folder)]) == 0
        assert f"made with code {code.code_fingerprint()}: 1 shards" in capsys.readouterr().out
        monkeypatch.undo()
        assert Store.create(small.folder, study).manifest == store.manifest


class TestDamage:
    @pytest.mark.parametrize("file", ["states.parquet", "branches.parquet", "readings.parquet", "shard.json"])
    @pytest.mark.parametrize("how", ["cut", "gone", "empty", "flipped"])
    def test_of_a_shard_is_named_with_what_to_do(self, small, file, how, capsys):
        folder = shard_folder(small)
        damage(folder / file, how)
        with pytest.raises(DamagedShard, match=rf"{folder.name}.*unmask study status --verify"):
            everything(small.folder)
        assert [one.name for one in small.check()] == [folder.name]
        if how != "cut":
            return
        for command, ends in (
            (["status"], 2 if file == "shard.json" else 0),
            (["report"], 2),
            (["status", "--verify"], 1),
        ):
            assert main(["study", *command, str(small.folder)]) == ends
            told = capsys.readouterr()
            assert not ends or f"unmask study run FILE --out {small.folder}" in told.out + told.err

    def test_check_says_what_is_measured_again(self, small, capsys):
        damage(shard_folder(small) / "readings.parquet", "cut")
        damage(small.folder / "decodes" / small.names("decodes")[0] / "unit.json", "gone")
        assert main(["study", "status", "--verify", str(small.folder), "--json"]) == 1
        told = json.loads(capsys.readouterr().out)
        assert (told["sound"], told["shards"], told["units"], told["planned"]) == (False, 1, 0, 2)
        assert [one["reason"].split(":")[0] for one in told["damaged"]] == ["readings.parquet", "unit.json"]
        assert told["damaged"][0]["redo"] == "1 prompts are measured again (small, find, evaluation, block 0)"

    @pytest.mark.parametrize("kind", ["branches", "decodes"])
    def test_a_shard_deleted_from_a_finished_study_is_missed(self, small, kind, capsys):
        (name, *_) = small.names(kind)
        shutil.rmtree(next(small.folder.glob(f"*/{name}")))
        assert [(one.name, "not there any more" in one.reason) for one in small.check()] == [(name, True)]
        assert main(["study", "status", "--verify", str(small.folder)]) == 1
        assert name in capsys.readouterr().out

    def test_a_shard_that_was_never_measured_is_not_missed(self, tmp_path):
        store = made.store(tmp_path / "s", made.known(), unfinished=[("small", "find", "validation")])
        assert store.check() == []

    def test_values_are_checked_beside_bytes(self, small):
        """Whoever writes a table and the hash of its bytes anew is still found out by the hash of its values."""
        shard, info = next(iter(small.infos().items()))
        table = small.read_arrow("branches", shards=[shard])
        other = table.set_column(table.column_names.index("step"), "step", pa.array([7] * len(table), pa.int32()))
        for name, content in encode_shard(shard, {"branches": other}, info).items():
            (shard_folder(small) / name).write_bytes(content)
        assert small.check() == []
        body = json.loads((shard_folder(small) / "shard.json").read_text())["body"]
        body["tables"]["branches"]["content"] = table_hash(table)
        (shard_folder(small) / "shard.json").write_text(to_hashed_json(FORMAT, body))
        assert "its values are not those" in small.check()[0].reason

    def test_a_shard_of_another_study_is_not_taken_for_ours(self, small, tmp_path):
        other = made.store(tmp_path / "o", made.diagnosed({"find": "useless"}, prompts=2)[0], temperature=0.5)
        shutil.rmtree(shard_folder(small))
        name = other.names()[0]
        shutil.copytree(other.folder / "shards" / name, small.folder / "shards" / name)
        with pytest.raises(DamagedShard, match="another study"):
            small.read("branches")
        assert [one.name for one in small.check()] == [name]

    def test_single_bits(self, small):
        """Every flip is noticed, or changes nothing that a reader sees."""
        draw, truth = random.Random(0), everything(small.folder)
        files = {path: content for path, content in files_of(small.folder).items() if content}
        noticed = 0
        for _ in range(150):
            path = draw.choices(list(files), [len(content) for content in files.values()])[0]
            changed = bytearray(files[path])
            at, bit = draw.randrange(len(changed)), draw.randrange(8)
            changed[at] ^= 1 << bit
            path.write_bytes(changed)
            try:
                assert everything(small.folder) == truth, (path, at, bit)
            except UnmaskError:
                noticed += 1
                assert Store(small.folder).check() != []
            path.write_bytes(files[path])
        assert noticed > 120


class TestManifest:
    @pytest.mark.parametrize("how", ["cut", "gone", "empty", "flipped", "edited", "a list"])
    def test_damage_is_refused_and_mended_by_a_run_of_the_same_study(self, small, how, capsys):
        study, before, hashes = config_of(small), small.manifest, small.content_hash()
        path = small.folder / "manifest.json"
        if how == "edited":
            path.write_text(path.read_text().replace('"seed": 5', '"seed": 6'))
        elif how == "a list":
            path.write_text("[]")
        else:
            damage(path, how)
        with pytest.raises(DamagedManifest, match=r"manifest.json.*unmask study run FILE --out"):
            everything(small.folder)
        for command, ends in ((["status"], 2), (["report"], 2), (["status", "--verify"], 1)):
            assert main(["study", *command, str(small.folder)]) == ends
            told = capsys.readouterr()
            assert f"unmask study run FILE --out {small.folder}" in told.out + told.err
        with pytest.raises(OtherStudy, match="of another study"):
            Store.create(small.folder, {**study, "seed": 7})
        store = Store.create(small.folder, study)
        assert store.damaged_names == ([] if how == "gone" else ["manifest.json"])
        for part in ("models", "tasks"):
            for name, about in before[part].items():
                store.set_metadata(part, name, about)
        assert store.finish() == hashes
        assert store.manifest == before

    def test_one_name_never_stands_for_two_things(self, small):
        with pytest.raises(OtherStudy, match="device differ"):
            small.set_metadata("models", "small", {**small.manifest["models"]["small"], "device": "cuda"})

    def test_a_start_that_was_cut_short(self, small):
        study = config_of(small)
        shutil.rmtree(small.folder / "shards")
        shutil.rmtree(small.folder / "decodes")
        damage(small.folder / "manifest.json", "empty")
        stale = small.folder / ".manifest.json.123.partial"
        stale.touch()
        assert Store.create(small.folder, study).names() == []
        assert not stale.exists()


class TestManyProcesses:
    def test_who_holds_a_shard_is_named_and_a_killed_process_holds_nothing(self, small):
        shard = Shard(kind="branches", model="small", task="find", split="validation", block=9, depends="x")
        fields = json.dumps({"kind": "branches", **shard.stored_fields})
        holds = (
            "import json, sys, time; from unmask.lab.store import Shard, Store\n"
            f"with Store.open({str(small.folder)!r}).claim(Shard(**json.loads({fields!r}))) as ours:\n"
            "    print(ours, flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", holds], stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout.readline() == "True\n"
            with small.claim(shard) as ours:
                assert not ours
            assert small.claim_holder(shard).startswith(f"process {other.pid} on ")
            other.kill()
        assert small.claim_holder(shard) == ""
        with small.claim(shard) as ours, small.claim(shard) as again:
            assert (ours, again) == (True, False)
            assert small.claim_holder(shard) == "this process"

    def test_writing_a_shard_opens_no_other(self, tmp_path, monkeypatch):
        """Otherwise a study of many shards takes quadratic time: 234 reads for 16 shards in 0.7.0."""
        tables = {("small", f"task{at:02}", "validation"): {"score": {"a": made.flat(0.1, 1, 1)}} for at in range(16)}
        reads = Counter()
        read = LocalFiles.read

        def counting(files, name):
            reads[name.split("/")[-1]] += 1
            return read(files, name)

        planned = made.store(tmp_path / "s", tables)
        written = [
            (shard, info, planned.read_arrow("branches", shards=[shard])) for shard, info in planned.infos().items()
        ]
        shutil.rmtree(planned.folder / "shards")
        store = Store.open(planned.folder)
        monkeypatch.setattr(LocalFiles, "read", counting)
        for at, (shard, info, branches) in enumerate(written):
            with store.claim(shard) as ours:
                assert ours
                store.write(shard, {"branches": branches}, info)
            assert len(store.infos()) == at + 1
        assert reads["shard.json"] == 16
        assert reads["manifest.json"] <= 2 * 16 + 2
        assert sum(reads.values()) <= 50


def test_a_run_sets_damaged_shards_aside_and_measures_them_again(tiny_run, tiny_study, tiny_load, tmp_path):
    shutil.copytree(tiny_run.folder, tmp_path / "out")
    store = Store.open(tmp_path / "out")
    first, second, third, *others = store.names()
    shards = store.folder / "shards"
    damage(shards / first / "branches.parquet", "flipped")
    damage(shards / second / "shard.json", "cut")
    damage(shards / third / "states.parquet", "gone")
    damage(store.folder / "manifest.json", "cut")
    again = Store.create(store.folder, tiny_study.config)
    assert again.damaged_names == ["manifest.json", first, second, third]
    assert set(os.listdir(store.folder / "damaged")) == {f"{name}.1" for name in again.damaged_names}
    untouched = {name: (shards / name / "shard.json").stat().st_mtime_ns for name in others}
    assert run_study(tiny_study, again, tiny_load).complete
    assert again.content_hash() == tiny_run.content_hash()
    assert again.manifest == tiny_run.manifest
    assert again.check() == []
    assert untouched == {name: (shards / name / "shard.json").stat().st_mtime_ns for name in others}
