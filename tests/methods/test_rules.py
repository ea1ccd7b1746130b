"""Rules of the methods by hand: thresholds, ties, schedules, blocks and costs, on tables that a denoiser answers from.

Whole worked examples are in test_examples.py, the authors' own runs in test_authors.py.
"""

import math
from dataclasses import replace
from itertools import pairwise
from math import log

import pytest
import torch

from tests.helpers.cases import each_case
from tests.methods.worked import (
    VOCAB,
    confidences,
    distributions,
    first,
    logs,
    peak_logits,
    revealed,
    run,
    script,
    table,
)
from unmask.axes.region import dilation_level_per_offset
from unmask.base.errors import ConfigError
from unmask.core import ModelOutput, Noise, Posterior, State
from unmask.engine import decode
from unmask.methods import DCD, DOS, DSB, DUS, KLASS, VSB, Dream, EBSampler, FastDLLM, FastDLLMDream, LLaDA, Swordsman
from unmask.methods.blocks import block_clock
from unmask.methods.check import Problem, check_policy
from unmask.methods.examples import ScriptedDenoiser, TableNoise, load_cases, run_statistics, scripted_model
from unmask.methods.vsb import _jensen_shannon
from unmask.models import ExactDenoiser, JointDistribution

NO_NOISE = Noise.of([0])


# LLaDA


(STATIC,) = table("llada")


def test_llada_random_order_follows_the_noise_not_the_confidence():
    scripted_model = ScriptedDenoiser(lambda tokens, slot, call: STATIC[slot], vocab=3)
    state = State.from_canvases([[3] * 6], steps=3, mask_id=3)
    noise = TableNoise({"order": [0.1, 0.9, 0.2, 0.3, 0.8, 0.7]})
    end = decode(scripted_model, LLaDA(remasking="random"), state, noise=noise)
    revealed = [step.revealed_BL[0].nonzero().flatten().tolist() for step in end.steps]
    assert revealed == [[1, 4], [3, 5], [0, 2]]


@pytest.mark.parametrize(("step", "revealed"), [(3, [1, 1, 4]), (5, [6])])
def test_llada_a_run_that_fell_behind_is_completed_on_the_last_step(step, revealed):
    """Taken up late (a policy before it waited), the schedule alone would leave masks."""
    scripted_model = ScriptedDenoiser(lambda tokens, slot, call: STATIC[slot], vocab=3)
    late = replace(State.from_canvases([[3] * 6], steps=6, mask_id=3), step_B=torch.tensor([step]))
    end = decode(scripted_model, LLaDA(), late, noise=NO_NOISE)
    assert [int(s.revealed_BL.sum()) for s in end.steps] == revealed
    assert end.state.step_B.tolist() == [6]


@pytest.mark.parametrize(("block", "steps"), [(4, 3), (3, 3), (0, 6)])
def test_llada_blocks_must_divide_answer_and_steps(block, steps):
    state = State.from_canvases([[3] * 6], steps=steps, mask_id=3)
    scripted_model = ScriptedDenoiser(lambda tokens, slot, call: STATIC[slot], vocab=3)
    with pytest.raises(ConfigError, match="allowed"):
        decode(scripted_model, LLaDA(block), state, noise=NO_NOISE)


# Dream


(ABC,) = table("dream")


def log_row(probabilities):
    return [log(p) if p else float("-inf") for p in probabilities]


def test_dream_origin_reveals_by_coin_and_everything_at_the_end():
    denoiser = ScriptedDenoiser(lambda tokens, slot, call: log_row(ABC[slot]), vocab=4)
    state = State.from_canvases([[4] * 3], steps=2, mask_id=4)
    noise = TableNoise({"order": [0.4994, 0.4996, 0.999]})
    end = decode(denoiser, Dream("origin"), state, noise=noise)
    # 1 - s/t is 0.4995 at the first of two steps.
    assert [step.revealed_BL[0].nonzero().flatten().tolist() for step in end.steps] == [[0], [1, 2]]


