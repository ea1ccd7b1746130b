"""What an object store may answer, or not: each a line of words, within seconds, and never taken for damage."""

import signal
import socket
import threading

import pytest
from unmask.lab.store.check import check_store
from unmask.lab.store.places import place_of

from tests.helpers import made_studies as made
from unmask.base.errors import StorageError
from unmask.cli.app import main
from unmask.lab.store import DamagedShard, Store, remote
from unmask.lab.store.remote import Owned, Remote


def refusal(address):
    with pytest.raises(StorageError) as caught:
        place_of(address)
    said = str(caught.value)
    assert "\n" not in said
    assert address in said
    return said


class TestWhatIsWrong:
    def test_no_such_bucket(self, bucket, capsys):
        said = refusal("s3://nobody-made-it/study")
        assert f"there is no bucket 'nobody-made-it' at {bucket.server.endpoint}" in said
        assert "create it, or correct the address" in said
        for command in (["status"], ["check"], ["report", "--out", "x"]):
            assert main(["study", command[0], "s3://nobody-made-it/study", *command[1:]]) == 2
            assert said in capsys.readouterr().err

    def test_no_credentials(self, bucket, monkeypatch):
        made.whole(bucket.address).close()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        with pytest.raises(StorageError, match=r"refused us \(access denied.*AWS_ACCESS_KEY_ID is not set") as caught:
            Store.open(bucket.address)
        assert "\n" not in str(caught.value)

    def test_a_bucket_that_may_only_be_read(self, bucket):
        with made.whole(bucket.address) as store:
            hashes, study = store.content_hash(), store.manifest["study"]
        before = bucket.files()
        bucket.deny("s3:PutObject")
        with pytest.raises(StorageError, match=r"refused us \(access denied.*write to it; set AWS_ACCESS") as caught:
            Store.create(bucket.address, study)
        assert "\n" not in str(caught.value)
        assert Store.open(bucket.address).content_hash() == hashes
        assert check_store(bucket.address).sound
        assert bucket.files() == before

    def test_nobody_is_there(self, bucket, monkeypatch):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        assert f"{endpoint} does not answer for 's3://b-b/x'" in refusal("s3://b-b/x")

    @pytest.mark.slow
    def test_a_server_that_does_not_answer(self, bucket, monkeypatch):
        monkeypatch.setattr(remote, "ANSWER_WITHIN", 1)
        monkeypatch.setattr(remote, "ATTEMPTS", 1)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
            said = refusal("s3://b-b/x")
        assert "check AWS_ENDPOINT_URL, AWS_REGION and the network" in said

    def test_an_endpoint_that_is_none(self, bucket, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "gopher://x")
        with pytest.raises(Exception, match="AWS_ENDPOINT_URL") as caught:
            place_of("s3://b-b/x")
        assert "\n" not in str(caught.value)


def test_a_failing_network_is_no_damage(bucket, monkeypatch):
    """Otherwise a run would set aside, and measure again, what it could not read for a moment."""
    with made.whole(bucket.address) as store:
        study = store.manifest["study"]
    read = Remote.get

    def fails(self, key):
        if key.endswith("branches.parquet"):
            raise self._in_words(key, OSError("AWS Error NETWORK_CONNECTION during GetObject"))
        return read(self, key)

    monkeypatch.setattr(Remote, "get", fails)
    for use in (
        check_store,
        lambda address: Store.create(address, study),
        lambda a: Store.open(a).read_arrow("branches"),
    ):
        with pytest.raises(StorageError, match="does not answer") as caught:
            use(bucket.address)
        assert not isinstance(caught.value, DamagedShard)
    monkeypatch.undo()
    assert not any(name.startswith(("damaged/", "lease/")) for name in bucket.files())


@pytest.mark.parametrize("then", [b"x" * 5000, b"four", b"1", None], ids=["longer", "as-long", "shorter", "gone"])
def test_what_is_replaced_while_it_is_read(then, bucket):
    """The old or the new, never a part: or a status would call the manifest damaged that a driver just writes."""
    bucket.write("manifest.json", b"once")
    place = place_of(bucket.address)
    files = place.objects._files

    class Replaced:
        get_file_info = files.get_file_info

        def open_input_stream(self, path):
            stream = files.open_input_stream(path)
            bucket.write("manifest.json", then) if then else bucket.remove("manifest.json")
            return stream

    place.objects._files = Replaced()
    if then is None:
        with pytest.raises(FileNotFoundError):
            (place / "manifest.json").read_bytes()
    else:
        assert (place / "manifest.json").read_bytes() == then


def test_who_interrupts_a_put_does_not_cut_it_short(bucket):
    """A stream that is given up puts what it has: nothing, over what was there."""
    bucket.write("manifest.json", b"old")
    place = place_of(bucket.address)
    plain = place.objects._files

    class Interrupted:
        def open_output_stream(self, path):
            stream = plain.open_output_stream(path)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return stream

    place.objects._files = Interrupted()
    # Where tests run in the background the signal is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            (place / "manifest.json").write_bytes(b"new")
    finally:
        signal.signal(signal.SIGINT, before)
    for thread in [one for one in threading.enumerate() if one.name == "unmask-put"]:
        thread.join()
    assert bucket.read("manifest.json") == b"new"


class TestOwned:
    @pytest.fixture
    def asked(self, bucket, monkeypatch):
        """What the server is asked for, but for heartbeats."""
        heard = []

        def noting(name, ask):
            def noted(self, key, **options):
                heard.extend([name] if "/lease/" not in key else [])
                return ask(self, key, **options)

            return noted

        for name in ("get", "exists", "list"):
            monkeypatch.setattr(Remote, name, noting(name, getattr(Remote, name)))
        return heard

    def test_what_is_known_is_not_asked_for(self, bucket, asked):
        with made.whole(bucket.address) as store:
            asked.clear()
            for _ in range(3):
                assert len(list(store.infos().values())) == 2
                assert len(store.names()) == 2
                assert store.manifest["models"]
            assert asked == []
            store.read_arrow("branches")
            assert asked == ["get", "get"]

    def test_what_others_put_is_learned(self, bucket):
        bucket.write("a.json", b"1")
        place = place_of(bucket.address)
        owned = Owned(place.objects, lambda: None, place.key)
        key = (place / "b.json").key
        bucket.write("b.json", b"2")
        assert not owned.exists(key)
        with pytest.raises(FileNotFoundError):
            owned.get(key)
        owned.learn(key)
        assert (owned.exists(key), owned.get(key)) == (True, b"2")
        bucket.write("b.json", b"3")
        owned.learn(key)
        assert owned.get(key) == b"3"
        owned.delete(key)
        assert "b.json" not in bucket.files()
        assert list(owned.list(place.key)) == [(place / "a.json").key]
