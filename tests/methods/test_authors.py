"""Whole runs of the authors' loops on the toy network, step by step. Info-Gain's two loops: test_info_gain.py.

`tests/golden` has what the authors' code did, with the random numbers that it drew; README.md there says how. Of
`methods.json` the runs are at temperature 0 (and some above), of `methods_drawn.json` the random numbers were replaced
by recorded uniforms: both loops then draw the same tokens.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from tests.helpers.cases import each_case
from tests.helpers.paths import GOLDEN
from tests.methods.conftest import MASK, Replay, Toy
from tests.methods.worked import revealed
from unmask.axes import ReMDM
from unmask.base.errors import ConfigError
from unmask.core import (
    BatchValue,
    DenoiserWrapper,
    ModelInput,
    Needs,
    Noise,
    SamplingParams,
    State,
    Trajectory,
    sample,
)
from unmask.engine import LookAheadCache, StepSettings, decode, predict
from unmask.methods import (
    DCD,
    DDPD,
    DSB,
    DUS,
    KLASS,
    P2,
    SOAR,
    WINO,
    CoRe,
    Dream,
    EBSampler,
    FastDLLM,
    FastDLLMDream,
    LLaDA,
    ReMDMLLaDA,
    ReMDMSampler,
)
from unmask.models import GuidedDenoiser

CASES = {}
for name in ("methods.json", "methods_drawn.json"):
    for method, listed in json.loads((GOLDEN / name).read_text())["methods"].items():
        CASES.setdefault(method, []).extend(listed)


def read(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


def positions(mask_BL):
    return mask_BL[0].nonzero().flatten().tolist()


# Loops recorded canvas by canvas, with the random numbers that they drew


@dataclass(frozen=True)
class Loop:
    """Recorded runs of one loop, and what makes ours of a case: the method, and how it draws tokens."""

    name: str
    cases: list
    policy: Callable
    sampling: Callable
    forwards: str = "forward_rows"
    skipped: tuple[str, ...] = ()
    """More steps than masks (refused, see below), or controls that are no part of the method."""


def core(case):
    return CoRe(
        block_length=case["block_length"],
        base=case["base_masking"],
        revise_every=case["revise_every"],
        candidates=case["candidate_m"],
        rewrites=case["remask_k"],
        tail=case["tail_protect"],
        joint_reeval=case["joint_reeval"],
    )


def core_sampling(case):
    """Their confidence_eos_eot_inf is no trick on confidences: it bars both tokens in every forward."""
    barred = float("inf") if case["confidence_eos_eot_inf"] else 0.0
    trick = case["logits_eos_inf"]
    return SamplingParams(case["temperature"], sampler="gumbel", logits_eos_inf=trick, eos_penalty=barred)


def llada_sampling(case):
    tricks = {name: case[name] for name in ("logits_eos_inf", "confidence_eos_eot_inf")}
    return SamplingParams(case["temperature"], sampler="gumbel", **tricks)


LLADA, DREAM, WINO_RUNS, CORE = read("llada"), read("dream"), read("wino"), read("core")
LOOPS = [
    Loop("llada", LLADA["cases"], lambda c: LLaDA(c["block_length"], c["remasking"]), llada_sampling,
         skipped=("llada-06",)),
    Loop("dream", DREAM["cases"], lambda c: Dream(c["alg"], c["alg_temp"] or 0.0, c["eps"]),
         lambda c: SamplingParams(c["temperature"], c["top_p"] or 1.0, c["top_k"] or 0), "forward_calls",
         ("dream-11",)),
    Loop("wino", [*WINO_RUNS["cases"], *WINO_RUNS["temperature_cases"]],
         lambda c: WINO(c["block_length"], c["threshold"], c["threshold_back"]),
         lambda c: SamplingParams(c["temperature"], sampler="gumbel"), "forward_calls"),
    Loop("core", [*CORE["cases"], *CORE["control_cases"]], core, core_sampling,
         skipped=("core-22", "core-c00", "core-c01", "core-c02")),
]  # fmt: skip
RUNS = [(loop, case) for loop in LOOPS for case in loop.cases if case["id"] not in loop.skipped]


@each_case(("loop", "case"), RUNS, ids=[case["id"] for _, case in RUNS])
def test_same_tokens_as_the_authors_step_by_step(loop, case, replay):
    ours = replay(case, loop.policy(case), loop.sampling(case))
    assert ours.canvases == case["canvases"]
    assert ours.final == case["final"]
    assert ours.forwards == case[loop.forwards]
    assert not ours.unused()
    steps = ours.traj.steps
    if loop.name == "llada":
        counts = case["quotas"] * (case["gen_length"] // case["block_length"])
        assert [int(step.revealed_BL.sum()) for step in steps] == counts
    elif loop.name == "dream":
        assert [int(step.revealed_BL.sum()) for step in steps] == case["counts"]
    elif loop.name == "wino":
        for step, theirs in zip(steps, case["steps_detail"], strict=True):
            assert positions(step.revealed_BL) == theirs["drafted"]
            assert positions(step.remasked_BL) == theirs["remasked"]
            assert step.action.notes["block_B"].tolist() == [theirs["block"]]
    else:
        per_call = case["forward_rows"] // case["forward_calls"]
        for step, theirs in zip(steps, case["steps_detail"], strict=True):
            assert positions(step.remasked_BL) == theirs["revised"]
            assert int(step.forwards_B) == per_call * theirs["forwards"]


TOO_MANY_STEPS = {"llada-06": (12, 8), "dream-11": (24, 16), "core-22": (12, 8)}


@each_case("case", TOO_MANY_STEPS)
def test_more_steps_than_masks_are_refused(case, replay):
    """The authors' loops take them, and then reveal nothing in some steps."""
    loop, recorded = next((loop, c) for loop in LOOPS for c in loop.cases if c["id"] == case)
    steps, masks = TOO_MANY_STEPS[case]
    with pytest.raises(ConfigError, match=rf"steps of row 0 is {steps}; allowed: 1 to {masks}"):
        replay(recorded, loop.policy(recorded))