def test_dream_each_row_counts_its_own_masks():
    """The authors' loop averages over the batch; ours must not."""
    denoiser = ScriptedDenoiser(lambda tokens, slot, call: log_row(ABC[slot % 3]), vocab=4)
    state = State.from_canvases([[4] * 8, [0, *[4] * 3]], steps=[4, 2], mask_id=4)
    end = decode(denoiser, Dream("entropy"), state, noise=Noise.of([0, 1]))
    revealed = [[int(s.revealed_BL.sum()) for s in end.row(b).steps] for b in (0, 1)]
    assert revealed == [[1, 2, 2, 3], [1, 2]]


# KLASS


T2, T1, T0 = table("klass")


@pytest.mark.parametrize(("strategy", "expected"), [("max_conf", [3]), ("min_kl", [3])])
def test_klass_one_of_the_ready(strategy, expected):
    traj = run(distributions([T2, T1, T0]), KLASS(0.6, 0.015, strategy=strategy), 6)
    assert revealed(traj)[2] == expected


def test_klass_a_later_block_needs_one_step_to_warm_up():
    """Its history survives the border: the first block has two fallback steps, the second one."""
    sure = [[0.95, 0.05]] * 8
    assert revealed(run(distributions([sure]), KLASS(0.9, 0.01, block_length=4), 8)) == [
        [0],
        [1],
        [2, 3],
        [4],
        [5, 6, 7],
    ]


def test_klass_fallback_takes_the_quota_and_never_more_than_there_is():
    unsure = [[0.6, 0.4]] * 5
    assert revealed(run(distributions([unsure]), KLASS(0.9), 5, steps=2)) == [[0, 1, 2], [3, 4]]
    assert revealed(run(distributions([unsure]), KLASS(0.9, block_length=3), 5, steps=2)) == [[0, 1, 2], [3, 4]]


# Fast-dLLM and EB-Sampler, and DUS's spacing on top of them


def test_fast_dllm_dream_loop_defers_and_adds_steps():
    denoiser = confidences([[0.95, 0.2, 0.93, 0.4, 0.91, 0.3]])
    assert revealed(run(denoiser, FastDLLMDream(0.9), 6, steps=2)) == [[0, 2, 4], [3], [5], [1]]


def test_fast_dllm_dream_loop_needs_steps_that_divide():
    with pytest.raises(ConfigError, match=r"steps is 4; allowed: a divisor of the 6 new tokens"):
        run(confidences([[0.9] * 6]), FastDLLMDream(), 6, steps=4)


def test_fast_dllm_spacing_keeps_what_is_revealed_together_apart():
    """DUS's worked example: candidates 1, 0, 3, 2, 4 by confidence; a gap of 4 keeps 1, a gap of 2 keeps 1 and 3."""
    c = [0.91, 0.95, 0.60, 0.88, 0.52, 0.30]
    assert first(confidences([c]), FastDLLM(threshold=0.5, block_length=6, spacing=4), 6) == [1]
    assert first(confidences([c]), FastDLLM(threshold=0.5, block_length=6, spacing=2), 6) == [1, 3]
    assert first(confidences([c]), FastDLLM(threshold=0.5, block_length=6), 6) == [0, 1, 2, 3, 4]


(FIVE,) = table("eb-sampler")


@each_case("spacing", [4, 5, 6, 8])
@each_case("method", [FastDLLM(threshold=0.0, block_length=None), EBSampler(gamma=9.0)], ids=lambda m: m.name)
def test_spacing_rows_ignore_padding_without_blocks(method, spacing):
    for problem in (Problem.default(), Problem.longer()):
        check_policy(type(method)(**{**vars(method), "spacing": spacing}), problem)


def reveals(policy):
    denoiser = ExactDenoiser(JointDistribution.random(8, 3, dependence=2.0, seed=0))
    state = State.from_canvases([[denoiser.mask_id] * 8], steps=8, mask_id=denoiser.mask_id)
    end = decode(denoiser, policy, state, noise=Noise.of([0]))
    return [torch.where(step.revealed_BL[0])[0].tolist() for step in end.steps]


