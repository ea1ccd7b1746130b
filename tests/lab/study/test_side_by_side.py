"""Groups under way side by side: what fails, what is tried again, and what ends the run."""

import errno
import threading
import time

import pytest

from unmask.base.errors import ContractError, StorageError, WorkerDied
from unmask.lab.store import ATTEMPTS, Shard, Store
from unmask.lab.study.attempts import Claims
from unmask.lab.study.side_by_side import SideBySide


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "out", {"name": "none", "models": []})


class Work:
    """Pieces by number, two in a group; `do` is called with each group that is begun."""

    def __init__(self, store, do, pieces=6, room=3, stop=str):
        self.done, self.lost, self.abandoned = [], [], threading.Event()
        claims = Claims(store, self.place, self.lost.append, self.done.append, pieces)
        self.side = SideBySide(claims, self.pairs, do, lambda: room, stop, self.abandoned.set)
        self.pending = list(range(pieces))

    @staticmethod
    def place(piece):
        return Shard(kind="branches", model="m", task="t", split="validation", block=piece, depends="k")

    @staticmethod
    def pairs(pieces):
        return [pieces[at : at + 2] for at in range(0, len(pieces), 2)]

    def run(self):
        return self.side.work(self.pending)


def test_no_more_are_under_way_than_there_is_room_for(store):
    now, most, lock = set(), [], threading.Lock()

    def do(group):
        with lock:
            now.add(group[0])
            most.append(len(now))
        time.sleep(0.05)
        with lock:
            now.discard(group[0])
        return [None] * len(group)

    work = Work(store, do, pieces=20, room=3)
    assert work.run() == ""
    assert sorted(work.done) == list(range(20))
    assert max(most) == 3


def test_a_group_that_fails_is_done_one_by_one_and_who_fails_alone_is_set_aside(store):
    begun = []

    def do(group):
        begun.append(tuple(group))
        if 3 in group:
            raise ValueError("three")
        return [None] * len(group)

    work = Work(store, do)
    assert work.run() == ""
    assert sorted(work.done) == [0, 1, 2, 4, 5]
    assert begun.count((2, 3)) == 1
    assert begun.count((3,)) == ATTEMPTS == len(work.lost)
    (aside,) = store.failures.set_aside()
    assert aside.error == "ValueError: three"


def test_a_piece_may_fail_by_itself(store):
    """Where a group was computed, and one of its shards could not be judged."""
    tries = []

    def do(group):
        tries.append(list(group))
        return [ValueError("judge") if piece == 1 and len(tries) < 3 else None for piece in group]

    work = Work(store, do, pieces=2, room=1)
    assert work.run() == ""
    assert sorted(work.done) == [0, 1]
    assert tries == [[0, 1], [1], [1]]
    assert not store.failures.all(), "it was done in the end"


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(errno.ENOSPC, "No space left on device"), StorageError), (StorageError("full"), StorageError)],
)
def test_a_full_disk_ends_the_run(store, error, raised):
    def do(group):
        return [error for _ in group]

    work = Work(store, do)
    with pytest.raises(raised):
        work.run()
    assert work.abandoned.is_set()
    assert not work.side.claims.lost.__self__, "no shard is to blame"


def test_what_fails_everywhere_ends_the_run(store):
    def do(group):
        raise ContractError("a promise")

    with pytest.raises(ContractError):
        Work(store, do).run()


def test_workers_that_are_killed_at_first_do_not_end_the_run(store):
    killed = set()

    def do(group):
        if len(killed) < 6 and tuple(group) not in killed:
            killed.add(tuple(group))
            raise WorkerDied("killed")
        return [None] * len(group)

    work = Work(store, do)
    assert work.run() == ""
    assert sorted(work.done) == [0, 1, 2, 3, 4, 5]
    assert len(work.lost) == 3, "groups are divided first, which counts for nobody"


def test_who_stops_it_gets_what_is_under_way(store):
    began = threading.Event()

    def do(group):
        began.set()
        time.sleep(0.1)
        return [None] * len(group)

    work = Work(store, do, pieces=20, room=2, stop=lambda: "enough" if began.is_set() else "")
    assert work.run() == "enough"
    assert 0 < len(work.done) <= 4


def test_ctrl_c_abandons_what_is_under_way(store):
    def do(group):
        assert work.abandoned.wait(30)
        return [None] * len(group)

    def interrupted():
        raise KeyboardInterrupt

    work = Work(store, do)
    work.side.tick = interrupted
    with pytest.raises(KeyboardInterrupt):
        work.run()


def test_what_another_process_holds_is_waited_for(store):
    work = Work(store, lambda group: [None] * len(group), pieces=2)
    with store.claim(work.place(1)) as ours:
        assert ours
        threading.Timer(0.3, lambda: ((store.folder / "shards") / work.place(1).name).mkdir()).start()
        came = []
        work.side.came = lambda: came.append(1)
        assert work.run() == ""
    assert (work.done, came) == ([0], [1])
