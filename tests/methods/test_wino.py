"""WINO against the authors' loop (`tests/golden/wino.json`) and against numbers computed by hand."""

import json
from dataclasses import replace
from math import log

import pytest
import torch

from tests.helpers import paths
from tests.helpers.cases import each_case
from unmask.core import Noise, SamplingParams, State, Trajectory
from unmask.engine import decode
from unmask.methods import WINO
from unmask.methods.examples import load_cases

GOLDEN = json.loads((paths.GOLDEN / "wino.json").read_text())
CASES = [*GOLDEN["cases"], *GOLDEN["temperature_cases"]]
NO_NOISE = Noise.of([0])


def positions(mask_BL):
    return mask_BL[0].nonzero().flatten().tolist()


def policy(case):
    return WINO(case["block_length"], case["threshold"], case["threshold_back"])


@each_case("case", CASES, ids=lambda c: c["id"])
def test_same_tokens_as_the_authors(case, replay):
    ours = replay(case, policy(case), SamplingParams(temperature=case["temperature"], sampler="gumbel"))
    assert ours.canvases == case["canvases"]
    assert ours.final == case["final"]
    assert ours.forwards == case["forward_calls"]
    assert not ours.unused()
    for step, theirs in zip(ours.traj.steps, case["steps_detail"], strict=True):
        assert positions(step.revealed_BL) == theirs["drafted"]
        assert positions(step.remasked_BL) == theirs["remasked"]
        assert step.action.notes["block_B"].tolist() == [theirs["block"]]


@pytest.mark.parametrize("case", [c for c in CASES if "layouts" in c], ids=lambda c: c["id"])
def test_shadow_layout_is_the_authors(case):
    """Position ids and the attention matrix of every block, slot by slot."""
    prompt, block = len(case["prompt"]), case["block_length"]
    start = State.from_prompts([case["prompt"]], new_tokens=case["gen_length"], steps=1, mask_id=11)
    for number, layout in enumerate(case["layouts"]):
        tokens_BL = start.tokens_BL.clone()
        tokens_BL[0, prompt : prompt + number * block] = 0
        view = policy(case).model_input(Trajectory.start(replace(start, tokens_BL=tokens_BL), NO_NOISE))
        assert view.position_BN[0].tolist() == layout["position_ids"]
        assert ["".join("01"[a] for a in row) for row in view.attend_BNN[0].int().tolist()] == layout["attention_rows"]
        assert view.tokens_BN[0, len(case["final"]) :].tolist() == [11] * block
        assert view.valid_BN.all()


def attended(view, row):
    return set(view.attend_BNN[0, row].nonzero().flatten().tolist())


def test_mask_check_by_hand():
    """Prompt of 2, answer of 4, blocks of 2: slots 6 and 7 are the shadows."""
    start = State.from_prompts([[0, 0]], new_tokens=4, steps=4, mask_id=9)
    policy = WINO(block_length=2)
    first = policy.model_input(Trajectory.start(start, NO_NOISE))
    assert first.position_BN[0].tolist() == [0, 1, 2, 3, 4, 5, 2, 3]
    for row in range(6):
        assert attended(first, row) == {0, 1, 2, 3, 4, 5}
    assert attended(first, 6) == {0, 1, 3, 4, 5, 6, 7}
    assert attended(first, 7) == {0, 1, 2, 4, 5, 6, 7}
    filled_BL = torch.tensor([[0, 0, 1, 1, 9, 9]])
    second = policy.model_input(Trajectory.start(replace(start, tokens_BL=filled_BL), NO_NOISE))
    assert second.position_BN[0].tolist() == [0, 1, 2, 3, 4, 5, 4, 5]
    assert attended(second, 6) == {0, 1, 2, 3, 5, 6, 7}


_WORKED = load_cases("wino")[0]
TABLE = [
    # confidence of masked slots, verification of revealed ones, drafts, re-masks
    ({i: p for i, p in enumerate(row[:6]) if p}, {i: p for i, p in enumerate(row[6:]) if p}, drafts, remasks)
    for row, drafts, remasks in zip(
        _WORKED.script["table"], _WORKED.expected["revealed"], _WORKED.expected["remasked"], strict=True
    )
]


def peaked(p, vocab=10):
    """Token 0 with probability p, the others alike."""
    return [log(p), *[log((1 - p) / (vocab - 1))] * (vocab - 1)]


SURE = (dict.fromkeys(range(6), 0.9), dict.fromkeys(range(6), 0.99))
"""A row for the rest of a run: drafts everything, doubts nothing."""


def table_run(table, scripted, length=6, **settings):
    def script(tokens, slot, call):
        confidence, verify, *_ = table[call]
        return peaked(confidence[slot] if slot < length else verify[slot - length])

    denoiser = scripted(script, vocab=10)
    state = State.from_canvases([[10] * length], steps=length, mask_id=10)
    return decode(denoiser, WINO(block_length=length, **settings), state, noise=NO_NOISE)


def test_four_steps_by_hand(scripted):
    """Tokens 1 and 2 are revised; 4 is spared by a lone draft, 1 by the rule that re-masks stay below last drafts."""
    end = table_run(TABLE, scripted, tau1=0.6, tau2=0.9)
    assert end.forwards_B.tolist() == [4]
    for step, (confidence, verify, drafts, remasks) in zip(end.steps, TABLE, strict=True):
        seen = step.prediction
        for slot, p in confidence.items():
            assert seen.confidence_BN[0, slot].item() == pytest.approx(p)
        for slot, p in verify.items():
            assert seen.given_BN[0, 6 + slot].item() == pytest.approx(p)
        assert positions(step.revealed_BL) == drafts
        assert positions(step.remasked_BL) == remasks
        assert step.action.notes["drafts_B"].tolist() == [len(drafts)]


