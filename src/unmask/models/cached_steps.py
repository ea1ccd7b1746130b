"""Whole steps under a block cache, recorded: before each one the host asks which rows begin a block.

Whether a row is recomputed as a whole or in part decides about shapes, so there is a recording for each plan of a pass:
in most steps of a block the same one.
"""

from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import replace
from typing import Protocol

import torch

from unmask.core import CountedSlots, Denoiser, ModelInput, ModelOutput, Needs, Vocabulary
from unmask.engine import GraphedRows, Perform, StepRecorder
from unmask.models.kv_buffers import KVBuffers, PassPlan
from unmask.models.network import Network


class Planner(Protocol):
    """A block cache, as its recorded steps need it."""

    @property
    def network(self) -> Network: ...

    @property
    def settings(self) -> Hashable:
        """All that its spans depend on."""
        ...

    def records(self, rows: int, slots: int) -> bool:
        """Whether passes over so many rows of so many slots are worth recordings."""
        ...

    def plan(self, inputs: ModelInput) -> tuple[KVBuffers, PassPlan]:
        """What the next pass over these rows is to recompute, and where."""
        ...


class CachedSteps:
    """The network's recorder, for steps that read a cache."""

    def __init__(self, planner: Planner, recorder: StepRecorder):
        self.planner, self.recorder = planner, recorder
        self.busy, self.grain = recorder.busy, recorder.grain

    def within(self, denoiser: Denoiser) -> Denoiser:
        return CachedPass(self.planner.network)

    def find(self, key: Hashable, make: Callable[[Perform], GraphedRows]) -> GraphedRows | None:
        def planned(perform: Perform) -> GraphedRows:
            steps = make(before := _Planned(perform))
            before.steps = steps
            return steps

        steps = self.recorder.find((self.planner.settings, key), planned)
        if steps is None or not self.planner.records(*steps.rows.state.tokens_BL.shape):
            return None
        assert isinstance(steps.perform, _Planned), "made here"
        steps.perform.planner = self.planner
        return steps

    def refuse(self, key: Hashable, why: str) -> None:
        self.recorder.refuse((self.planner.settings, key), why)


class _Planned:
    """Asks for the plan of a step, then has it done by the recording that has its shapes."""

    def __init__(self, perform: Perform):
        self.perform = perform
        self.steps: GraphedRows | None = None
        self.planner: Planner | None = None

    def __call__(self, key: Hashable, work: Callable[[], None]) -> None:
        assert self.steps is not None, "found before it runs"
        assert self.planner is not None, "found before it runs"
        inner, rows = self.steps.settings.denoiser, self.steps.rows
        assert isinstance(inner, CachedPass), "within this recorder"
        with torch.inference_mode():
            # The state made anew: what was derived from it belongs to an earlier step.
            buffers, inner.plan = self.planner.plan(
                replace(ModelInput.of(replace(rows.state), Needs()), row_B=rows.rows_B)
            )
        # Passes inside a step have no recordings of their own.
        inner.buffers = copy(buffers)
        inner.buffers.replays = None
        self.perform((key, inner.plan, buffers.number), work)


class CachedPass:
    """The pass of a planned step: it asks nothing of the host."""

    def __init__(self, network: Network):
        self.network = network
        self.buffers: KVBuffers | None = None
        self.plan: PassPlan | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        return self.network.vocabulary

    @property
    def device(self) -> torch.device:
        return self.network.device

    @torch.inference_mode()
    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        assert self.buffers is not None, "planned before it runs"
        assert self.plan is not None, "planned before it runs"
        packed: CountedSlots | None = inputs.packed
        assert packed is not None, "a recorded step names its slots"
        wanted_BN, processed_B = self.buffers.answered(inputs)
        started = self.buffers.start(self.plan)
        normed_RH, logits_RV = self.network.answers(self.buffers.hidden(self.plan, started, packed))
        return ModelOutput(
            logits_RV,
            wanted_BN,
            hidden_RH=normed_RH if needs.hidden else None,
            processed_B=processed_B,
            counted=packed,
        )
