"""What the tests of the methods share: the toy network of `tests/golden`, recorded noise, scripted denoisers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import unmask
from unmask.core import (
    ModelInput,
    ModelOutput,
    Needs,
    Prediction,
    SamplingParams,
    State,
    Trajectory,
    Vocabulary,
    sample,
)
from unmask.engine import decode
from unmask.models import GuidedDenoiser
from unmask.train import HeadOptions, train_head

MASK = 11


@dataclass(frozen=True)
class Toy:
    """The network the golden numbers were made with (`tests/golden/README.md`), as a denoiser."""

    seed: int
    eos_ids: tuple[int, ...] = (9, 10)

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(12, MASK, self.eos_ids)

    @cached_property
    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        return rng.standard_normal((64, 12)), rng.standard_normal((64, 12, 12))

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        rows = []
        for b in range(len(inputs.tokens_BN)):
            visible_N = (inputs.valid_BN[b] & (inputs.tokens_BN[b] != MASK)).numpy()
            reads_NN = np.broadcast_to(visible_N, (len(visible_N), len(visible_N))) & ~np.eye(
                len(visible_N), dtype=bool
            )
            if inputs.attend_BNN is not None:
                reads_NN = reads_NN & inputs.attend_BNN[b].numpy()
            rows.append(self._logits(inputs.tokens_BN[b].numpy(), inputs.position_BN[b].numpy(), reads_NN))
        logits_BNV = torch.from_numpy(np.stack(rows)).float()
        return ModelOutput(logits_BNV[inputs.wanted_BN], inputs.wanted_BN)

    def _logits(self, token_N: np.ndarray, position_N: np.ndarray, reads_NN: np.ndarray) -> np.ndarray:
        own, pair = self._tables
        terms_NNV = pair[(position_N[:, None] - position_N[None, :]) % 64, token_N[None, :]]
        sum_NV = (terms_NNV * reads_NN[:, :, None]).sum(1)
        logits_NV = 2.0 * own[position_N] + 0.7 * sum_NV / np.sqrt(1 + reads_NN.sum(1))[:, None]
        logits_NV[:, MASK] = -30.0
        return logits_NV


class Replay:
    """The recorded uniforms of a golden case behind the interface of `Noise`, for one row.

    Where the authors' loop drew nothing, ours may still draw something that it then does not use: 0.5.
    """

    _NAMES = ("random_confidence", "origin_transfer", "gumbel_topk_positions", "reveal_coin")

    def __init__(self, case: dict[str, Any]):
        self.case = case
        self.key_B = torch.zeros(1, dtype=torch.long)
        self.used: set[int] = set()

    def uniform(self, step_B: Tensor, position_BN: Tensor, purpose: str) -> Tensor:
        step = int(step_B[0])
        if purpose == "order":
            call = self._find(step, self._NAMES)
        elif purpose == "remask":
            call = self._find(step, ("remask_coin",))
        else:
            kind, _, number = purpose.partition("/")
            assert kind == "candidate", purpose
            call = self._find(step, ("gumbel_position",), int(number) - 1)
        return self._spread(call)[position_BN]

    def uniform_packed(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, purpose: str) -> Tensor:
        assert purpose == "token"
        return self._spread(self._find(int(step_R[0]), ("categorical_token",)) if len(step_R) else None)[position_R]

    def uniform_vocab(self, step_R: Tensor, position_R: Tensor, row_R: Tensor, vocab: int, purpose: str) -> Tensor:
        number = int(purpose.partition("/")[2] or 0)
        call = self._find(int(step_R[0]), ("gumbel_token",), number) if len(step_R) else None
        if call is None:
            return torch.full((len(position_R), vocab), 0.5, dtype=torch.float64)
        return self._values(call)[0][position_R]

    def unused(self, steps: int) -> list[dict[str, Any]]:
        """What the authors drew in the first so many steps and we did not ask for."""
        return [c for c in self.case["noise_calls"] if c["step"] < steps and c["call"] not in self.used]

    def _find(self, step: int, names: tuple[str, ...], number: int = 0) -> dict[str, Any] | None:
        calls = [c for c in self.case["noise_calls"] if c["step"] == step and c["purpose"] in names]
        return calls[number] if number < len(calls) else None

    def _values(self, call: dict[str, Any]) -> Tensor:
        self.used.add(call["call"])
        rng = np.random.default_rng([self.case["noise_seed"], call["call"]])
        return torch.from_numpy(rng.random(call["shape"]))

    def _spread(self, call: dict[str, Any] | None) -> Tensor:
        """One number per canvas position."""
        out_L = torch.full((len(self.case["final"]),), 0.5, dtype=torch.float64)
        if call is not None:
            values = self._values(call).flatten()
            positions = self._positions(call)
            assert len(values) == len(positions), call
            out_L[positions] = values
        return out_L

    def _positions(self, call: dict[str, Any]) -> list[int]:
        if "positions" in call:
            return call["positions"]
        if call["purpose"] == "gumbel_position":
            return self._open_block(call["step"])
        return list(range(len(self.case["final"])))

    def _open_block(self, step: int) -> list[int]:
        """Masked positions, before the step, of the block in which it revealed something."""
        case = self.case
        after, prompt = case["canvases"][step], case["prompt"]
        before = case["canvases"][step - 1] if step else [*prompt, *[MASK] * case["gen_length"]]
        changed = next(i for i, (a, b) in enumerate(zip(after, before, strict=True)) if a != b)
        block = (changed - len(prompt)) // case["block_length"]
        start = len(prompt) + block * case["block_length"]
        return [i for i in range(start, min(start + case["block_length"], len(after))) if before[i] == MASK]


@dataclass(frozen=True)
class Run:
    """One golden case decoded by us."""

    traj: Trajectory
    """Its only row."""
    noise: Replay

    @property
    def canvases(self) -> list[list[int]]:
        """After every step, as the golden files list them."""
        return [c.tolist() for c in self.traj.canvases()][1:]

    @property
    def final(self) -> list[int]:
        return self.traj.state.tokens_BL[0].tolist()

    @property
    def forwards(self) -> int:
        return int(self.traj.forwards_B[0])

    def unused(self) -> list[dict[str, Any]]:
        return self.noise.unused(len(self.canvases))


@pytest.fixture(scope="session")
def replay() -> Callable[..., Run]:
    """Decode a golden case with its own network and its recorded noise."""

    def run(case, policy, sampling=None, eos_ids=(9, 10), eos_fill=False):
        toy: Any = Toy(case["toy_seed"], eos_ids)
        if case.get("cfg_scale"):
            toy = GuidedDenoiser(toy, case["cfg_scale"])
        new = case.get("gen_length", case.get("max_new_tokens"))
        state = State.from_prompts([case["prompt"]], new_tokens=new, steps=case.get("steps", new), mask_id=MASK)
        noise = Replay(case)
        traj = decode(toy, policy, state, noise=noise, sampling=sampling or SamplingParams(), eos_fill=eos_fill)
        return Run(traj.row(0), noise)

    return run


@pytest.fixture(scope="session")
def predict() -> Callable[..., Prediction]:
    """The prediction for one canvas of masks, straight from a table of logits."""

    def run(logits, proposal=None, needs=None, noise=None, eos_ids=()):
        rows_LV = torch.as_tensor(logits, dtype=torch.float64)
        length, vocab = rows_LV.shape
        needs = needs or Needs()
        state = State.from_canvases([[vocab] * length], steps=1, mask_id=vocab)
        inputs = ModelInput.of(state, needs)
        vocabulary = Vocabulary(vocab, vocab, eos_ids)
        return sample(
            ModelOutput(rows_LV, inputs.wanted_BN),
            inputs,
            proposal or SamplingParams(),
            needs,
            vocabulary,
            noise=noise,
            step_B=state.step_B,
        )

    return run


def _head(kind, tmp_path_factory):
    """A head for `mini`, trained on a few texts: good for nothing but to be read."""
    out = tmp_path_factory.mktemp(kind)
    options = HeadOptions(kind=kind, examples=6, held_out=4, steps=3, batch=2, size=4, probes=1, draws=1)
    train_head(unmask.load("mini"), options, out)
    return out / "head"


@pytest.fixture(scope="session")
def demask_head(tmp_path_factory):
    return _head("demask", tmp_path_factory)


@pytest.fixture(scope="session")
def ddpd_head(tmp_path_factory):
    return _head("ddpd", tmp_path_factory)
