"""One driver at a time at an address: who is refused, who takes over, and who stops writing."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.helpers import made_studies as made
from unmask.base.errors import StorageError
from unmask.cli.app import main
from unmask.lab.store import Store
from unmask.lab.store import lease as leases
from unmask.lab.store.lease import HEARTBEAT_SECONDS, MISSED_HEARTBEATS, Lease, LeaseLost, StoreHeld
from unmask.lab.store.remote import open_files

LASTS = HEARTBEAT_SECONDS * MISSED_HEARTBEATS


@pytest.fixture
def objects(bucket):
    return open_files(bucket.address).quick


def until_lost(lease, meanwhile=lambda: None):
    """The error that the lease raises, soon."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        meanwhile()
        try:
            lease.check()
        except LeaseLost as error:
            return str(error)
        time.sleep(0.01)
    raise AssertionError("it was never lost")


def test_a_second_driver_is_refused_with_who_holds_it(objects, bucket):
    first = Lease(objects).take()
    (name,) = bucket.leases()
    told = json.loads(bucket.read(name))
    with pytest.raises(StoreHeld) as caught:
        Lease(objects).take()
    assert f"{bucket.address!r} is held by {told['who']}, since {told['since']}" in str(caught.value)
    assert re.search(r"wait until it has ended, or if it is dead, \d+ s from now", str(caught.value))
    assert bucket.leases() == [name]
    first.check()
    first.release()
    first.release()
    assert bucket.leases() == []
    second = Lease(objects).take()
    assert bucket.leases() == ["lease/000002.json"]
    second.release()


def test_of_many_at_once_exactly_one_is_let_in(objects, bucket):
    def take(_):
        try:
            return Lease(objects).take()
        except StoreHeld:
            return None

    for _ in range(3):
        with ThreadPoolExecutor(4) as pool:
            held = [lease for lease in pool.map(take, range(4)) if lease is not None]
        assert len(held) == len(bucket.leases()) == 1
        held[0].check()
        held[0].release()


def test_a_slow_newcomer_cannot_take_a_number_that_was_used_before(objects, monkeypatch):
    """It saw lease 1 given back; meanwhile others held 2 and hold 3, so that 2 is free again."""
    Lease(objects).take().release()
    slow, seen = Lease(objects), leases._list_numbers
    looks = iter([[1]])
    Lease(objects).take().release()
    holder = Lease(objects).take()
    monkeypatch.setattr(leases, "_list_numbers", lambda objects: next(looks, None) or seen(objects))
    with pytest.raises(StoreHeld, match="is held by"):
        slow.take()
    assert seen(objects) == [3]
    holder.check()
    holder.release()


def test_a_put_whose_answer_was_lost_is_still_ours(objects, bucket, monkeypatch):
    create = type(objects).create
    monkeypatch.setattr(type(objects), "create", lambda *given: create(*given) and False)
    lease = Lease(objects).take()
    assert len(bucket.leases()) == 1
    lease.release()


def test_a_store_that_replaces_what_it_must_not_is_refused(objects, bucket, monkeypatch):
    monkeypatch.setattr(type(objects), "create", lambda self, name, content: self.upload(name, content) or True)
    with pytest.raises(StorageError, match="honours If-None-Match"):
        Lease(objects).take()
    assert bucket.leases() == []


def test_a_dead_driver_is_replaced_and_knows_it(objects, bucket, monkeypatch):
    dead = Lease(objects, every=1000.0).take()
    bucket.age(1000 * MISSED_HEARTBEATS - 500)
    with pytest.raises(StoreHeld, match=r"last heard of 5[5-9]\d\d s ago"):
        Lease(objects).take()
    bucket.age(1000)
    second = Lease(objects).take()
    clock = leases._clock_seconds
    monkeypatch.setattr(leases, "_clock_seconds", lambda: clock() + 1000 * MISSED_HEARTBEATS + 1)
    with pytest.raises(LeaseLost, match=r"no heartbeat came through for 6000 s.*nothing more is written"):
        dead.check()
    monkeypatch.undo()
    dead.release()
    second.check()
    assert bucket.leases() == ["lease/000002.json"]
    second.release()


def test_heartbeats_keep_it(objects, bucket):
    lease = Lease(objects, every=0.02, missed=100_000).take()
    (name,) = bucket.leases()
    bucket.age(100_000)
    while json.loads(bucket.read(name))["beats"] < 4:
        time.sleep(0.01)
    with pytest.raises(StoreHeld):
        Lease(objects).take()
    lease.check()
    lease.release()


def test_one_that_is_removed_is_lost(objects, bucket):
    lease = Lease(objects, every=0.02, missed=100_000).take()
    (name,) = bucket.leases()
    # A heartbeat that is under way puts it once more.
    assert "it was removed" in until_lost(lease, lambda: bucket.remove(name))
    lease.release()


def test_one_whose_heartbeats_fail_is_lost(objects, bucket):
    lease = Lease(objects, every=0.02, missed=5).take()
    bucket.deny("s3:PutObject")
    assert "no heartbeat came through for 0.1 s" in until_lost(lease)
    lease.release()


def test_one_that_cannot_be_read_holds_until_it_is_old(objects, bucket):
    bucket.write("lease/000001.json", b"{")
    with pytest.raises(StoreHeld, match="an unknown driver"):
        Lease(objects).take()
    bucket.age(LASTS + 5)
    Lease(objects).take().release()


class TestStores:
    def test_a_second_driver_changes_nothing(self, bucket, capsys):
        with made.whole(bucket.address) as store:
            before = bucket.files()
            with pytest.raises(StoreHeld, match="is held by"):
                Store.create(bucket.address, store.manifest["study"])
            assert bucket.files() == before
            assert main(["study", "status", bucket.address]) == 0
            assert main(["study", "status", "--verify", bucket.address]) == 0
        assert bucket.leases() == []
        assert "2 of 2 shards" in capsys.readouterr().out

    def test_who_has_lost_it_writes_nothing_more(self, bucket, monkeypatch):
        store = made.whole(bucket.address)
        before = bucket.files()
        clock = leases._clock_seconds
        monkeypatch.setattr(leases, "_clock_seconds", lambda: clock() + LASTS + 1)
        with pytest.raises(LeaseLost, match="run the same command to go on"):
            store.set_metadata("tasks", "another", {"data": "d"})
        assert bucket.files() == before
        monkeypatch.undo()
        store.close()

    def test_who_is_refused_leaves_no_lease(self, bucket):
        with made.whole(bucket.address) as store, pytest.raises(Exception, match="with other settings"):
            Store.create(bucket.address, {**store.manifest["study"], "seed": 99})
        assert bucket.leases() == []
