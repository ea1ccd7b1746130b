"""Folders that hold other results, or broken ones: refused and left as they are, or mended; never read as if whole."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers import made_studies as made
from unmask.base import environment as code
from unmask.base.errors import OtherStudy, SchemaError, UnmaskError
from unmask.cli.app import main
from unmask.lab.store import DamagedManifest, DamagedPiece, OldFormat, Store
from unmask.lab.store import store as store_module
from unmask.lab.store.check import check_store
from unmask.lab.store.manifest import write_manifest
from unmask.lab.store.shards import Shard
from unmask.lab.study.protocol import run_study


def files_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def everything(folder):
    """All that a reader of a store can ask for."""
    store = Store.open(folder)
    return store.manifest, store.infos(), store.decode_infos(), store.content_hash()


@pytest.fixture(name="small")
def _small(tmp_path):
    return made.whole(tmp_path / "s")


def study_of(store):
    return store.manifest["study"]


class TestOtherResults:
    def test_of_another_study(self, tiny_run, tiny_study):
        before = sorted((p, p.stat().st_mtime_ns) for p in tiny_run.folder.rglob("*"))
        other = replace(tiny_study, seed=4)
        with pytest.raises(OtherStudy, match="seed differ"):
            Store.create(tiny_run.folder, other.config)
        assert sorted((p, p.stat().st_mtime_ns) for p in tiny_run.folder.rglob("*")) == before

    def test_of_another_version(self, small):
        manifest = small.manifest
        write_manifest(small.folder, {**manifest, "versions": {**manifest["versions"], "torch": "1.0"}})
        with pytest.raises(OtherStudy, match=r"torch 1\.0 then"):
            Store.create(small.folder, study_of(small))

    @pytest.mark.parametrize("format", ["unmask-study-1", "unmask-study-2"])
    def test_of_an_older_format(self, tmp_path, format, capsys):
        folder = tmp_path / "old"
        (folder / "shards" / "mini.carry-rtl.validation.0000.0123456789abcdef").mkdir(parents=True)
        old = {"format": format, "study": {"name": "demo"}, "fingerprint": "f", "models": {}, "tasks": {}}
        (folder / "manifest.json").write_text(json.dumps(old))
        before = files_of(tmp_path)
        for use in (Store.open, check_store, lambda folder: Store.create(folder, {"name": "demo"})):
            with pytest.raises(OldFormat, match=rf"{format}.*'demo'.*`unmask study run FILE --out NEWFOLDER`"):
                use(folder)
        for command in ("status", "report", "check"):
            assert main(["study", command, str(folder)]) == 2
            assert "unmask study run FILE --out NEWFOLDER" in capsys.readouterr().err
        assert files_of(tmp_path) == before

    def test_a_folder_that_is_something_else(self, tiny_study, tmp_path):
        (tmp_path / "thesis.tex").write_text("mine")
        with pytest.raises(OtherStudy, match="no study in it"):
            Store.create(tmp_path, tiny_study.config)
        with pytest.raises(SchemaError, match="no study"):
            Store.open(tmp_path / "nowhere")
        (tmp_path / "app").mkdir()
        (tmp_path / "app" / "manifest.json").write_text("{}")
        with pytest.raises(OtherStudy, match="no study in it"):
            Store.create(tmp_path / "app", tiny_study.config)

    def test_shards_that_nobody_planned_are_not_read(self, small):
        before = small.content_hash()
        shard = Shard("small", "find", "validation", 9, "x")
        (info, *_) = small.infos()
        table = small.table("branches")
        small.write(shard, small.table("states"), table, {**info, "shard": vars(shard)})
        assert small.content_hash() == before
        assert check_store(small.folder).unplanned == (shard.name,)


class TestOtherCode:
    def test_refused_with_what_differs_unless_accepted(self, small, monkeypatch):
        study, old = study_of(small), code.code_fingerprint()
        parts = {**code.code_parts(), "decode.py": "other", "policies": "other"}
        monkeypatch.setattr(code, "_hash_parts", lambda: tuple(parts.items()))
        with pytest.raises(OtherStudy, match=rf"\(decode.py, policies differ; fingerprint {old} then.*--accept-code"):
            Store.create(small.folder, study)
        store = Store.create(small.folder, study, accept_code=True)
        assert [entry["fingerprint"] for entry in store.manifest["code"]] == [old, code.code_fingerprint()]
        shard = Shard("later", "find", "validation", 0, "x")
        about = {"task": "find", "split": "validation", "block": 0, "prompts": 1}
        store.note("models", "later", {"shards": {shard.name: about}})
        info = {**store.infos()[0], "shard": vars(shard)}
        store.write(shard, store.table("states"), store.table("branches"), info)
        made_by = check_store(store.folder).code
        assert made_by[code.code_fingerprint()] == [shard.name]
        assert len(made_by[old]) == 3
        # Listed once, it may go on.
        assert Store.create(small.folder, study).manifest == store.manifest
        monkeypatch.undo()
        assert Store.create(small.folder, study).manifest == store.manifest

    def test_another_number_of_threads_goes_on(self, small):
        manifest = small.manifest
        write_manifest(small.folder, {**manifest, "versions": {**manifest["versions"], "threads": "77"}})
        assert Store.create(small.folder, study_of(small)).manifest["versions"]["threads"] == "77"


class TestDamage:
    @pytest.mark.parametrize("file", ["states.parquet", "branches.parquet", "readings.parquet", "shard.json"])
    @pytest.mark.parametrize("how", ["cut", "gone", "empty", "flipped"])
    def test_of_a_shard(self, small, file, how):
        path = small.shards / small.names()[0] / file
        damage(path, how)
        with pytest.raises(DamagedPiece, match=rf"{path.parent.name}.*unmask study check") as caught:
            everything(small.folder)
        assert "Traceback" not in str(caught.value)

    @pytest.mark.parametrize(
        ("file", "how"), [("shard.json", "cut"), ("shard.json", "gone"), ("branches.parquet", "gone")]
    )
    def test_commands_name_it_and_what_to_do(self, small, file, how, capsys):
        name = small.names()[0]
        damage(small.shards / name / file, how)
        for command, code_ in (("status", 2 if file == "shard.json" else 0), ("report", 2), ("check", 1)):
            assert main(["study", command, str(small.folder)]) == code_
            said = capsys.readouterr()
            if code_:
                assert name in said.out + said.err
                assert f"unmask study run FILE --out {small.folder}" in said.out + said.err

    @pytest.mark.parametrize("how", ["cut", "gone", "empty", "flipped", "edited", "a list"])
    def test_of_the_manifest_is_refused_and_mended_by_a_run(self, small, how, capsys):
        study, before, hashes = study_of(small), small.manifest, small.content_hash()
        path = small.folder / "manifest.json"
        if how == "edited":
            path.write_text(path.read_text().replace('"seed": 5', '"seed": 6'))
        elif how == "a list":
            path.write_text("[]")
        else:
            damage(path, how)
        with pytest.raises(DamagedManifest, match=r"manifest.json.*unmask study run FILE --out"):
            everything(small.folder)
        for command, code_ in (("status", 2), ("report", 2), ("check", 1)):
            assert main(["study", command, str(small.folder)]) == code_
            said = capsys.readouterr()
            assert f"unmask study run FILE --out {small.folder}" in said.out + said.err
        with pytest.raises(OtherStudy, match="of another study"):
            Store.create(small.folder, {**study, "seed": 7})
        store = Store.create(small.folder, study)
        assert store.set_aside == ([] if how == "gone" else ["manifest.json"])
        for part in ("models", "tasks"):
            for name, about in before[part].items():
                store.note(part, name, about)
        assert (store.manifest, store.content_hash()) == (before, hashes)

    def test_a_shard_of_another_study_is_not_taken_for_ours(self, small, tmp_path):
        other = made.store(tmp_path / "o", made.diagnosed({"find": "useless"}, prompts=2)[0], temperature=0.5)
        name = small.names()[0]
        shutil.rmtree(small.shards / name)
        shutil.copytree(other.shards / name, small.shards / name)
        with pytest.raises(DamagedPiece, match="another study"):
            small.table("branches")
        assert [damage.name for damage in check_store(small.folder).damaged] == [name]

    def test_a_start_that_was_cut_short(self, small):
        study = study_of(small)
        for name in small.names():
            shutil.rmtree(small.shards / name)
        shutil.rmtree(small.decodes)
        damage(small.folder / "manifest.json", "empty")
        litter = small.folder / ".manifest.json.123.partial"
        litter.touch()
        assert Store.create(small.folder, study).names() == []
        assert not litter.exists()

    def test_a_start_beside_another_process(self, tiny_study, tmp_path, monkeypatch):
        """Between the look for a manifest and the look at the folder another process may begin, and even fail."""
        out, read = tmp_path / "out", store_module.read_manifest

        def beaten(folder):
            monkeypatch.setattr(store_module, "read_manifest", read)
            try:
                return read(folder)
            except DamagedManifest:
                Store.create(out, tiny_study.config)
                (out / "failed").mkdir()
                raise

        monkeypatch.setattr(store_module, "read_manifest", beaten)
        assert Store.create(out, tiny_study.config).manifest == read(out)

    def test_what_is_made_first_says_whose_it_is(self, tiny_study, tmp_path, monkeypatch):
        """A folder that another process has just begun is a store's at every moment."""
        out, makes, seen = tmp_path / "out", Path.mkdir, []

        def slow(path, *arguments, **options):
            makes(path, *arguments, **options)
            seen.append(store_module._foreign(out))

        monkeypatch.setattr(Path, "mkdir", slow)
        Store.create(out, tiny_study.config)
        assert seen
        assert not any(seen)

    def test_single_bits(self, small):
        """Every flip is noticed, or changes nothing that a reader sees."""
        flips(small, 150, seed=0)


