"""Studies at an address: the same shards as in a folder, wherever a run was cut short; every failure a sentence."""

import json
import socket
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers import made_studies as made
from tests.helpers.tiny_studies import TEXT
from unmask.base.errors import ConfigError, OtherStudy, StorageError
from unmask.cli.app import main
from unmask.lab.store import DamagedShard, Shard, Store, objects
from unmask.lab.store.lease import Lease, driver_name
from unmask.lab.store.objects import Objects
from unmask.lab.store.remote import LocalFiles, RemoteFiles, open_files
from unmask.lab.study.protocol import run_study

PUTS = 13
"""Puts of the store below: manifest, task, model, two shards of four files, a unit of two; `finish` is not called."""


class Killed(BaseException):
    """Nothing is done any more, not even cleaning up."""


@contextmanager
def dying(n, *, orderly=False):
    """The n-th put is the last thing that the process tries; an `orderly` one only fails, and the process goes on."""
    left, plain_put, plain_remove = [n], Objects.upload, Objects.remove

    def put(self, name, content):
        # Leases are put by a thread, too.
        left[0] -= not name.startswith("lease/")
        if left[0] == 0 and orderly and not name.startswith("lease/"):
            raise StorageError("the network is gone")
        if left[0] <= 0 and not orderly:
            raise Killed
        plain_put(self, name, content)

    def remove(self, name):
        if left[0] <= 0 and not orderly:
            raise Killed
        plain_remove(self, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Objects, "upload", put)
        patch.setattr(Objects, "remove", remove)
        # A heartbeat would go on after death.
        patch.setattr(Lease, "_keep_alive", lambda self: None)
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
                store.set_metadata(part, name, about)
        for kind in ("branches", "decodes"):
            for shard, info in source.infos(kind).items():
                with store.claim(shard) as ours:
                    if ours:
                        tables = {name: source.read_arrow(name, shards=[shard]) for name in shard.layout.tables}
                        store.write(shard, tables, {key: info[key] for key in info if key != "tables"})
                        written.append(shard.name)
    return written


def files_of(folder):
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in files.items() if not name.startswith("locks/")}


def shards_of(files):
    return {name: content for name, content in files.items() if "/" in name}


class TestAddresses:
    @pytest.mark.parametrize(
        ("typed", "path"),
        [
            ("out/study", "out/study"),
            (Path("out"), "out"),
            ("file:///tmp/a%20b", "/tmp/a b"),
            ("file:/tmp/x", "/tmp/x"),
            ("FILE://localhost/tmp/x", "/tmp/x"),
            ("odd:name", "odd:name"),
            ("C:\\out", "C:\\out"),
        ],
    )
    def test_of_this_machine(self, typed, path):
        files = open_files(typed)
        assert isinstance(files, LocalFiles)
        assert files.address == Path(path)

    @pytest.mark.parametrize("form", ["s3://{}/a/b", "s3://{}//a/b/", "S3://{}/a/b", Path("s3://{}/a/b")])
    def test_of_an_object_store(self, form, bucket):
        files = open_files(type(form)(str(form).format(bucket.name)))
        assert isinstance(files, RemoteFiles)
        assert files.address == f"s3://{bucket.name}/a/b"

    @pytest.mark.parametrize(
        ("typed", "words"),
        [
            ("ftp://host/x", "scheme of 'ftp://host/x' is 'ftp'; allowed: a folder, file:///FOLDER, s3://BUCKET"),
            ("s3://", "address is 's3://'; allowed"),
            ("s3:///x", "no bucket"),
            ("s3://key:secret@bucket/x", "credentials and endpoint from the environment"),
            ("s3://bucket/x?region=eu", "credentials and endpoint from the environment"),
            ("file://elsewhere/x", "write file:// and a whole path"),
            ("file:x", "write file:// and a whole path"),
        ],
    )
    def test_that_are_none(self, typed, words, bucket):
        with pytest.raises((ConfigError, StorageError), match=words) as caught:
            open_files(typed)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(("scheme", "package"), [("s3", "s3fs"), ("gs", "gcsfs")])
    def test_without_its_package(self, scheme, package, monkeypatch):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ConfigError, match=rf"pip install 'unmask\[{scheme}\]'"):
            open_files(f"{scheme}://bucket/x")


