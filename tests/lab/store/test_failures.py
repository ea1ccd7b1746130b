"""What failed, as a study's folder keeps it."""

import json

import pytest

from unmask.base.errors import SchemaError
from unmask.lab.store import ATTEMPTS, Failures, Shard
from unmask.lab.store.failures import LONGEST_ERROR, LONGEST_TRACEBACK

SHARD = Shard("tiny", "mine", "validation", 0, "f00d")
UNIT = Unit("tiny", "mine", "cafe")


def raised(error):
    """The error with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


def test_counts_until_it_is_set_aside(tmp_path):
    for attempt in range(1, ATTEMPTS + 1):
        failure = Failures(tmp_path).add(SHARD, raised(ValueError(f"no {attempt}")))
        assert (failure.attempts, failure.is_set_aside) == (attempt, attempt == ATTEMPTS)
    again = Failures(tmp_path).of(SHARD)
    assert again == failure
    assert (again.error, again.model, again.task) == ("ValueError: no 3", "tiny", "mine")
    assert "raise error" in again.traceback
    assert again.versions["unmask"]
    assert Failures(tmp_path).set_aside() == [again]


def test_shards_and_units_are_counted_apart_and_forgotten_apart(tmp_path):
    failures = Failures(tmp_path)
    assert failures.all() == []
    failures.add(SHARD, raised(ValueError("a")))
    failures.add(UNIT, raised(KeyError("b")))
    assert [failure.name for failure in failures.all()] == sorted([SHARD.name, UNIT.name])
    failures.forget(SHARD)
    failures.forget(SHARD)
    assert [failure.name for failure in failures.all()] == [UNIT.name]
    failures.forget_all()
    assert failures.all() == failures.set_aside() == []


class Rude(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [ValueError("\ud800"), ValueError("x" * 10**6), ValueError("a\nb\0c"), Rude(), SystemExit("\udfff"), OSError()],
    ids=["half", "long", "lines", "rude", "exit", "empty"],
)
def test_any_error_can_be_kept_and_printed(error, tmp_path):
    failure = Failures(tmp_path).add(SHARD, raised(error))
    assert Failures(tmp_path).of(SHARD) == failure
    assert failure.error.encode().decode() == failure.error
    assert failure.traceback.encode().decode() == failure.traceback
    assert "\n" not in failure.error
    assert len(failure.error) <= LONGEST_ERROR
    assert len(failure.traceback) <= LONGEST_TRACEBACK


@pytest.mark.parametrize("change", ["flip", "cut", "empty", "count", "bytes"])
def test_a_damaged_file_is_refused_with_what_to_do(change, tmp_path):
    failures = Failures(tmp_path)
    failures.add(SHARD, raised(ValueError("a")))
    (path,) = failures.home.iterdir()
    content = bytearray(path.read_bytes())
    if change == "flip":
        content[content.index(b"ValueError")] ^= 1
    elif change == "count":
        whole = json.loads(content)
        whole["body"]["attempts"] = 0
        content = json.dumps(whole).encode()
    path.write_bytes({"cut": content[:40], "empty": b"", "bytes": b"\xff\xfe"}.get(change, content))
    for read in (lambda: failures.of(SHARD), failures.all):
        with pytest.raises(SchemaError, match=r"cannot be read.*--retry-failed"):
            read()
    failures.forget_all()
    assert failures.all() == []
