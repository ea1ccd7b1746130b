"""Whole runs of one task's prompts: each policy is decoded once, however many arms it stands for."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from unmask.adapt import Coverage, coverage
from unmask.api import LoadedModel, Request, start_trajectory
from unmask.core import Noise, Policy, SamplingParams, Search, Trajectory, row_key
from unmask.engine import decode
from unmask.lab.study import Study


class DecodedRow(NamedTuple):
    """One prompt, decoded once."""

    prompt: str
    draw: int
    answer: tuple[int, ...]
    """Its tokens."""
    forwards: int
    gates: Mapping[str, tuple[int, int]]
    """By the name of the diagnostic: steps at which there was a signal, and at which the fixed action was left."""


class DecodeBatch(NamedTuple):
    """Prompts that are decoded together."""

    rows: Sequence[tuple[Request, int]]
    """Each with the number of its draw."""
    slots: int


class DecodeLine(NamedTuple):
    """A row of the table to be, before it is judged."""

    axis: str
    arm: str
    split: str
    row: DecodedRow
    evaluated: int | None = None
    deviated: int | None = None
    diagnostic: str = ""
    """Whose arm it is; empty for a candidate."""


class DecodeCache:
    """Decodes the prompts of one task, each policy once however often it is asked for."""

    def __init__(
        self,
        model: LoadedModel | None,
        study: Study,
        requests: Mapping[str, Sequence[Request]],
        heard: Callable[[int], None] = lambda policies: None,
    ):
        self.model, self.study, self.requests, self.heard = model, study, requests, heard
        self.forwards = 0
        """Row-forwards."""
        self._decoded: list[tuple[Policy | Search, str, int, list[DecodedRow]]] = []

    @property
    def policies(self) -> int:
        """Decoded so far, on either role."""
        return len(self._decoded)

    def decode(self, policy: Policy | Search, role: str, draws: int = 1) -> list[DecodedRow]:
        """Every prompt of the role, `draws` times with random numbers of its own; the first has those of all arms."""
        for earlier, where, times, answers in self._decoded:
            if (where, times) == (role, draws) and earlier == policy:
                return answers
        decoded = [row for batch in self._batches(policy, role, draws) for row in batch]
        self._decoded.append((policy, role, draws, decoded))
        self.forwards += sum(row.forwards for row in decoded)
        return decoded

    def foresee(self, policies: Iterable[Policy | Search], role: str) -> None:
        """These will be asked for: who has workers for them may begin. Here there are none."""

    def _batches(self, policy: Policy | Search, role: str, draws: int) -> Iterator[list[DecodedRow]]:
        """What each part comes to, in their order."""
        for part in self._parts(role, draws):
            self.heard(self.policies)
            yield self._batch(policy, part.rows, part.slots)

    def _parts(self, role: str, draws: int) -> list[DecodeBatch]:
        """The prompts of a role, as they are decoded together."""
        rows = [(request, draw) for draw in range(draws) for request in self.requests[role]]
        engine = self.study.engine
        most = max(engine.rows, engine.live)
        # A row's canvas follows from its prompt, whoever is decoded beside it.
        room = {request.id: _room(request, engine.bucket) for request, _ in rows}
        parts: list[DecodeBatch] = []
        for slots in sorted(set(room.values())):
            same = [row for row in rows if room[row[0].id] == slots]
            parts += [DecodeBatch(same[at : at + most], slots) for at in range(0, len(same), most)]
        return parts

    def _batch(self, policy: Policy | Search, rows: Sequence[tuple[Request, int]], slots: int) -> list[DecodedRow]:
        assert self.model is not None, "who has no model has batches of its own"
        return decode_batch(self.model, self.study, policy, rows, slots)


def decode_batch(
    model: LoadedModel, study: Study, policy: Policy | Search, rows: Sequence[tuple[Request, int]], slots: int
) -> list[DecodedRow]:
    """Prompts, each with the number of its draw, decoded together on canvases of `slots`."""
    denoiser, seed = model.denoiser, study.seed
    start = start_trajectory(denoiser, [request for request, _ in rows], seed, slots)
    noise = Noise.of([row_key(seed, request.key, draw) for request, draw in rows], denoiser.device)
    counted = _Counted(start)
    with torch.inference_mode():
        end = decode(
            denoiser,
            policy,
            start,
            noise=noise,
            sampling=SamplingParams(temperature=study.temperature),
            record=False,
            on_step=counted.add if isinstance(policy, Policy) else None,
        )
    gates = {name: torch.stack((c.evaluated_B, c.deviated_B), 1).tolist() for name, c in counted.so_far.items()}
    table = torch.cat((end.state.tokens_BL, end.forwards_B[:, None]), 1).cpu().numpy()
    decoded = []
    for at, ((one, draw), row) in enumerate(zip(rows, table, strict=True)):
        answer = tuple(row[slice(*one.answer)].tolist())
        gates_of_row = {name: (counts[at][0], counts[at][1]) for name, counts in gates.items()}
        decoded.append(DecodedRow(one.id, draw, answer, int(row[-1]), gates_of_row))
    return decoded


def _room(request: Request, bucket: int) -> int:
    """Once, twice, four times the bucket: few sizes, for a decode takes as long with ten rows as with a hundred."""
    return bucket << (-(-len(request.canvas) // bucket) - 1).bit_length()


@dataclass
class _Counted:
    """Coverage of a run that is not recorded, step by step."""

    start: Trajectory
    so_far: dict[str, Coverage] = field(default_factory=dict)

    def add(self, traj: Trajectory) -> None:
        """Steps name their rows by number, so they are counted beside all rows that began."""
        for name, new in coverage(replace(self.start, steps=traj.steps[-1:])).items():
            old = self.so_far.get(name)
            self.so_far[name] = new if old is None else _sum(old, new)


def _sum(one: Coverage, other: Coverage) -> Coverage:
    return Coverage(one.steps_B + other.steps_B, one.evaluated_B + other.evaluated_B, one.deviated_B + other.deviated_B)
