"""Studies at an address: the same shards as in a folder, finished by name, wherever a run was cut short."""

import json
from contextlib import contextmanager

import pytest

from tests.helpers import made_studies as made
from tests.helpers.tiny_studies import TEXT
from unmask.base.errors import OtherStudy, StorageError
from unmask.cli.app import main
from unmask.lab.analysis import analyse
from unmask.lab.run.driver import run_study
from unmask.lab.store import DamagedPiece, Store
from unmask.lab.store.check import check_store
from unmask.lab.store.failures import Failures
from unmask.lab.store.lease import Lease, LeaseLost, _who
from unmask.lab.store.pieces import TABLES, read_table
from unmask.lab.store.remote import Remote
from unmask.lab.store.shards import Shard, Unit

PUTS = 15
"""Of the store below: two of the lease, manifest, task, model, two shards of four files, a unit of two."""


class Killed(BaseException):
    """Nothing is done any more, not even cleaning up."""


@contextmanager
def dying(n, *, orderly=False):
    """The n-th put is the last thing that the process tries; an `orderly` one only fails, and the process goes on."""
    left, plain_put, plain_delete = [n], Remote.put, Remote.delete

    def put(self, key, content):
        left[0] -= 1
        if left[0] == 0 and orderly:
            raise self._in_words(key, OSError("AWS Error NETWORK_CONNECTION during PutObject"))
        if left[0] <= 0 and not orderly:
            raise Killed
        plain_put(self, key, content)

    def delete(self, key):
        if left[0] <= 0 and not orderly:
            raise Killed
        plain_delete(self, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Remote, "put", put)
        patch.setattr(Remote, "delete", delete)
        # Heartbeats would be counted, and go on after death.
        patch.setattr(Lease, "_beat_on", lambda self: None)
        yield left


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small store of this machine, to be read only."""
    return made.whole(tmp_path_factory.mktemp("whole") / "s")


def resume(address, source):
    """What a run does, with everything computed beforehand: begin or go on, and write what is not there yet."""
    written = []
    with Store.create(address, source.manifest["study"]) as store:
        for part in ("tasks", "models"):
            for name, about in source.manifest[part].items():
                store.note(part, name, about)
        for kind in (Shard, Unit):
            for folder, info in source._pieces(kind):
                work = kind(**info[kind.__name__.lower()])
                with store.claim(work) as ours:
                    if not ours:
                        continue
                    tables = {name: read_table(folder, name, info) for name in TABLES[kind]}
                    put = store.write if kind is Shard else store.write_decodes
                    put(work, **tables, info={key: info[key] for key in info if key not in ("tables", "study", "code")})
                    written.append(work.name)
    return written


def files_of(folder):
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in files.items() if not name.startswith("locks/")}


class TestRuns:
    def test_at_an_address_as_in_a_folder(self, tiny_run, tiny_study, tiny_load, bucket, tmp_path):
        with Store.create(bucket.address, tiny_study.config) as store:
            outcome = run_study(tiny_study, store, tiny_load)
        assert outcome.complete
        assert outcome.hashes == tiny_run.content_hash()
        there, here = bucket.files(), files_of(tiny_run.folder)
        assert set(there) == set(here)
        assert all(there[name] == here[name] for name in there if not name.endswith("shard.json"))
        # What was copied to a folder is a store there.
        for name, content in there.items():
            (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "copy" / name).write_bytes(content)
        assert check_store(tmp_path / "copy").sound
        assert Store.open(f"file://{tmp_path}/copy").content_hash() == outcome.hashes

    def test_from_the_shell(self, tiny_folder, bucket, tmp_path, capsys, monkeypatch):
        """The lease is let go however the command ends."""
        file = tmp_path / "study.toml"
        file.write_text(TEXT.replace("FOLDER", str(tiny_folder)), encoding="utf-8")
        command = ["study", "run", str(file), "--out", bucket.address, "--quiet"]

        def stopped(spec):
            assert len(bucket.leases()) == 1
            assert main(["study", "status", bucket.address]) == 0
            assert f"held by {_who()}" in capsys.readouterr().out
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("unmask.cli.study.load_model", stopped)
            assert main(command) == 130
        assert "0 shards are kept; the same command goes on" in capsys.readouterr().err
        assert set(bucket.files()) == {"manifest.json"}
        with Store.open(bucket.address) as reader:
            assert reader.manifest["study"]["name"] == "tiny"
            assert reader.held is None

    def test_killed_and_resumed(self, tiny_run, tiny_study, tiny_load, bucket):
        with dying(11), pytest.raises(Killed):
            run_study(tiny_study, Store.create(bucket.address, tiny_study.config), tiny_load)
        assert Store.open(bucket.address).held.startswith(f"held by {_who()}, since ")
        there = bucket.files()
        assert sum(name.endswith("states.parquet") for name in there) == 2
        bucket.age(100)
        assert Store.open(bucket.address).held.startswith(f"left behind by {_who()}, since ")
        with Store.create(bucket.address, tiny_study.config) as store:
            (finished,) = store.names()
            outcome = run_study(tiny_study, store, tiny_load)
        assert outcome.hashes == tiny_run.content_hash()
        after = bucket.files()
        assert set(after) == set(files_of(tiny_run.folder))
        assert {name for name in there if finished in name and after[name] != there[name]} == set()


class TestBetweenTwoPuts:
    def test_as_many_as_were_counted(self, whole, bucket):
        with dying(1000) as left:
            assert len(resume(bucket.address, whole)) == 3
        assert 1000 - left[0] == PUTS
        assert bucket.files() == files_of(whole.folder)
        assert resume(bucket.address, whole) == []

    @pytest.mark.parametrize("n", [2, 3, 5, 8, 9, 10, 15])
    def test_nothing_is_lost_and_nothing_twice(self, n, whole, bucket):
        orderly = n % 2 == 0
        with dying(n, orderly=orderly), pytest.raises(StorageError if orderly else Killed):
            resume(bucket.address, whole)
        there = bucket.files()
        finished = [name.split("/")[1] for name in there if name.endswith(("shard.json", "unit.json"))]
        assert len(finished) == (n > 9) + (n > 13)
        assert bool(bucket.leases()) != orderly
        bucket.age(100)
        assert len(resume(bucket.address, whole)) == 3 - len(finished)
        assert bucket.files() == files_of(whole.folder)

    def test_a_half_written_shard_is_not_read(self, whole, bucket):
        with dying(8, orderly=True), pytest.raises(StorageError):
            resume(bucket.address, whole)
        store = Store.open(bucket.address)
        assert (store.names(), store.decoded(), len(store.table("states"))) == ([], [], 0)
        check = check_store(bucket.address)
        assert (check.sound, check.shards, check.planned) == (True, 0, 2)


class TestInPlace:
    @pytest.fixture
    def address(self, whole, bucket):
        for name, content in files_of(whole.folder).items():
            bucket.write(name, content)
        return bucket.address

    def test_status(self, address, whole, capsys):
        told = {}
        for place in (address, str(whole.folder)):
            assert main(["study", "status", place]) == 0
            told[place] = capsys.readouterr().out
        assert told[address] == told[str(whole.folder)]

    def test_check(self, address, bucket, capsys):
        assert main(["study", "check", address]) == 0
        assert f"{address}: sound" in capsys.readouterr().out
        name = next(name for name in bucket.files() if name.endswith("readings.parquet"))
        bucket.write(name, b"PAR1")
        assert main(["study", "check", address, "--json"]) == 1
        told = json.loads(capsys.readouterr().out)
        assert [one["name"] for one in told["damaged"]] == [name.split("/")[1]]

    def test_findings_and_report(self, bucket, tmp_path, capsys):
        tables, read = made.diagnosed({"find": "finds"}, prompts=2)
        local, address = made.store(tmp_path / "s", tables, read=read), bucket.address
        for name, content in files_of(local.folder).items():
            bucket.write(name, content)
        before = bucket.files()
        there, here = (analyse(Store.open(place), resamples=50, draws=5) for place in (address, local.folder))
        assert there.study.hashes == here.study.hashes
        assert there.frame.equals(here.frame)
        assert main(["study", "report", address, "--out", str(tmp_path / "r")]) == 0
        assert (tmp_path / "r" / "report.html").is_file()
        for refused in ([], ["--out", address]):
            assert main(["study", "report", address, *refused]) == 2
            assert "allowed: a folder of this machine; add --out FOLDER" in capsys.readouterr().err
        assert bucket.files() == before

    def test_nothing_there(self, bucket, capsys):
        for command in ("status", "check"):
            assert main(["study", command, bucket.address]) == 2
            assert f"no study in '{bucket.address}'" in capsys.readouterr().err


class TestWriting:
    def test_what_is_damaged_is_set_aside(self, whole, bucket):
        resume(bucket.address, whole)
        name = whole.names()[0]
        bad = {f"shards/{name}/states.parquet": b"cut", "manifest.json": b"{}"}
        for path, content in bad.items():
            bucket.write(path, content)
        good = bucket.read(f"shards/{name}/shard.json")
        assert resume(bucket.address, whole) == [name]
        aside = {path: content for path, content in bucket.files().items() if path.startswith("damaged/")}
        assert aside[f"damaged/{name}.1/states.parquet"] == b"cut"
        assert aside[f"damaged/{name}.1/shard.json"] == good
        assert aside["damaged/manifest.json.1"] == b"{}"
        assert {path: content for path, content in bucket.files().items() if path not in aside} == files_of(
            whole.folder
        )

    def test_failures_are_counted_there(self, whole, bucket):
        with made.whole(bucket.address) as store:
            shard = Shard(**store.infos()[0]["shard"])
            for attempt in (1, 2, 3):
                assert Failures(store.folder).add(shard, ValueError("no")).attempts == attempt
            assert [one.name for one in Failures(bucket.address).set_aside()] == [shard.name]
            Failures(store.folder).forget_all()
        assert Failures(bucket.address).all() == []

    def test_what_is_something_else_is_left_alone(self, bucket, whole):
        bucket.write("thesis.tex", b"mine")
        with pytest.raises(OtherStudy, match="is in use and has no study in it"):
            Store.create(bucket.address, whole.manifest["study"])
        assert bucket.files() == {"thesis.tex": b"mine"}

    def test_only_the_driver_writes(self, whole, bucket):
        store = made.whole(bucket.address)
        info = store.infos()[0]
        store.close()
        before = bucket.files()
        for reader in (store, Store.open(bucket.address)):
            with pytest.raises(StorageError, match=r"opened to be read.*use Store\.create"):
                reader.note("tasks", "x", {})
            with pytest.raises(StorageError, match="opened to be read"):
                reader.write(Shard(**info["shard"]), reader.table("states"), reader.table("branches"), info)
        with pytest.raises(StorageError, match="opened to be read"):
            Store.join(bucket.address, None)
        assert bucket.files() == before

    def test_workers_write_for_the_driver(self, whole, bucket):
        (first, info), (second, later) = whole._pieces(Shard)
        tables = {name: read_table(first, name, info) for name in TABLES[Shard]}
        shard = Shard(**info["shard"])
        driver = Store.create(bucket.address, whole.manifest["study"])
        driver.note("models", "small", whole.manifest["models"]["small"])
        worker = Store.join(bucket.address, driver.token)
        worker.write(shard, **tables, info=info)
        assert not driver.finished(shard)
        driver.learn(shard)
        assert driver.finished(shard)
        assert (driver.names(), driver.infos()[0]["shard"]) == ([shard.name], info["shard"])
        stored = bucket.files()
        worker.write(shard, **tables, info={**info, "seconds": 99.0})
        assert bucket.files() == stored
        worker.close()
        assert bucket.leases()
        worker = Store.join(bucket.address, driver.token)
        driver.close()
        with pytest.raises(LeaseLost, match="the driver's lease is not there any more"):
            worker.write(Shard(**later["shard"]), **tables, info=later)
        assert not any(second.name in name for name in bucket.files())

    def test_workers_of_a_folder_need_no_token(self, whole, tmp_path):
        assert whole.token is None
        store = Store.join(whole.folder, None)
        assert store.content_hash() == whole.content_hash()

    def test_a_piece_of_another_study_is_refused(self, whole, bucket):
        resume(bucket.address, whole)
        name = whole.names()[0]
        text = bucket.read(f"shards/{whole.names()[1]}/shard.json")
        bucket.write(f"shards/{name}/shard.json", text)
        with pytest.raises(DamagedPiece, match=f"'{name}' in '{bucket.address}/shards' is damaged"):
            Store.open(bucket.address).infos()
