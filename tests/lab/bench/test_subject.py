"""Networks to be measured: random ones of a shape, loaded ones, and twins."""

import pytest
import torch

from tests.helpers.tiny_bench import SPEC, subject
from unmask.api.load import load
from unmask.base.errors import ConfigError, NotEnoughMemory, UnknownName
from unmask.lab.bench import SHAPES, random_subject, subject_of
from unmask.lab.bench.subject import memory_of, twin


def test_what_does_not_fit_is_refused_before_it_is_made():
    with pytest.raises(NotEnoughMemory, match=r"llada-8b needs .* GiB in bf16 .* 4096 rows; allowed: .* GiB"):
        random_subject("llada-8b", torch.device("cpu"), torch.bfloat16, rows=4096)


def test_memory_is_that_of_the_weights_and_grows_with_the_rows():
    spec = SHAPES["llada-8b"].spec
    assert spec.parameters == 8_015_581_184  # the published checkpoint's
    assert memory_of(spec, 0, torch.bfloat16) == 2 * spec.parameters
    assert memory_of(spec, 2, torch.bfloat16) > memory_of(spec, 1, torch.bfloat16) > 2 * spec.parameters


def test_an_unknown_shape_is_named():
    with pytest.raises(UnknownName, match="known: dream-7b, llada-8b"):
        random_subject("llada", torch.device("cpu"), torch.bfloat16)


def test_a_model_without_layers_is_refused():
    with pytest.raises(ConfigError, match=r"exact has no layers .* such as mini"):
        subject_of("exact", load("exact", n=4, vocab=3).denoiser)


def test_a_quick_subject_takes_fewer_steps_on_the_same_canvas():
    network = subject().network
    slow, quick = (subject_of("tiny", network, quick=quick).canvas for quick in (False, True))
    assert quick.steps < slow.steps
    assert (quick.prompt, quick.answer, quick.block) == (slow.prompt, slow.answer, slow.block)


def test_twins_share_weights_and_nothing_else():
    model = subject().network.model
    other = twin(model)
    assert other.head.weight.data_ptr() == model.head.weight.data_ptr()
    other.fuse(False)
    assert model.layers[0].qkv.fused
    assert not other.layers[0].qkv.fused
    assert other.spec == SPEC


def test_first_rows_are_the_same_in_every_batch():
    state = subject().state(3)
    assert torch.equal(state.tokens_BL[:2], subject().state(2).tokens_BL)
    assert state.masked_BL.sum(-1).tolist() == [8] * 3
    assert subject().state(2, wanted=4).masked_BL.sum(-1).tolist() == [4] * 2
