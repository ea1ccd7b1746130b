"""Whole steps of a network recorded as CUDA graphs, and kept for the next decode of the same shape."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from threading import Lock

import torch

from unmask.base.errors import warn_once
from unmask.core import GraphMemory, Recording, record
from unmask.engine import GraphedRows, NotGraphable, Perform
from unmask.models.network import BUCKET, Network

SEEN = 256
"""Shapes that are remembered to have come."""


class CudaRecorder:
    """Keeps the steps of the shapes used last. All share their memory, since only one runs at a time.

    A shape is recorded when it comes the second time: a run of one that never comes again would pay for nothing.
    """

    grain = BUCKET

    def __init__(self, device: torch.device, limit: int = 8):
        self.device, self.limit = device, limit
        self.busy = Lock()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()
        self._kept: OrderedDict[Hashable, GraphedRows] = OrderedDict()
        self._refused: set[Hashable] = set()
        self.memory = GraphMemory()

    def within(self, denoiser: Network) -> Network:
        return replace(denoiser, forward=None, recorder=None)

    def find(self, key: Hashable, make: Callable[[Perform], GraphedRows]) -> GraphedRows | None:
        if key in self._refused or not self._again(key):
            return None
        if key not in self._kept:
            self._kept[key] = make(_Replayed(self))
        self._kept.move_to_end(key)
        if len(self._kept) > self.limit:
            self._kept.popitem(last=False)
        return self._kept[key]

    def _again(self, key: Hashable) -> bool:
        """Whether the key has come before, not too long ago."""
        known = key in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > SEEN:
            self._seen.popitem(last=False)
        return known

    def refuse(self, key: Hashable, why: str) -> None:
        self._refused.add(key)
        self._kept.pop(key, None)
        self.memory.leave()
        warn_once(f"steps run one operation at a time, not as a recorded graph: {why}")


class _Replayed:
    """Does some work the first time it comes, records it the second, and replays it from then on."""

    def __init__(self, recorder: CudaRecorder):
        self.recorder = recorder
        self._recordings: dict[Hashable, Recording[None] | None] = {}

    def __call__(self, key: Hashable, work: Callable[[], None]) -> None:
        if key not in self._recordings:
            # Also the warm-up that capturing asks for: handles, autotuning, compilation, tables.
            self._recordings[key] = None
            return work()
        recording = self._recordings[key]
        if recording is None:
            recording = self._recordings[key] = self._record(work)
        recording()

    def _record(self, work: Callable[[], None]) -> Recording[None]:
        try:
            return record(work, self.recorder.device, memory=self.recorder.memory)
        except RuntimeError as error:
            # A driver without graphs, too little memory, or a policy that asks the device after all.
            raise NotGraphable(str(error).splitlines()[0] if str(error) else type(error).__name__) from error