@each_case(("n", "cap"), [(6, 5), (7, 5), (8, 5), (9, 6), (20, 14), (28, 19), (29, 20), (40, 20)])
def test_draft_cap(n, cap, scripted):
    """Seven tenths of what is masked, rounded down, between 5 and 20; the surest are drafted."""
    table = [({i: 0.99 - 0.001 * i for i in range(n)}, dict.fromkeys(range(n), 0.99))] * n
    first = table_run(table, scripted, length=n).steps[0]
    assert positions(first.revealed_BL) == list(range(cap))


def test_draft_threshold_is_strict(scripted):
    """Exactly tau1 is not drafted: two tokens alike hit 1/2 without rounding."""

    def script(tokens, slot, call):
        return [0.0, 0.0] if slot != 0 else [50.0, 0.0]

    state = State.from_canvases([[2] * 3], steps=3, mask_id=2)
    at = decode(scripted(script, vocab=2), WINO(3, tau1=0.5, tau2=0.5), state, noise=NO_NOISE)
    assert [positions(s.revealed_BL) for s in at.steps] == [[0], [1], [2]]
    below = decode(scripted(script, vocab=2), WINO(3, tau1=0.4999, tau2=0.5), state, noise=NO_NOISE)
    assert [positions(s.revealed_BL) for s in below.steps] == [[0, 1, 2]]


@pytest.mark.parametrize(("tau2", "remasked"), [(0.5, []), (0.5 + 1e-9, [0])])
def test_verification_threshold_is_strict(tau2, remasked, scripted):
    """Two tokens alike in the shadow of slot 0: exactly tau2 is not doubted."""

    def script(tokens, slot, call):
        first = [50.0, 0.0] if slot < 2 else [0.0, 0.0]
        then = [0.0, 0.0] if slot == 6 else [50.0, 0.0]
        return first if call == 0 else then

    state = State.from_canvases([[2] * 6], steps=6, mask_id=2)
    end = decode(scripted(script, vocab=2), WINO(6, tau1=0.6, tau2=tau2), state, noise=NO_NOISE)
    assert positions(end.steps[0].revealed_BL) == [0, 1]
    assert positions(end.steps[1].remasked_BL) == remasked


def test_re_masks_stay_below_the_last_drafts(scripted):
    """Three drafted, three doubted: the two least likely go back."""
    table = [
        ({0: 0.9, 1: 0.9, 2: 0.9, 3: 0.2, 4: 0.2, 5: 0.2}, {}),
        ({3: 0.9, 4: 0.9, 5: 0.2}, {0: 0.3, 1: 0.5, 2: 0.4}),
        *[SURE] * 6,
    ]
    assert positions(table_run(table, scripted).steps[1].remasked_BL) == [0, 2]


def test_a_closed_block_is_never_doubted_again(scripted):
    """Blocks of 3: once block 1 is open, the shadows double its positions and ask about its tokens alone."""
    shadow = {0: 0.9, 1: 0.9, 2: 0.9}
    script_rows = [
        ({0: 0.9, 1: 0.9, 2: 0.2, 3: 0.2, 4: 0.2, 5: 0.2}, shadow),
        ({2: 0.9, 3: 0.2, 4: 0.2, 5: 0.2}, shadow),
        ({3: 0.9, 4: 0.9, 5: 0.2}, {}),
        ({5: 0.9}, {0: 0.1, 1: 0.1}),
        ({}, {}),
    ]

    def script(tokens, slot, call):
        confidence, verify = script_rows[call]
        return peaked(confidence[slot] if slot < 6 else verify[slot - 6])

    denoiser = scripted(script, vocab=10)
    state = State.from_canvases([[10] * 6], steps=6, mask_id=10)
    end = decode(denoiser, WINO(3), state, noise=NO_NOISE)
    assert [positions(s.revealed_BL) for s in end.steps] == [[0, 1], [2], [3, 4], [5]]
    assert not any(s.remasked_BL.any() for s in end.steps)
    assert denoiser.calls[3].position_BN[0, 6:].tolist() == [3, 4, 5]
    assert denoiser.calls[3].given_BN[0, 6:].tolist() == [0, 0, -1]


def test_committed_tokens_are_not_doubted(scripted):
    """Another policy may have committed some of the block, or the EOS fill: not asked about and not re-masked."""
    table = [
        ({3: 0.9, 4: 0.9, 5: 0.2}, {0: 0.1, 2: 0.1}),
        *[SURE] * 6,
    ]

    def script(tokens, slot, call):
        confidence, verify = table[call]
        return peaked(confidence[slot] if slot < 6 else verify[slot - 6])

    start = State.from_canvases([[10] * 6], steps=6, mask_id=10)
    tokens_BL, committed_BL = torch.tensor([[0, 0, 0, 10, 10, 10]]), start.committed_BL.clone()
    committed_BL[0, 1] = True
    denoiser = scripted(script, vocab=10)
    start = replace(start, tokens_BL=tokens_BL, committed_BL=committed_BL)
    first = decode(denoiser, WINO(6), start, noise=NO_NOISE).steps[0]
    assert denoiser.calls[0].given_BN[0, 6:].tolist() == [0, -1, 0, -1, -1, -1]
    assert positions(first.remasked_BL) == [0, 2]
