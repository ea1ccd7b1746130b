"""One driver at a time: who is refused, who takes over, and who stops writing."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from unmask.lab.store.places import place_of

from tests.helpers import made_studies as made
from unmask.cli.app import main
from unmask.lab.store import Store
from unmask.lab.store import lease as leases
from unmask.lab.store.lease import EVERY, MISSED, Lease, LeaseLost, StoreHeld

LASTS = EVERY * MISSED


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


@pytest.fixture
def home(bucket):
    return place_of(bucket.address)


def test_a_second_driver_is_refused_with_who_holds_it(home, bucket):
    first = Lease(home).take()
    (name,) = bucket.leases()
    told = json.loads(bucket.read(name))
    with pytest.raises(StoreHeld) as caught:
        Lease(home).take()
    said = str(caught.value)
    assert f"{bucket.address!r} is held by {told['who']}, since {told['since']}" in said
    assert re.search(r"wait until it has ended, or if it is dead, \d+ s from now", said)
    assert "\n" not in said
    assert bucket.leases() == [name]
    first.check()
    first.release()
    first.release()
    assert bucket.leases() == []
    Lease(home).take().release()


def test_of_many_at_once_at_most_one(home, bucket):
    def take(_):
        try:
            return Lease(home).take()
        except StoreHeld:
            return None

    with ThreadPoolExecutor(4) as pool:
        held = [lease for lease in pool.map(take, range(4)) if lease is not None]
    assert len(held) <= 1
    assert len(bucket.leases()) == len(held)
    for lease in held:
        lease.release()


def test_a_dead_driver_is_replaced_and_knows_it(home, bucket, monkeypatch):
    dead = Lease(home, every=1000.0).take()
    bucket.age(1000 * MISSED - 500)
    with pytest.raises(StoreHeld, match=r"last heard of 5[5-9]\d\d s ago"):
        Lease(home).take()
    bucket.age(1000)
    second = Lease(home).take()
    assert len(bucket.leases()) == 1
    clock = leases._clock
    monkeypatch.setattr(leases, "_clock", lambda: clock() + 1000 * MISSED + 1)
    with pytest.raises(LeaseLost, match=r"no heartbeat came through for 6000 s.*nothing more is written"):
        dead.check()
    monkeypatch.undo()
    dead.release()
    second.check()
    assert len(bucket.leases()) == 1
    second.release()


def test_heartbeats_keep_it(home, bucket):
    lease = Lease(home, every=0.02, missed=100_000).take()
    (name,) = bucket.leases()
    bucket.age(100_000)
    while json.loads(bucket.read(name))["beats"] < 4:
        time.sleep(0.01)
    with pytest.raises(StoreHeld):
        Lease(home).take()
    lease.check()
    lease.release()


def test_one_that_is_removed_is_lost(home, bucket):
    lease = Lease(home, every=0.02, missed=100_000).take()
    (name,) = bucket.leases()
    # A heartbeat that is under way puts it once more.
    assert "it was removed" in until_lost(lease, lambda: bucket.remove(name))
    lease.release()
    assert bucket.leases() == []


def test_one_whose_heartbeats_fail_is_lost(home, bucket):
    lease = Lease(home, every=0.02, missed=5).take()
    bucket.deny("s3:PutObject")
    assert "no heartbeat came through for 0.1 s" in until_lost(lease)
    lease.release()


def test_one_that_cannot_be_read_holds_until_it_is_old(home, bucket):
    bucket.write("lease/x.json", b"{")
    with pytest.raises(StoreHeld, match="an unknown driver"):
        Lease(home).take()
    bucket.age(LASTS + 5)
    Lease(home).take().release()
    assert bucket.leases() == []


class TestStores:
    def test_a_second_driver_changes_nothing(self, bucket, capsys, tmp_path):
        with made.whole(bucket.address) as store:
            before = bucket.files()
            with pytest.raises(StoreHeld, match="is held by"):
                Store.create(bucket.address, store.manifest["study"])
            assert bucket.files() == before
            assert main(["study", "status", bucket.address]) == 0
            assert main(["study", "check", bucket.address]) == 0
        assert bucket.leases() == []
        assert "2 of 2 shards" in capsys.readouterr().out

    def test_who_has_lost_it_writes_nothing_more(self, bucket, monkeypatch):
        store = made.whole(bucket.address)
        before = bucket.files()
        clock = leases._clock
        monkeypatch.setattr(leases, "_clock", lambda: clock() + LASTS + 1)
        with pytest.raises(LeaseLost, match="run the same command to go on"):
            store.set_metadata("tasks", "another", {"data": "d"})
        assert bucket.files() == before
        monkeypatch.undo()
        store.close()

    def test_who_was_refused_leaves_the_lease_alone(self, bucket):
        with made.whole(bucket.address) as store, pytest.raises(Exception, match="with other settings"):
            Store.create(bucket.address, {**store.manifest["study"], "seed": 99})
        with pytest.raises(Exception, match="with other settings"):
            Store.create(bucket.address, {**store.manifest["study"], "seed": 99})
        assert bucket.leases() == []
