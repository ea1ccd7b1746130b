"""Rows that wait get their turn in the order in which they came, and no batch is larger than asked for."""

import torch

from unmask.core import Noise, State, Trajectory
from unmask.lab.branch import Continuation
from unmask.lab.branch.pools import Future, RowPool, RunningRows, selected
from unmask.methods import fixed_action


def rows(first: int, n: int) -> Trajectory:
    """Canvases whose only given token says which they are."""
    state = State.from_prompts([[token] for token in range(first, first + n)], new_tokens=2, steps=2, mask_id=99)
    return Trajectory.start(state, Noise(torch.zeros(n, dtype=torch.long)))


def names(traj: Trajectory) -> list[int]:
    return traj.state.tokens_BL[:, 0].tolist()


def waiting(first: int, n: int) -> RunningRows:
    owners = list(range(first, first + n))
    return RunningRows(rows(first, n), [Future(owner) for owner in owners], owners)


def pool_of(*sizes: int) -> RowPool:
    pool = RowPool(0, Continuation(fixed_action()))
    first = 0
    for n in sizes:
        pool.add(waiting(first, n))
        first += n
    return pool


def test_first_come_first_served():
    pool = pool_of(3, 2, 4)
    assert pool.size == 9
    batch = pool.take(4)
    assert names(batch.traj) == [0, 1, 2, 3]
    assert [future.owner for future in batch.futures] == batch.prompts == names(batch.traj)
    assert pool.size == 5
    pool.put_back(batch.after(batch.traj, [1, 3]))
    assert pool.size == 7
    batch = pool.take(4)
    assert names(batch.traj) == [1, 3, 4, 5]
    assert [future.owner for future in batch.futures] == batch.prompts == names(batch.traj)
    assert names(pool.take(100).traj) == [6, 7, 8]
    assert pool.size == 0


def test_forwards_are_full_where_rows_are_enough():
    pool = pool_of(3, 2, 4)
    assert names(pool.take(7, full=3).traj) == [0, 1, 2, 3, 4, 5]
    assert names(pool.take(7, full=4).traj) == [6, 7, 8]
    assert pool.size == 0


def test_rows_that_are_all_are_not_copied():
    traj = rows(0, 3)
    assert selected(traj, [0, 1, 2]) is traj
    assert names(selected(traj, [0, 2])) == [0, 2]
    assert names(selected(traj, [])) == []