def damage(path, how):
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "flipped":
        at = len(content) // 2
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    else:
        path.write_bytes(content[: 0 if how == "empty" else len(content) // 2])


def flips(store, count, seed):
    """How many of `count` random flips were noticed."""
    draw, truth = random.Random(seed), everything(store.folder)
    files = {path: content for path, content in files_of(store.folder).items() if content}
    noticed = 0
    for _ in range(count):
        path = draw.choices(list(files), [len(content) for content in files.values()])[0]
        changed = bytearray(files[path])
        at, bit = draw.randrange(len(changed)), draw.randrange(8)
        changed[at] ^= 1 << bit
        path.write_bytes(changed)
        try:
            assert everything(store.folder) == truth, (path, at, bit)
        except UnmaskError:
            noticed += 1
            assert not check_store(store.folder).sound
        path.write_bytes(files[path])
    assert noticed > 0.8 * count
    return noticed


def test_a_run_sets_damaged_shards_aside_and_measures_them_again(tiny_run, tiny_study, tiny_load, tmp_path):
    shutil.copytree(tiny_run.folder, tmp_path / "out")
    store = Store.open(tmp_path / "out")
    first, second, third, *others = store.names()
    damage(store.shards / first / "branches.parquet", "flipped")
    damage(store.shards / second / "shard.json", "cut")
    damage(store.shards / third / "states.parquet", "gone")
    damage(store.folder / "manifest.json", "cut")
    again = Store.create(store.folder, tiny_study.config)
    assert again.set_aside == ["manifest.json", first, second, third]
    assert {path.name for path in again.damaged.iterdir()} == {f"{name}.1" for name in again.set_aside}
    untouched = {name: (store.shards / name / "shard.json").stat().st_mtime_ns for name in others}
    assert run_study(tiny_study, again, tiny_load).complete
    assert again.content_hash() == tiny_run.content_hash()
    assert again.manifest == tiny_run.manifest
    assert check_store(again.folder).sound
    assert untouched == {name: (store.shards / name / "shard.json").stat().st_mtime_ns for name in others}
