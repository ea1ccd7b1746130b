"""Numbers on their way to the device: they arrive as drawn, and no buffer is written while it is being copied."""

from typing import Any

import numpy as np
import pytest
import torch

from unmask.train.batches import draw
from unmask.train.feed import Feed, Inputs
from unmask.train.learner import Learner

CPU = torch.device("cpu")


@pytest.fixture
def learner(config, pool) -> Learner:
    return Learner(config, pool, CPU)


def test_what_is_written_arrives(learner):
    groups = [table.group for table in learner.tables]
    feed = Feed(groups, CPU)
    places = [tensor.data_ptr() for inputs in feed.inputs for tensor in inputs]
    for step in range(3):
        drawn = [draw(group, 3, step, 0.001) for group in groups]
        feed.write(0.1 * step, drawn)
        before = [inputs.place_R.clone() for inputs in feed.inputs]
        # Nothing reaches the device before it is sent.
        assert all(torch.equal(a, inputs.place_R) for a, inputs in zip(before, feed.inputs, strict=True))
        feed.send()
        assert feed.rate.item() == np.float32(0.1 * step)
        for inputs, batch in zip(feed.inputs, drawn, strict=True):
            for found, expected in zip(inputs, Inputs.of(batch, CPU), strict=True):
                assert found.dtype == expected.dtype
                assert torch.equal(found, expected)
    assert places == [tensor.data_ptr() for inputs in feed.inputs for tensor in inputs], "buffers never move"


def test_a_buffer_is_not_written_while_it_is_copied(learner):
    """With copies that the device gets to late: every write waits for the copy out of its own buffer, and no other."""
    groups = [table.group for table in learner.tables]
    feed = Feed(groups, CPU)
    told: list[tuple[str, int]] = []

    class Event:
        def __init__(self, number: int):
            self.number = number

        def record(self) -> None:
            told.append(("sent", self.number))

        def synchronize(self) -> None:
            told.append(("waited", self.number))

    feed._copied = [Event(0), Event(1)]
    for step in range(4):
        feed.write(float(step), [draw(group, 3, step, 0.001) for group in groups])
        assert feed._written[told[-1][1]][0] == step, "it waited for the buffer that it wrote"
        feed.send()
    # One step may be written while the other is on its way.
    assert told == [(what, number) for number in (1, 0, 1, 0) for what in ("waited", "sent")]


def test_a_value_of_another_type_is_refused(learner):
    groups = [table.group for table in learner.tables]
    drawn: list[Any] = [draw(group, 3, 0, 0.001) for group in groups]
    object.__setattr__(drawn[0], "place_R", drawn[0].place_R.astype(np.int32))
    with pytest.raises(TypeError, match="Cannot cast"):
        Feed(groups, CPU).write(0.1, drawn)
