"""Whole runs on scaled-down checkpoints against the authors' loops (`tests/golden/{llada,dream}_decodes.json`)."""

import json
from functools import cache

import numpy as np
import pytest
import torch

from tests.helpers.cases import each_case
from tests.helpers.device import DEVICE
from tests.helpers.paths import GOLDEN
from unmask.core import Noise, SamplingParams, State
from unmask.engine import decode
from unmask.methods import make_policy
from unmask.models import GuidedDenoiser
from unmask.models.checkpoints import load_checkpoint

LLADA, DREAM = (json.loads((GOLDEN / f"{kind}_decodes.json").read_text()) for kind in ("llada", "dream"))
NO_NOISE = Noise.of([0], DEVICE)


@pytest.fixture(scope="module")
def load(scaled, tmp_path_factory):
    """Each checkpoint written and read once."""

    @cache
    def once(kind, arguments):
        folder = getattr(scaled, kind)(tmp_path_factory.mktemp(kind), **dict(arguments))
        return load_checkpoint(folder, device=DEVICE, dtype=torch.float32)

    return lambda kind, case: once(kind, tuple(case["checkpoint"].items()))


class Recorded:
    """The uniforms of a run of `origin` behind the interface of `Noise`: all it draws at temperature 0."""

    def __init__(self, case):
        self.case, self.used = case, []

    def uniform(self, step_B, position_BN, purpose):
        [call] = [c for c in self.case["noise_calls"] if c["step"] == int(step_B[0])]
        assert (purpose, call["purpose"]) == ("order", "origin_transfer")
        self.used.append(call["call"])
        # The authors draw for masks alone; what ours reads elsewhere it does not use.
        out_N = torch.full((len(self.case["final"]),), 0.5, dtype=torch.float64)
        uniform = np.random.default_rng([self.case["noise_seed"], call["call"]]).random(call["shape"])
        out_N[call["positions"]] = torch.from_numpy(uniform)
        return out_N.to(position_BN.device)[position_BN]


def canvases_of(traj):
    return [canvas.tolist() for canvas in traj.row(0).canvases()][1:]


def start(case, network):
    new = case.get("gen_length", case.get("max_new_tokens"))
    assert network.vocabulary.mask_id == case["mask_id"]
    return State.from_prompts(
        [case["prompt"]], new_tokens=new, steps=case["steps"], mask_id=case["mask_id"], device=DEVICE
    )


@each_case("case", LLADA["cases"], ids=lambda c: c["id"])
def test_llada_decodes_the_authors_tokens(case, load):
    network = load("llada", case).network
    denoiser = GuidedDenoiser(network, case["cfg_scale"]) if case["cfg_scale"] else network
    policy = make_policy("llada", block_length=case["block_length"], remasking=case["remasking"])
    traj = decode(denoiser, policy, start(case, network), noise=NO_NOISE, sampling=SamplingParams(case["temperature"]))
    assert canvases_of(traj) == case["canvases"]
    assert traj.state.tokens_BL[0].tolist() == case["final"]
    assert traj.forwards_B.tolist() == [case["forward_calls"] * (2 if case["cfg_scale"] else 1)]


def dream_policy(case):
    return make_policy("dream", alg=case["alg"], alg_temp=case["alg_temp"] or 0.0, eps=case["eps"])


def dream_proposal(case):
    return SamplingParams(case["temperature"], case["top_p"] or 1.0, case["top_k"] or 0)


@each_case("case", DREAM["cases"], ids=lambda c: c["id"])
def test_dream_decodes_the_authors_tokens(case, load):
    """Chance may fill the canvas before the last step: the authors' loop goes on with nothing to do, ours stops."""
    network = load("dream", case).network
    noise = Recorded(case) if case["noise_calls"] else NO_NOISE
    traj = decode(network, dream_policy(case), start(case, network), noise=noise, sampling=dream_proposal(case))
    steps = case["canvases"].index(case["final"]) + 1
    assert steps == case["steps"] or case["alg"] == "origin"
    assert canvases_of(traj) == case["canvases"][:steps]
    assert traj.state.tokens_BL[0].tolist() == case["final"]
    assert [int(step.revealed_BL.sum()) for step in traj.steps] == case["counts"][:steps]
    assert traj.forwards_B.tolist() == [steps]
    if case["noise_calls"]:
        assert noise.used == [call["call"] for call in case["noise_calls"] if call["step"] < steps]


@each_case("case", DREAM["batch_cases"], ids=lambda c: c["id"])
@each_case("order", [[0, 1, 2], [2, 0, 1], [0], [1], [2]], ids=str)
def test_dream_decodes_the_authors_batches(case, order, load):
    """Padded on the left there, on the right here. The authors' count is the batch's mean of masks, ours each row's
    own: with as many masks and steps in every row the two are the same number, so that tokens can be compared.
    """
    network = load("dream", case).network
    state = State.from_prompts(
        [case["prompts"][b] for b in order],
        new_tokens=case["max_new_tokens"],
        steps=case["steps"],
        mask_id=case["mask_id"],
        device=DEVICE,
    )
    noise = Noise.of(list(order), DEVICE)
    end = decode(network, dream_policy(case), state, noise=noise, sampling=dream_proposal(case)).state
    got = [tokens[:length] for tokens, length in zip(end.tokens_BL.tolist(), end.length_B.tolist(), strict=True)]
    assert got == [case["finals"][b] for b in order]