@each_case("case", LLADA["quirk_cases"], ids=lambda c: c["id"])
def test_lladas_eos_trick_at_a_temperature_differs_by_the_eos_column_only(case, replay):
    """Above temperature 0 the published code distrusts EoT alone; ours distrusts EOS too, as at temperature 0."""
    policy = LLaDA(case["block_length"])
    assert replay(case, policy, llada_sampling(case), eos_ids=(10,)).canvases == case["canvases"]
    assert replay(case, policy, llada_sampling(case)).canvases != case["canvases"]


@each_case("case", [c for c in WINO_RUNS["cases"] if "layouts" in c], ids=lambda c: c["id"])
def test_winos_shadow_layout_is_the_authors(case):
    """Position ids and the attention matrix of every block, slot by slot."""
    prompt, block = len(case["prompt"]), case["block_length"]
    policy = WINO(block, case["threshold"], case["threshold_back"])
    start = State.from_prompts([case["prompt"]], new_tokens=case["gen_length"], steps=1, mask_id=MASK)
    for number, layout in enumerate(case["layouts"]):
        tokens_BL = start.tokens_BL.clone()
        tokens_BL[0, prompt : prompt + number * block] = 0
        inputs = policy.model_input(Trajectory.start(replace(start, tokens_BL=tokens_BL), Noise.of([0])))
        assert inputs.position_BN[0].tolist() == layout["position_ids"]
        attention = ["".join("01"[a] for a in row) for row in inputs.attend_BNN[0].int().tolist()]
        assert attention == layout["attention_rows"]
        assert inputs.tokens_BN[0, len(case["final"]) :].tolist() == [MASK] * block
        assert inputs.valid_BN.all()


class Spy(LookAheadCache):
    """A look-ahead that remembers what it was asked."""

    def predict(self, states, owner_U, needs=None, given_UL=None):
        prediction = super().predict(states, owner_U, needs, given_UL)
        self.looks = [*getattr(self, "looks", []), states]
        return prediction


@each_case("case", [c for loop, c in RUNS if loop.name == "core"], ids=lambda c: c["id"])
def test_core_probes_the_same_positions(case, replay):
    """The jointly masked set of every probing step, at the authors' own canvas."""
    ours, policy = replay(case, core(case), core_sampling(case)), core(case)
    toy = Toy(case["toy_seed"])
    spy = Spy(StepSettings(GuidedDenoiser(toy, case["cfg_scale"]) if case["cfg_scale"] else toy, core_sampling(case)))
    for number, theirs in enumerate(case["steps_detail"]):
        spy.looks = []
        traj = ours.traj.resume(0, number)
        traj, _ = predict(spy.settings, traj, policy.model_input(traj), policy.needs)
        spy.start_counting(traj.rows_B)
        policy.act(traj, spy)
        if theirs["candidates"] is None:
            assert not spy.looks
        else:
            assert positions(spy.looks[0].masked_BL & ~traj.state.masked_BL) == theirs["candidates"]


# Loops recorded by what each step revealed: at temperature 0, or with uniforms in place of their random numbers


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


class Sharpened(DenoiserWrapper):
    """The toy network with its logits multiplied: sure of some tokens."""

    def __init__(self, inner, scale):
        self.denoiser, self.scale = inner, scale

    def __call__(self, view, needs):
        output = self.denoiser(view, needs)
        return replace(output, logits_RV=output.logits_RV * self.scale)


SOAR_RUNS = read("soar")["cases"]


