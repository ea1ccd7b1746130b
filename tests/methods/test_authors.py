"""Whole runs of the authors' loops on the toy network, step by step.

`tests/golden/methods.json` has runs at temperature 0 (and some above), `methods_drawn.json` runs whose random numbers
were replaced by recorded uniforms: both loops then draw the same tokens.
"""

import json
import math

import pytest

from tests.helpers.cases import each_case
from tests.helpers.paths import GOLDEN
from tests.methods.conftest import MASK, Replay, Toy
from tests.methods.worked import revealed
from unmask.axes import ReMDM
from unmask.core import Noise, SamplingParams, State
from unmask.engine import decode
from unmask.methods import KLASS, FastDLLM
from unmask.methods.dcd import DCD
from unmask.methods.dsb import DSB
from unmask.methods.dus import DUS
from unmask.methods.eb_sampler import EBSampler
from unmask.methods.fast_dllm import FastDLLMDream
from unmask.methods.p2 import P2
from unmask.methods.remdm import ReMDMLLaDA, ReMDMSampler

CASES = {}
for name in ("methods.json", "methods_drawn.json"):
    for method, listed in json.loads((GOLDEN / name).read_text())["methods"].items():
        CASES.setdefault(method, []).extend(listed)


def cases(method):
    return each_case("case", [pytest.param(c, id=c["id"]) for c in CASES[method]])


def run(case, policy, *, planner=None, eos_ids=(), eos_fill=False):
    new = case["gen_length"]
    given = [True] * len(case["prompt"]) + [False] * new
    canvas, steps = [*case["prompt"], *[MASK] * new], case.get("steps", new)
    state = State.from_canvases([canvas], steps=steps, mask_id=MASK, given=[given], extra_steps=policy.extra_steps)
    temperature = case.get("temperature", 0.0)
    noise = Replay(case) if "noise_calls" in case else Noise.of([0])
    sampler = case.get("sampler", "gumbel" if temperature else "inverse")
    # ReMDM's parametrisation gives the mask no probability; the others let it compete, at a logit of -30.
    sampling = SamplingParams(temperature, case.get("top_p") or 1.0, sampler=sampler, bar_mask="operator" in case)
    toy = Toy(case["toy_seed"], eos_ids)
    traj = decode(toy, policy, state, noise=noise, sampling=sampling, planner=planner, eos_fill=eos_fill)
    assert temperature == 0 or not noise.unused(len(traj.steps))
    return traj


def test_there_are_at_least_twenty_settings_of_each_loop_at_temperature_zero_and_many_above():
    counts = {
        method: (
            sum(c.get("temperature", 0.0) == 0 for c in listed),
            sum(c.get("temperature", 0.0) > 0 for c in listed),
        )
        for method, listed in {**CASES, "remdm_llada": [_with_temperature(c) for c in CASES["remdm_llada"]]}.items()
    }
    assert counts == {
        "fast_dllm": (28, 8),
        "fast_dllm_dream": (27, 24),
        "klass": (68, 32),
        "dus": (23, 22),
        "spaced": (36, 0),
        "dsb": (60, 32),
        "dcd": (44, 27),
        "p2": (29, 27),
        "remdm_llada": (23, 22),
        # Their sampler always draws.
        "remdm": (0, 28),
    }


def _with_temperature(case):
    """Their loop for LLaDA always draws, at temperature 1; equal uniforms make it take the most probable token."""
    return {"temperature": 1.0, **case}


def check(case, traj):
    assert revealed(traj) == case["reveals"][: len(traj.steps)]
    # What they ran after that revealed nothing.
    assert not any(case["reveals"][len(traj.steps) :])
    assert traj.state.tokens_BL[0].tolist() == case["final"]
    assert int(traj.forwards_B) == len(traj.steps) <= case["forwards"]


@cases("fast_dllm")
def test_fast_dllm(case):
    check(case, run(case, FastDLLM(threshold=case["threshold"], block_length=case["block_length"])))


@cases("fast_dllm_dream")
def test_fast_dllm_dream(case):
    check(case, run(case, FastDLLMDream(case["threshold"])))


@cases("dsb")
def test_dsb(case):
    if case["factor"] is None:
        base = FastDLLM(threshold=case["threshold"])
    else:
        base = FastDLLM("factor", factor=case["factor"], authors_tail=True)
    check(case, run(case, DSB(base, case["block_length"], case["max_block"])))