class TestWhatIsWrong:
    def test_no_such_bucket(self, bucket, capsys):
        for command in (["status"], ["status", "--verify"], ["report", "--out", "x"]):
            assert main(["study", command[0], "s3://nobody-made-it/study", *command[1:]]) == 2
            told = capsys.readouterr().err
            assert f"there is no bucket 'nobody-made-it' at {bucket.server.endpoint}" in told
            assert "create it, or correct the address" in told

    def test_a_bucket_that_is_gone_when_something_is_put(self, bucket):
        objects = open_files(bucket.address).objects
        objects.root = "nobody-made-it/study"
        for put in (objects.upload, objects.create):
            with pytest.raises(StorageError, match="there is no bucket"):
                put("manifest.json", b"{}")

    def test_no_credentials(self, bucket, monkeypatch):
        made.whole(bucket.address).close()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        with pytest.raises(StorageError, match=r"refused us \(.*AWS_ACCESS_KEY_ID is not set") as caught:
            Store.open(bucket.address)
        assert "\n" not in str(caught.value)

    def test_a_bucket_that_may_only_be_read(self, bucket):
        with made.whole(bucket.address) as store:
            hashes, study = store.content_hash(), store.manifest["study"]
        before = bucket.files()
        bucket.deny("s3:PutObject")
        with pytest.raises(StorageError, match=r"refused us \(.*write to it; set AWS_ACCESS"):
            Store.create(bucket.address, study)
        assert Store.open(bucket.address).content_hash() == hashes
        assert Store(bucket.address).check() == []
        assert bucket.files() == before

    def test_nobody_is_there(self, bucket, monkeypatch):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(StorageError, match=rf"'s3://b-b/x' cannot be used: {endpoint} says") as caught:
            open_files("s3://b-b/x")
        assert "\n" not in str(caught.value)

    def test_a_failing_network_is_no_damage(self, bucket, monkeypatch):
        """Otherwise a run would set aside, and measure again, what it could not read for a moment."""
        with made.whole(bucket.address) as store:
            study = store.manifest["study"]
        open_s3 = objects._open_s3

        def broken(*how):
            filesystem = open_s3(*how)
            read = filesystem.cat_file

            def cat_file(path):
                if path.endswith("branches.parquet"):
                    raise TimeoutError("gone")
                return read(path)

            filesystem.cat_file = cat_file
            return filesystem

        monkeypatch.setattr(objects, "_open_s3", broken)
        address = bucket.address
        uses = (
            Store(address).check,
            lambda: Store.create(address, study),
            lambda: Store.open(address).read("branches"),
        )
        for use in uses:
            with pytest.raises(StorageError, match="cannot be used") as caught:
                use()
            assert not isinstance(caught.value, DamagedShard)
        monkeypatch.undo()
        assert not any(name.startswith("damaged/") for name in bucket.files())


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
        assert Store(tmp_path / "copy").check() == []
        assert Store.open(f"file://{tmp_path}/copy").content_hash() == outcome.hashes

    def test_from_the_shell(self, tiny_folder, bucket, tmp_path, capsys, monkeypatch):
        """The lease is let go however the command ends."""
        file = tmp_path / "study.toml"
        file.write_text(TEXT.replace("FOLDER", str(tiny_folder)), encoding="utf-8")

        def stopped(spec):
            assert len(bucket.leases()) == 1
            assert main(["study", "status", bucket.address]) == 0
            assert f"held by {driver_name()}" in capsys.readouterr().out
            raise KeyboardInterrupt

        monkeypatch.setattr("unmask.cli.study.load_model", stopped)
        assert main(["study", "run", str(file), "--out", bucket.address, "--quiet"]) == 130
        assert "0 shards are kept; the same command goes on" in capsys.readouterr().err
        assert set(bucket.files()) == {"manifest.json"}
        assert bucket.leases() == []
        with Store.open(bucket.address) as reader:
            assert reader.manifest["study"]["name"] == "tiny"
            assert reader.files.lease_holder == ""

    def test_killed_and_resumed(self, tiny_run, tiny_study, tiny_load, bucket):
        with dying(9), pytest.raises(Killed):
            run_study(tiny_study, Store.create(bucket.address, tiny_study.config), tiny_load)
        assert Store.open(bucket.address).files.lease_holder.startswith(f"held by {driver_name()}, since ")
        there = bucket.files()
        assert sum(name.endswith("states.parquet") for name in there) == 2
        bucket.age(100)
        assert Store.open(bucket.address).files.lease_holder.startswith(f"left behind by {driver_name()}, since ")
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
        assert shards_of(bucket.files()) == shards_of(files_of(whole.folder))
        assert resume(bucket.address, whole) == []

    @pytest.mark.parametrize("n", [1, 2, 6, 7, 8, 13])
    def test_nothing_is_lost_and_nothing_twice(self, n, whole, bucket):
        orderly = n % 2 == 0
        with dying(n, orderly=orderly), pytest.raises(StorageError if orderly else Killed):
            resume(bucket.address, whole)
        finished = [name for name in bucket.files() if name.endswith(("shard.json", "unit.json"))]
        assert len(finished) == (n > 7) + (n > 11)
        assert bool(bucket.leases()) != orderly
        bucket.age(100)
        assert len(resume(bucket.address, whole)) == 3 - len(finished)
        assert shards_of(bucket.files()) == shards_of(files_of(whole.folder))

    def test_a_half_written_shard_is_not_read(self, whole, bucket):
        with dying(6, orderly=True), pytest.raises(StorageError):
            resume(bucket.address, whole)
        store = Store.open(bucket.address)
        assert (store.names(), store.names("decodes"), len(store.read("states"))) == ([], [], 0)
        assert store.check() == []