@each_case("case", SOAR_RUNS, ids=lambda case: case["id"])
def test_soar(case):
    n = case["gen_length"]
    state = State.from_prompts([case["prompt"]], new_tokens=n, steps=n, mask_id=MASK)
    search = SOAR(width=case["width"], block_length=case["block_length"])
    end = decode(Sharpened(Toy(case["toy_seed"]), case["scale"]), search, state, noise=Noise.of([0]))
    assert [step.revealed_BL[0].nonzero().flatten().tolist() for step in end.steps] == case["revealed"]
    assert end.state.tokens_BL[0].tolist() == case["final"]
    assert float(end.steps[-1].action.notes["value"]) == pytest.approx(case["score"], abs=1e-4)
    # They run paths that are full along with the others.
    assert int(end.forwards_B) <= case["forward_rows"]


def test_soars_recorded_runs_search_and_accelerate():
    both = [c for c in SOAR_RUNS if max(c["beam_sizes"]) > 1 and max(map(len, c["revealed"])) > 1]
    assert len(SOAR_RUNS) == 40
    assert len(both) >= 10


DDPD_RUNS = read("ddpd")["cases"]


class BatchUniforms(BatchValue):
    """The uniforms of a golden run, for one of its two rows: each call of their loop where ours asks."""

    def __init__(self, case, row):
        self.case, self.row, self.key_B = case, row, torch.zeros(1, dtype=torch.long)

    def select(self, rows_U):
        return self

    def join(self, others):
        return self

    def uniform(self, step_B, position_BN, purpose):
        return self._of(int(step_B[0]), purpose)[position_BN]

    def uniform_packed(self, step_R, position_R, row_R, purpose):
        return self._of(int(step_R[0]), purpose)[position_R]

    def _of(self, step, purpose):
        n = self.case["length"]
        calls = {"planner/start": 0, "planner/position": 1, "planner/coin": 2, "token": 3}
        call = calls[purpose] + 3 * max(0, step - 1)
        whole = purpose in ("planner/start", "planner/coin")
        u = np.random.default_rng([self.case["noise_seed"], call]).random((2, n if whole else 1))
        return torch.from_numpy(np.broadcast_to(u[self.row], n).copy())


@each_case("row", [0, 1])
@each_case("case", DDPD_RUNS, ids=lambda case: case["id"])
def test_ddpd(case, row):
    """Canvas by canvas, on the toy network, with the planner that `head=self` is."""
    policy = DDPD(
        start="uniform",
        weights="softmax" if case["softmax"] else "sigmoid",
        planner_temperature=case["x1_temp"] if case["softmax"] else 1.0,
        fill=case["fill"],
        head="self",
    )
    state = State.from_canvases([[11] * case["length"]], steps=case["steps"], mask_id=11, extra_steps=True)
    end = decode(
        Toy(case["toy_seed"]), policy, state, noise=BatchUniforms(case, row), sampling=SamplingParams(case["x1_temp"])
    )
    ours = [canvas.tolist() for canvas in end.row(0).canvases()]
    # Their last record is before the fill, which is part of our last step.
    assert ours[2:-1] == [canvas[row] for canvas in case["canvases"][:-1]]
    assert ours[-1] == case["final"][row]
    assert int(end.forwards_B) == case["forward_calls"] + 1


def test_ddpds_recorded_runs_correct_and_fill():
    rewritten = [c for c in DDPD_RUNS if c["steps"] > c["length"]]
    filled = [c for c in DDPD_RUNS if c["canvases"][-1] != c["final"]]
    assert len(DDPD_RUNS) == 32
    assert len(rewritten) >= 5
    assert len(filled) >= 5


REMDM = read("remdm")


@each_case("row", REMDM["nucleus"], ids=lambda r: f"p{r['nucleus_p']}-at{r['position']}")
def test_our_nucleus_is_the_authors_plus_the_token_that_crosses(row):
    """ReMDM drops the token whose mass crosses top_p, unless it is the first; our proposal keeps it, as Dream does."""
    state = State.from_canvases([REMDM["inputs"]["canvas"]], steps=1, mask_id=11)
    inputs = ModelInput.of(state, Needs())
    network = Toy(REMDM["inputs"]["toy_seed"])
    seen = sample(
        network(inputs, Needs()),
        inputs,
        SamplingParams(top_p=row["nucleus_p"]),
        Needs(filtered=True, top_k=12),
        network.vocabulary,
        noise=Noise.of([0]),
        step_B=state.step_B,
    )
    ours, clean = (whole_row(part, row["position"]) for part in (seen.filtered, seen.clean))
    theirs = torch.tensor(row["probabilities"], dtype=torch.float64)
    first_crosses = float(clean.max()) > row["nucleus_p"]
    assert int(((ours > 0) & (theirs == 0)).sum()) == (0 if first_crosses else 1)
    shared = torch.where(theirs > 0, ours, 0.0)
    torch.testing.assert_close(shared / shared.sum(), theirs, rtol=1e-5, atol=1e-6)


def whole_row(statistics, position):
    """The distribution at one position; tokens that a filter removed may be listed more than once, with 0."""
    top_K, p_K = statistics.top_BNK[0, position], statistics.p_BNK[0, position].double()
    return torch.zeros(12, dtype=torch.float64).index_add(0, top_K, p_K)
