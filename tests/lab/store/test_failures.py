"""What failed, as a study's folder keeps it."""

import json

import pytest

from unmask.base.errors import SchemaError
from unmask.lab.store import ATTEMPTS, Shard, Store
from unmask.lab.store.failures import LONGEST_ERROR, LONGEST_TRACEBACK

SHARD = Shard(kind="branches", model="tiny", task="mine", split="validation", depends="f00d")
DECODES = Shard(kind="decodes", model="tiny", task="mine", depends="cafe")


@pytest.fixture
def failures(tmp_path):
    return Store(tmp_path).failures


def raised(error):
    """The error with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


def test_counts_until_it_is_set_aside(failures):
    for attempt in range(1, ATTEMPTS + 1):
        failure = failures.add(SHARD, raised(ValueError(f"no {attempt}")))
        assert (failure.attempts, failure.is_set_aside) == (attempt, attempt == ATTEMPTS)
    again = failures.of(SHARD)
    assert again == failure
    assert (again.error, again.model, again.task) == ("ValueError: no 3", "tiny", "mine")
    assert "raise error" in again.traceback
    assert failures.set_aside() == [again]
    failures.add(DECODES, raised(KeyError("b")))
    assert [failure.name for failure in failures.all()] == sorted([SHARD.name, DECODES.name])
    failures.forget(SHARD)
    failures.forget(SHARD)
    assert [failure.name for failure in failures.all()] == [DECODES.name]
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
def test_any_error_can_be_kept_and_printed(error, failures):
    failure = failures.add(SHARD, raised(error))
    assert failures.of(SHARD) == failure
    assert failure.error.encode().decode() == failure.error
    assert failure.traceback.encode().decode() == failure.traceback
    assert "\n" not in failure.error
    assert len(failure.error) <= LONGEST_ERROR
    assert len(failure.traceback) <= LONGEST_TRACEBACK


@pytest.mark.parametrize("change", ["flip", "cut", "empty", "count", "bytes"])
def test_a_damaged_file_is_refused_with_what_to_do(change, failures, tmp_path):
    failures.add(SHARD, raised(ValueError("a")))
    (path,) = (tmp_path / "failed").iterdir()
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