@cases("klass")
def test_klass(case):
    """Above temperature 0 their gate for LLaDA reads the softmax described at `test_dus_filter`: only the drawn tokens
    can be compared, so blocks hold one position. Dream's loop gates on the clean distribution, as ours.
    """
    names = ("threshold", "epsilon", "window", "block_length", "strategy", "variant")
    settings = {name: case[name] for name in names}
    if "masks_left" not in case:
        check(case, run(case, KLASS(**settings)))
        return
    # Fewer steps than tokens: theirs may end with masks, ours goes on from there.
    traj = run(case, KLASS(**settings, leave_unfinished=True))
    check(case, traj)
    assert int(traj.state.masked_BL.sum()) == case["masks_left"]
    ours = run(case, KLASS(**settings))
    assert not bool(ours.state.masked_BL.any())
    assert case["masks_left"] or ours.state.tokens_BL[0].tolist() == case["final"]


@cases("dus")
def test_dus(case):
    """Above temperature 0 without skips: theirs compares the threshold with the softmax described at the filter."""
    names = ("block_length", "base", "base_skip", "skip")
    settings = {name: case[name] for name in names}
    traj = run(case, DUS(**settings, leave_skipped=True))
    check(case, traj)
    assert int(traj.state.masked_BL.sum()) == case["masks_left"]
    ours = run(case, DUS(**settings))
    assert not bool(ours.state.masked_BL.any())
    if not case["masks_left"]:
        assert ours.state.tokens_BL[0].tolist() == case["final"]


@cases("spaced")
def test_dus_filter(case):
    """On top of EB-Sampler (their budget is in bits) and of the threshold rule; 0 is these alone.

    At temperature 0 only: above, their copies read entropy and confidence off a softmax of exp(z) over the Gumbel
    noise, which is no distribution that a token is drawn from; ours read the clean one.
    """
    shape = {"block_length": case["block_length"], "spacing": case["spacing"]}
    if case["kind"] == "eb":
        policy = EBSampler(case["level"] * math.log(2), **shape)
    else:
        policy = FastDLLM(threshold=case["level"], **shape)
    check(case, run(case, policy))


@cases("dcd")
def test_dcd(case):
    score = "entropy" if case["algo"].startswith("entropy") else "confidence"
    by_threshold = case["algo"].endswith("threshold")
    threshold = case["param"] if by_threshold else -1.0 if score == "entropy" else 0.9
    policy = DCD(threshold, case["s_init"], case["s_max"], score, None if by_threshold else case["param"])
    eos = case["eos_id"]
    if eos >= 12:
        check(case, run(case, policy))
        return
    # They overwrite what stands behind the first end of text, we leave it: equal up to there.
    traj = run(case, policy, eos_ids=(eos,), eos_fill=True)
    final, answer = traj.state.tokens_BL[0].tolist(), len(case["prompt"])
    end = case["final"].index(eos, answer) + 1 if eos in case["final"][answer:] else len(final)
    assert final[:end] == case["final"][:end]
    assert len(traj.steps) == len(case["reveals"])


@cases("remdm_llada")
def test_remdm_llada(case):
    traj = run(_with_temperature(case), ReMDMLLaDA(case["block_length"], case["k"]))
    assert traj.state.tokens_BL[0].tolist() == case["final"]
    # What each forward read: the canvas without what had just been dropped.
    read = [
        [MASK if dropped else token for token, dropped in zip(canvas, step.remasked_BL[0].tolist(), strict=True)]
        for canvas, step in zip((step.state.tokens_BL[0].tolist() for step in traj.steps), traj.steps, strict=True)
    ]
    assert read == case["read"]


@cases("p2")
def test_p2(case):
    """Where there is a planner theirs reads a draft of the prompt too; the runs here gave it the prompt itself."""
    planner = None if case["planner_seed"] is None else Toy(case["planner_seed"], ())
    noisy = case.get("noisy", False)
    traj = run(case, P2(case["eta"], case["schedule"], planner=planner is not None, noisy=noisy), planner=planner)
    canvases = [canvas.tolist() for canvas in traj.row(0).canvases()][1:]
    assert canvases == case["canvases"][: len(canvases)]
    assert traj.state.tokens_BL[0].tolist() == case["final"]


@cases("remdm")
def test_remdm(case):
    """Their one draw over tokens and mask is split into a coin and a token here: the same law, and the same runs."""
    traj = run(case, ReMDMSampler(ReMDM(**case["operator"])))
    canvases = [canvas.tolist() for canvas in traj.row(0).canvases()][1:]
    assert canvases == case["canvases"]
    assert traj.state.tokens_BL[0].tolist() == case["final"]
