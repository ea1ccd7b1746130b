"""Prompts and texts with blanks as requests."""

import numpy as np
import pytest

from unmask.api.load import load
from unmask.api.request import count_steps, infill_request, prompt_request, start_trajectory, token_request
from unmask.base.errors import ConfigError
from unmask.core import row_key

MASK = 4


@pytest.fixture(scope="module")
def model():
    return load("exact")


def test_prompt_is_followed_by_its_blanks(model):
    request = prompt_request(model, "ab", 3, 2, "one")
    assert request == token_request(model, [0, 1], 3, 2, "one")
    assert request.canvas == (0, 1, MASK, MASK, MASK)
    assert request.given == (True, True, False, False, False)
    assert (request.id, request.steps, request.answer, request.blanks) == ("one", 2, (2, 5), 3)


def test_text_with_blanks_is_all_answer(model):
    request = infill_request(model, "a__[MASK]b")
    assert request.canvas == (0, MASK, MASK, MASK, 1)
    assert (request.answer, request.blanks, request.steps) == ((0, 5), 3, 2)
    assert infill_request(model, "a__[MASK]b", share=1.0).steps == 3
    assert infill_request(model, "a__[MASK]b", 1).steps == 1


def test_text_without_blanks_is_refused(model):
    with pytest.raises(ConfigError, match="mark what is to be filled"):
        infill_request(model, "ab")
    with pytest.raises(ConfigError, match="needs a canvas of 9 positions; allowed: at most 8"):
        model.infill("_" * 9)


def test_generation_equals_infilling_on_the_right(model):
    ours, theirs = prompt_request(model, "ab", 3, 2), infill_request(model, "ab___", 2)
    assert (ours.canvas, ours.given, ours.key) == (theirs.canvas, theirs.given, theirs.key)


@pytest.mark.parametrize(("share", "blanks", "steps"), [(0.5, 7, 4), (0.07, 100, 7), (0.1, 30, 3), (0.01, 3, 1)])
def test_share_of_the_blanks_is_rounded_up_once(share, blanks, steps):
    assert count_steps(share, blanks) == steps


def test_row_key_is_a_function_of_seed_canvas_and_stream(model):
    request = prompt_request(model, "ab", 3, 2)
    canvas = np.array(request.canvas, "<i8").tobytes()
    start = start_trajectory(model.denoiser, [request, request], seed=5, streams=[0, 3])
    assert start.noise.key_B.tolist() == [row_key(5, canvas, 0), row_key(5, canvas, 3)]
    assert start_trajectory(model.denoiser, [request], seed=5, slots=8).state.tokens_BL.shape == (1, 8)
