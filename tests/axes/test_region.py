"""Region rules against plain Python, on states with given tokens inside the answer, padding and revealed positions."""

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.axes import Region
from unmask.core import State

MASK = 9
GIVEN, MASKED, REVISABLE, COMMITTED = "gmrc"


def state_of(rows: list[str]) -> State:
    """Rows of letters: g(iven), m(asked), r(evisable), c(ommitted); shorter rows are padded."""
    length = max(len(row) for row in rows)
    padded = [row.ljust(length, GIVEN) for row in rows]
    return State(
        tokens_BL=torch.tensor([[MASK if kind == MASKED else 1 for kind in row] for row in padded]),
        fixed_BL=torch.tensor([[kind == GIVEN for kind in row] for row in padded]),
        committed_BL=torch.tensor([[kind in (GIVEN, COMMITTED) for kind in row] for row in padded]),
        length_B=torch.tensor([len(row) for row in rows]),
        step_B=torch.zeros(len(rows), dtype=torch.long),
        horizon_B=torch.ones(len(rows), dtype=torch.long),
        mask_id=MASK,
    )


def letters(flags_BL, rows):
    """The chosen positions of each row; none may lie in the padding."""
    chosen = [row.nonzero().flatten().tolist() for row in flags_BL]
    assert all(not c or c[-1] < len(row) for c, row in zip(chosen, rows, strict=True))
    return chosen


def answer(row):
    return [i for i, kind in enumerate(row) if kind != GIVEN]


def masked(row):
    return [i for i, kind in enumerate(row) if kind == MASKED]


def open_in_order(row, groups, need):
    """Whole groups, one after the other, until they hold enough masks."""
    region = []
    for group in groups:
        if len(region) >= max(need, 1):
            break
        region += [i for i in group if row[i] == MASKED]
    return sorted(region)


def cut(positions, size):
    return [positions[i : i + size] for i in range(0, len(positions), size)]


def slow_full(row, size, need):
    return masked(row)


def slow_block(row, size, need):
    return open_in_order(row, cut(answer(row), size), need)


def slow_last_block(row, size, need):
    return open_in_order(row, cut(answer(row), size)[::-1], need)


def slow_window(row, size, need):
    if not masked(row):
        return []
    places = answer(row)
    return open_in_order(row, cut(places[places.index(masked(row)[0]) :], size), need)


PHASES = {1: [0], 2: [0, 1], 3: [0, 1, 2], 4: [0, 2, 1, 3], 5: [0, 2, 1, 3, 4], 8: [0, 4, 2, 6, 1, 3, 5, 7]}


def slow_dilated(row, stride, need):
    return open_in_order(row, [answer(row)[phase::stride] for phase in PHASES[stride]], need)


def slow_near(row, radius, need):
    visible = [i for i, kind in enumerate(row) if kind != MASKED]
    if not visible:
        return masked(row)
    distance = {i: min(abs(i - v) for v in visible) for i in masked(row)}
    shells = [[i for i in distance if (n - 1) * radius < distance[i] <= n * radius] for n in range(1, len(row) + 1)]
    return open_in_order(row, shells, need)


SLOW = {
    "full": slow_full,
    "block": slow_block,
    "last-block": slow_last_block,
    "window": slow_window,
    "dilated": slow_dilated,
    "near": slow_near,
}


def random_rows(seed):
    random = Random(seed)
    return ["".join(random.choices("gmmmrc", k=random.randint(1, 24))) for _ in range(random.randint(1, 4))]


# Hypothesis' own rows are short and shrink well; the seeded ones are long.
rows_of_letters = st.one_of(
    st.lists(st.text("gmmmrc", min_size=1, max_size=24), min_size=1, max_size=4),
    st.integers(0, 10**6).map(random_rows),
)


def rule_of(name, size):
    return Region(name) if name == "full" else Region(name, (size,))


@pytest.mark.parametrize("name", SLOW)
@settings(max_examples=200)
@given(rows=rows_of_letters, size=st.sampled_from([1, 2, 3, 4, 5, 8]), need=st.integers(0, 26))
def test_against_plain_python(name, rows, size, need):
    state = state_of(rows)
    want = [SLOW[name](row, size, need) for row in rows]
    assert letters(rule_of(name, size)(state, need), rows) == want
    # The same need per row, and the default need of one.
    assert letters(rule_of(name, size)(state, torch.full((len(rows),), need)), rows) == want
    assert letters(rule_of(name, size)(state), rows) == [SLOW[name](row, size, 1) for row in rows]


@pytest.mark.parametrize("name", SLOW)
@given(rows=rows_of_letters, size=st.sampled_from([1, 2, 3, 8]), need=st.lists(st.integers(0, 26), min_size=4))
def test_promises_of_every_rule(name, rows, size, need):
    """Inside M_t; not empty while there are masks; as large as needed; each row for itself; blind to padding."""
    state, need_B = state_of(rows), torch.tensor(need[: len(rows)])
    chosen_BL = rule_of(name, size)(state, need_B)
    assert not (chosen_BL & ~state.masked_BL).any()
    count_B, masks_B = chosen_BL.sum(-1), state.masked_BL.sum(-1)
    assert (count_B >= torch.minimum(masks_B, need_B.clamp(min=1))).all()
    padded_BL = rule_of(name, size)(state.pad_to(40), need_B)
    assert torch.equal(padded_BL[:, : chosen_BL.shape[1]], chosen_BL)
    assert not padded_BL[:, chosen_BL.shape[1] :].any()
    for b in range(len(rows)):
        alone_BL = rule_of(name, size)(state.select(torch.tensor([b])), need_B[b : b + 1])
        assert torch.equal(alone_BL, chosen_BL[b : b + 1])
