"""Folders and addresses, as users type them; and an object store used like a folder."""

from pathlib import Path

import pytest
from unmask.lab.store.places import RemotePath, each, place_of

from unmask.base.errors import ConfigError
from unmask.lab.store import scheme_of


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
        assert place_of(typed) == Path(path)

    @pytest.mark.parametrize("form", ["s3://{}/a/b", "s3://{}//a/b/", "S3://{}/a/b", Path("s3://{}/a/b")])
    def test_of_an_object_store(self, form, bucket):
        typed = type(form)(str(form).format(bucket.name))
        place = place_of(typed)
        assert isinstance(place, RemotePath)
        assert str(place) == f"s3://{bucket.name}/a/b"
        assert place_of(place) is place

    def test_a_whole_bucket(self, bucket):
        bucket.write("one.json", b"1")
        place = place_of(f"s3://{bucket.name}")
        assert [path.name for path in place.iterdir()] == ["some"]
        assert (place / "some" / "study" / "one.json").read_bytes() == b"1"

    @pytest.mark.parametrize(
        ("typed", "words"),
        [
            (
                "ftp://host/x",
                "scheme of 'ftp://host/x' is 'ftp'; allowed: a folder, file:///FOLDER, s3://BUCKET/PREFIX",
            ),
            ("s3://", "address is 's3://'; allowed"),
            ("s3:///x", "no bucket"),
            ("s3://key:secret@bucket/x", "credentials and endpoint from the environment"),
            ("s3://bucket/x?region=eu", "credentials and endpoint from the environment"),
            ("file://elsewhere/x", "write file:// and a whole path"),
            ("file:x", "write file:// and a whole path"),
        ],
    )
    def test_that_are_none(self, typed, words, bucket):
        with pytest.raises(Exception, match=words.replace("(", r"\(")) as caught:
            place_of(typed)
        assert isinstance(caught.value, ConfigError) or "no bucket" in words
        assert "\n" not in str(caught.value)

    def test_their_schemes(self):
        typed = ("s3://b", "s3:b", "gs://b/x", "File:/x", "http://x", "x", "a/b:c", "s3", "gsx:y")
        assert [scheme_of(one) for one in typed] == ["s3", "s3", "gs", "file", "http", "", "", "", ""]


def test_a_prefix_is_used_like_a_folder(bucket, tmp_path):
    """Whatever a store asks, it hears the same of both."""
    names = (
        "shards/a/shard.json",
        "shards/a/states.parquet",
        "shards/b.c/shard.json",
        "failed/x.json",
        "manifest.json",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
        bucket.write(name, name.encode())
    remote = place_of(bucket.address)

    def asked(place):
        some = dict.fromkeys(("shards", "failed", "nothing", "manifest.json", "shard"), place)
        return {
            "there": {
                name: ((p / name).exists(), (p / name).is_file(), (p / name).is_dir()) for name, p in some.items()
            },
            "in": {name: sorted(path.name for path in (place / name).iterdir()) for name in ("shards", "failed")},
            "json": sorted(path.name for path in place.glob("*.json")),
            "read": (place / "shards" / "a" / "shard.json").read_bytes(),
            "up": (place / "shards" / "a").parent.name,
        }

    assert asked(remote) == asked(tmp_path)
    assert sorted(remote.below()) == sorted(names)
    with pytest.raises(FileNotFoundError):
        (remote / "nothing").read_bytes()
    (remote / "new").write_bytes(b"x" * 6_000_000)
    assert bucket.read("new") == b"x" * 6_000_000
    (remote / "new").unlink()
    (remote / "new").unlink()
    assert sorted(remote.below()) == sorted(names)


def test_many_are_read_in_order(bucket, tmp_path):
    for place in (tmp_path, place_of(bucket.address)):
        assert each(place, lambda at: at * at, range(50)) == [at * at for at in range(50)]
        with pytest.raises(ZeroDivisionError):
            each(place, lambda at: 1 // at, [1, 0])
