"""DUS's spacing on top of other methods: it goes by the row's own answer, and no method ignores it."""

from itertools import pairwise

import torch

from tests.helpers.cases import each_case
from unmask.core import Noise, State
from unmask.engine import decode
from unmask.methods import DSB, EBSampler, FastDLLM
from unmask.methods.check import check_policy
from unmask.models import ExactDenoiser, JointDistribution


@each_case("spacing", [4, 5, 6, 8])
@each_case("method", [FastDLLM(threshold=0.0, block_length=None), EBSampler(gamma=9.0)], ids=lambda m: m.name)
def test_rows_ignore_padding_without_blocks(method, spacing):
    check_policy(type(method)(**{**vars(method), "spacing": spacing}))


def reveals(policy):
    denoiser = ExactDenoiser(JointDistribution.random(8, 3, dependence=2.0, seed=0))
    state = State.from_canvases([[denoiser.mask_id] * 8], steps=8, mask_id=denoiser.mask_id)
    end = decode(denoiser, policy, state, noise=Noise.of([0]))
    return [torch.where(step.revealed_BL[0])[0].tolist() for step in end.steps]


def test_a_sliding_block_keeps_the_distance_of_its_base():
    """One block that holds the whole answer is Fast-dLLM with a block as long."""
    base = FastDLLM(threshold=0.0, spacing=4)
    spaced = reveals(DSB(base, block_length=8, max_block=8))
    assert spaced == reveals(FastDLLM(threshold=0.0, spacing=4, block_length=8))
    assert min(b - a for positions in spaced[:1] for a, b in pairwise(positions)) >= 4
    assert reveals(DSB(FastDLLM(threshold=0.0), block_length=8, max_block=8)) == [list(range(8))]
