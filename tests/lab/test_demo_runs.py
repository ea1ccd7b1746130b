"""Runs to look at: the prompt that tells the methods apart, decoded by each of them as it would be alone."""

import numpy as np
import pytest

from tests.helpers import tiny_demo
from unmask.api.load import load
from unmask.api.request import start_trajectory
from unmask.engine import decode
from unmask.lab.demo import SHOWN_METHODS, ShownMethod, make_demo_runs
from unmask.lab.study import StudyConfig
from unmask.lab.study.prompts import example_request, load_examples, score_texts
from unmask.methods import make_policy

METHODS = (ShownMethod("a", "llada", "one by one"), ShownMethod("b", "fast-dllm", "all sure ones"), SHOWN_METHODS[2])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    study = StudyConfig.read(tiny_demo.write(tmp_path_factory.mktemp("demo")))
    model = load("exact", n=8)
    tasks, _ = load_examples(study)
    return model, study, tasks


def alone(model, study, example, method):
    """The answer's tokens and utility, decoded and judged by itself."""
    request = example_request(model, study.task("mine"), study.steps["mine"], example)
    end = decode(model.denoiser, make_policy(method), start_trajectory(model.denoiser, [request], study.seed))
    tokens = end.state.tokens_BL[0].tolist()[slice(*request.answer)]
    return tokens, score_texts([(model.codec.answer(tokens), example)], 1)[0][0]


def test_the_prompt_is_the_first_of_those_that_differ_most(made):
    model, study, tasks = made
    members = tasks["mine"]["evaluation"]
    utility_MP = np.array([[alone(model, study, e, m)[1] for e in members] for m in ("llada", "fast-dllm")])
    spread_P = abs(utility_MP[0] - utility_MP[1])
    assert len(set(spread_P)) > 1
    wanted = members[int(spread_P.argmax())]
    heard = []
    runs = make_demo_runs(model, study, tasks, METHODS, on_done=heard.append)
    assert [run.shown.label for run in runs] == ["a", "b", "WINO"]
    assert tuple(heard) == runs
    assert all(run.example == wanted for run in runs)
    for run, method in zip(runs[:2], ("llada", "fast-dllm"), strict=True):
        tokens, utility = alone(model, study, wanted, method)
        assert run.judged.text == model.codec.answer(tokens)
        assert run.utility == utility
        assert run.forwards == len(run.trajectory.steps) > 0