def test_spacing_a_sliding_block_keeps_the_distance_of_its_base():
    """One block that holds the whole answer is Fast-dLLM with a block as long."""
    base = FastDLLM(threshold=0.0, spacing=4)
    spaced = reveals(DSB(base, block_length=8, max_block=8))
    assert spaced == reveals(FastDLLM(threshold=0.0, spacing=4, block_length=8))
    assert min(b - a for positions in spaced[:1] for a, b in pairwise(positions)) >= 4
    assert reveals(DSB(FastDLLM(threshold=0.0), block_length=8, max_block=8)) == [list(range(8))]


# DUS and DCD


(SKIP,) = table("dus", -1)


@pytest.mark.parametrize(("size", "levels"), [(8, 3), (16, 4), (32, 5), (64, 6)])
def test_dus_a_block_takes_log_steps(size, levels):
    assert max(dilation_level_per_offset(size, 2)) + 1 == levels


def test_dus_the_authors_code_leaves_them_masked():
    traj = run(confidences([SKIP]), DUS(8, skip=0.3, leave_skipped=True), 8)
    assert traj.state.masked_BL[0].nonzero().flatten().tolist() == [4, 6]


DCD_TABLE = table("dcd")


def test_dcd_end_of_text_closes_the_row():
    """Position 3 says end of text (token 5): 4 and 5 are closed, and position 1 ends the row."""

    def answer(tokens, slot, call):
        row = peak_logits(DCD_TABLE[min(call, 5)][slot], VOCAB)
        if slot == 3:
            row[5], row[1] = row[1], row[5]
        return row

    traj = run(ScriptedDenoiser(answer, VOCAB, (5,)), DCD(0.9, 2, 128), 6, eos_fill=True)
    assert revealed(traj) == [[0], [2], [3, 4, 5], [1]]
    assert traj.state.tokens_BL[0, 3:].tolist() == [5, 5, 5]


# DOS


ATTENTION = load_cases("dos")[0].script


def attentive():
    """Says the sheet's attention (mean over heads) and confidences."""
    return scripted_model(ATTENTION)


def dos_start(given=2, steps=3):
    canvas = [*range(given), *[VOCAB] * (5 - given)]
    return State.from_canvases([canvas], steps=steps, mask_id=VOCAB)


def test_dos_sinks_are_left_out():
    """Token 1 gets .28 of the mean attention; without it s = .15, .25, .075, and the same order."""
    traj = decode(attentive(), DOS(sinks=0.25), dos_start(), noise=Noise.of([0]))
    assert revealed(traj) == [[3], [2], [4]]
    everything = decode(attentive(), DOS(sinks=0.01), dos_start(), noise=Noise.of([0]))
    # With every token a sink nothing is visible: confidence decides.
    assert revealed(everything)[0] == [2]


def test_dos_a_model_without_attention_is_refused():
    blind = replace(attentive(), attention=None)
    with pytest.raises(ConfigError, match="attention"):
        decode(blind, DOS(), dos_start(), noise=Noise.of([0]))


# Swordsman


# Confidence and entropy by position.
FIRST, SECOND, _ = ({int(at): tuple(pair) for at, pair in told.items()} for told in table("swordsman"))


@pytest.mark.parametrize(("mean", "tau"), [("block", 0.6015), ("masked", 0.7015)])
@pytest.mark.parametrize("off", [-1e-4, 1e-4])
def test_swordsman_thresholds_of_the_sheet(mean, tau, off):
    """A confidence just below the threshold is not revealed beside a surer one, one just above is."""
    told = {2: (0.85, 0.20), 5: (tau + off, 0.12)}
    assert revealed(run_statistics(Swordsman(mean=mean), [FIRST, SECOND, told], 6))[2] == ([2, 5] if off > 0 else [2])