class TestInPlace:
    @pytest.fixture
    def address(self, whole, bucket):
        for name, content in files_of(whole.folder).items():
            bucket.write(name, content)
        return bucket.address

    def test_status_and_check(self, address, whole, bucket, capsys):
        told = {}
        for place in (address, str(whole.folder)):
            assert main(["study", "status", place]) == 0
            told[place] = capsys.readouterr().out
        assert told[address] == told[str(whole.folder)]
        assert main(["study", "status", "--verify", address]) == 0
        assert f"{address}: sound" in capsys.readouterr().out
        name = next(name for name in bucket.files() if name.endswith("readings.parquet"))
        bucket.write(name, b"PAR1")
        assert main(["study", "status", "--verify", address, "--json"]) == 1
        assert [one["name"] for one in json.loads(capsys.readouterr().out)["damaged"]] == [name.split("/")[1]]


class TestWriting:
    def test_what_is_damaged_is_set_aside(self, whole, bucket):
        resume(bucket.address, whole)
        name = whole.names()[0]
        bad = {f"shards/{name}/states.parquet": b"cut", "manifest.json": b"{}"}
        good = bucket.read(f"shards/{name}/shard.json")
        for path, content in bad.items():
            bucket.write(path, content)
        assert resume(bucket.address, whole) == [name]
        aside = {path: content for path, content in bucket.files().items() if path.startswith("damaged/")}
        assert aside[f"damaged/{name}.1/states.parquet"] == b"cut"
        assert aside[f"damaged/{name}.1/shard.json"] == good
        assert aside["damaged/manifest.json.1"] == b"{}"
        kept = {path: content for path, content in bucket.files().items() if path not in aside}
        assert shards_of(kept) == shards_of(files_of(whole.folder))

    def test_failures_are_counted_there(self, bucket):
        with made.whole(bucket.address) as store:
            (shard, *_) = store.infos()
            for attempt in (1, 2, 3):
                assert store.failures.add(shard, ValueError("no")).attempts == attempt
            assert [one.name for one in Store.open(bucket.address).failures.set_aside()] == [shard.name]
            store.failures.forget_all()
            assert store.failures.all() == []

    def test_what_is_something_else_is_left_alone(self, bucket, whole):
        bucket.write("thesis.tex", b"mine")
        with pytest.raises(OtherStudy, match="is in use and has no study in it"):
            Store.create(bucket.address, whole.manifest["study"])
        assert bucket.files() == {"thesis.tex": b"mine"}

    def test_only_the_driver_writes(self, bucket):
        store = made.whole(bucket.address)
        store.close()
        before = bucket.files()
        shard = Shard(kind="decodes", model="m", task="t", depends="d")
        for reader in (store, Store.open(bucket.address)):
            with pytest.raises(StorageError, match=r"opened to be read.*use Store\.create"):
                reader.set_metadata("tasks", "x", {})
            with pytest.raises(StorageError, match="opened to be read"):
                reader.write(shard, {}, {})
        assert bucket.files() == before
