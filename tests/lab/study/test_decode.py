"""Prompts decoded from beginning to end: every user of `decode_prompts` gets the answers of `Model.generate`."""

from dataclasses import dataclass, replace

import pytest
import torch

from unmask.adapt import coverage
from unmask.api import prompt_request, start_trajectory
from unmask.core import AnswerCost, SamplingParams
from unmask.engine import decode
from unmask.lab.study import decode_prompts
from unmask.methods import LLaDA, make_policy

PROMPTS = ("a b c", "d", "e f g h i j", "k l")
TOKENS, STEPS, SEED = 8, 4, 3


@dataclass(frozen=True)
class Noted(LLaDA):
    """Keeps the notes of a gate that has a signal at every step and deviates at even ones."""

    def act(self, traj, look_ahead):
        even_B = traj.state.step_B % 2 == 0
        notes = {"region/signal_B": even_B.float(), "region/evaluated_B": even_B | True, "region/deviated_B": even_B}
        return replace(super().act(traj, look_ahead), notes=notes)


@pytest.fixture(scope="module")
def requests(tiny_model):
    return [prompt_request(tiny_model, text, TOKENS, STEPS, id=text) for text in PROMPTS]


def test_rows_are_the_answers_of_generate(tiny_model, requests):
    rows = decode_prompts(tiny_model, requests, make_policy("llada"), seed=SEED)
    generated = [tiny_model.generate(p, max_new_tokens=TOKENS, steps=STEPS, seed=SEED, policy="llada") for p in PROMPTS]
    assert rows["prompt"].tolist() == list(PROMPTS)
    assert [tiny_model.codec.answer(list(answer)) for answer in rows["answer"]] == [g.text for g in generated]
    assert rows["forwards"].tolist() == [g.forwards for g in generated]


def test_draws_have_random_numbers_of_their_own(tiny_model, requests):
    how = {"seed": SEED, "sampling": SamplingParams(temperature=5.0)}
    rows = decode_prompts(tiny_model, requests, make_policy("llada"), draws=3, **how)
    assert rows["draw"].tolist() == [draw for draw in range(3) for _ in PROMPTS]
    assert rows["answer"].nunique() > len(PROMPTS)
    # The same cells of the grid, decoded beside others.
    part = decode_prompts(tiny_model, [requests[2], requests[0]], make_policy("llada"), draws=(1, 2), **how)
    assert part["answer"].tolist() == [rows["answer"][4 + 2], rows["answer"][8 + 0]]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_company_changes_nothing_at_equal_width(tiny_model, requests, batch_size):
    seen = []
    whole = decode_prompts(tiny_model, requests, make_policy("klass"), seed=SEED, draws=2, slots=64)
    how = {"draws": 2, "slots": 64, "batch_size": batch_size, "on_batch": seen.append}
    parts = decode_prompts(tiny_model, requests, make_policy("klass"), seed=SEED, **how)
    assert parts.equals(whole)
    assert [len(batch) for batch in seen] == ([1] * 8 if batch_size == 1 else [3, 3, 2])


def test_costs_are_those_of_the_run(tiny_model, requests):
    rows = decode_prompts(tiny_model, requests, make_policy("wino", block_length=4), seed=SEED)
    policy = make_policy("wino", block_length=4)
    start = start_trajectory(tiny_model.denoiser, requests, SEED, extra_steps=policy.extra_steps)
    run = decode(tiny_model.denoiser, policy, start)
    assert rows["remasks"].tolist() == run.remasks_B.tolist()
    assert rows["processed_tokens"].tolist() == run.processed_B.tolist()
    assert (rows["tokens"] == TOKENS).all()
    assert set(AnswerCost._fields) <= set(rows)


def test_answer_tokens_end_at_the_first_end_of_text(tiny_model, requests):
    ends = tiny_model.denoiser.vocabulary.eos_ids
    rows = decode_prompts(
        tiny_model, requests, make_policy("llada"), seed=SEED, sampling=SamplingParams(temperature=9.0)
    )
    for answer, count in zip(rows["answer"], rows["answer_tokens"], strict=True):
        assert not set(answer[:count]) & set(ends)
        assert count == len(answer) or answer[count] in ends


class TestCoverage:
    def test_counts_are_those_of_kept_steps(self, tiny_model, requests):
        rows = decode_prompts(tiny_model, requests, Noted(), seed=SEED, count_coverage=True)
        run = decode(tiny_model.denoiser, Noted(), start_trajectory(tiny_model.denoiser, requests, SEED))
        kept = coverage(run)["region"]
        by_hand = torch.stack((kept.evaluated_B, kept.deviated_B), 1).tolist()
        assert (
            [list(of_row["region"]) for of_row in rows["coverage"]] == by_hand == [[STEPS, STEPS // 2]] * len(PROMPTS)
        )
