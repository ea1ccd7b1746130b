"""Every figure and setting against the sheet they are from."""

import re

import pytest

from unmask.core import SamplingParams
from unmask.lab.published import DREAM, LLADA, LLADA_15, PUBLISHED, find_family, find_published
from unmask.methods import LLaDA

RUNS = [(model, run) for model in PUBLISHED for run in model.runs]


@pytest.mark.parametrize(
    ("model", "name", "tokens", "block", "figure", "line"),
    [
        (LLADA, "gsm8k", 256, 8, 78.6, r"Instruct with blocks: GSM8K ([\d.]+)"),
        (LLADA, "gsm8k-pure", 512, None, 69.4, r"Instruct pure diffusion \(internal\): GSM8K ([\d.]+)"),
        (LLADA, "humaneval", 512, None, 49.4, r"Instruct pure diffusion \(internal\): .*?HumanEval ([\d.]+)"),
        (LLADA_15, "gsm8k", 256, 16, 83.8, r"LLaDA 1\.5: GSM8K (\d+\.\d)"),
        (LLADA_15, "humaneval", 512, 32, 52.4, r"LLaDA 1\.5: GSM8K \d+\.\d.*?HumanEval ([\d.]+)"),
    ],
)
def test_figures_are_those_of_the_sheet(shared, model, name, tokens, block, figure, line):
    run = model.run(name)
    assert (run.new_tokens, run.steps, run.policy, run.figure) == (tokens, tokens, LLaDA(block_length=block), figure)
    assert run.source
    sheet = (shared / "methods" / "llada.md").read_text(encoding="utf-8")
    assert float(re.search(line, sheet)[1]) == figure


def test_end_of_text_is_treated_as_the_authors_do():
    assert LLADA.run("gsm8k").sampling == SamplingParams()
    assert LLADA.run("gsm8k-pure").sampling == SamplingParams(confidence_eos_eot_inf=True)
    assert LLADA.run("humaneval").sampling == SamplingParams(logits_eos_inf=True)
    assert {run.sampling for run in LLADA_15.runs} == {SamplingParams(confidence_eos_eot_inf=True)}


def test_a_figure_has_a_source_and_no_figure_none():
    assert all((run.figure is None) == (run.source == "") for _, run in RUNS)
    assert all(run.differs and run.prompt for _, run in RUNS)
    assert {model.name for model, run in RUNS if run.figure is None} == {"dream"}


def test_models_are_found_by_name_hub_and_family():
    assert find_published("llada") is LLADA is find_published("GSAI-ML/LLaDA-8B-Instruct")
    assert find_published("mini") is None
    assert (find_family("llada"), find_family("Dream"), find_family(None)) == (LLADA, DREAM, None)
    bare = LLADA.without_figures()
    assert [run.policy for run in bare.runs] == [run.policy for run in LLADA.runs]
    assert {(run.figure, run.source) for run in bare.runs} == {(None, "")}