def test_swordsman_a_block_without_entropy():
    """Nothing to divide by: the ratio is 0, and a first block without entropy is not easy."""
    none = dict.fromkeys(range(3), (0.95, 0.0))
    traj = run_statistics(Swordsman(), [none], 3)
    assert float(traj.notes["ease_B"]) == 0.0
    assert revealed(traj) == [[0, 1, 2]]


# VSB


VSB_SCRIPT = script("vsb")["reach"]


AWARE, BLIND = VSB_SCRIPT["5"], {length: VSB_SCRIPT[str(length)] for length in range(1, 5)}


JS = {1: [0.08929], 2: [0.00274, 0.04141], 3: [0.00077, 0.00061, 0.00097], 4: [0.00077, 0.00016, 0.00051, 0.06729]}


def posterior(rows):
    logits = torch.tensor([logs(row) for row in rows], dtype=torch.float64)
    return Posterior(logits, torch.logsumexp(logits, -1), torch.arange(len(rows))[None])


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_vsb_divergences_of_the_sheet(length):
    divergence = _jensen_shannon(posterior(AWARE[:length]), posterior(BLIND[length]))
    assert divergence[0].tolist() == pytest.approx(JS[length], abs=1e-5)
    same = _jensen_shannon(posterior(AWARE), posterior(AWARE))
    assert same[0].tolist() == pytest.approx([0.0] * 4, abs=1e-12)
    apart = _jensen_shannon(posterior([[1.0, 0.0]]), posterior([[0.0, 1.0]]))
    assert float(apart) == pytest.approx(math.log(2))


class Reader(ScriptedDenoiser):
    """What a slot says depends on the last canvas token it may read: the future matters to every position."""

    def __call__(self, view, needs):
        view_rows = []
        tokens = view.tokens_BN.tolist()
        for b, slot in view.wanted_BN.nonzero().tolist():
            length = len(tokens[b]) if view.attend_BNN is None else view.attend_BNN.shape[1]
            reads = [
                at
                for at in range(length)
                if (view.attend_BNN is None or bool(view.attend_BNN[b, slot, at])) and tokens[b][at] != self.vocab
            ]
            view_rows.append(self.logits(tokens[b], slot, max(reads, default=-1)))
        self.calls.append(view)
        return ModelOutput(torch.tensor(view_rows, dtype=torch.float64).reshape(-1, self.vocab), view.wanted_BN)


def test_vsb_a_future_that_does_not_matter_makes_the_longest_blocks():
    traj = run(ScriptedDenoiser(lambda tokens, slot, call: logs([0.95, 0.05]), 2), VSB(window=3, least=1), 6)
    assert revealed(traj) == [[0, 1, 2], [3, 4, 5]]


def test_vsb_a_future_that_matters_shortens_them():
    """A position's prediction turns on whether position 3 or later can be read: only then a block ends there."""

    def answer(tokens, slot, last):
        return logs([0.95, 0.05]) if last < 3 else logs([0.05, 0.95])

    traj = run(Reader(answer, 2), VSB(window=4, least=1, threshold=0.0), 6)
    # Blind to what comes after, lengths 1 to 3 disagree with the aware prediction; length 4 does not.
    assert revealed(traj)[0] == [0, 1, 2, 3]


# The clock of blocks


def test_block_clock_the_current_block_is_the_scheduled_one_or_the_first_open_one():
    state = State.from_prompts([[1]], new_tokens=6, steps=6, mask_id=9)
    now = block_clock(replace(state, step_B=torch.tensor([3])), 2)
    assert (now.block_B.tolist(), now.inner_B.tolist(), now.start_B.tolist()) == ([1], [1], [2])
    assert now.in_block_BL.tolist() == [[False] * 3 + [True] * 2 + [False] * 2]
    tokens_BL = torch.where(torch.arange(7) < 5, 3, state.tokens_BL)
    ahead = block_clock(replace(state, tokens_BL=tokens_BL), 2)
    assert (ahead.block_B.tolist(), ahead.inner_B.tolist()) == ([2], [0])
    assert ahead.open_BL.tolist() == [[False] * 5 + [True] * 2]
