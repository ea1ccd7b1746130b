"""With its neutral setting each method is a simpler one: the same tokens in the same order, on two small networks."""

from dataclasses import dataclass
from math import inf

import torch

import unmask
from tests.helpers.cases import each_case
from tests.methods.conftest import MASK, Toy
from unmask.axes import ReMDM
from unmask.core import Noise, Policy, SamplingParams, Search, State
from unmask.engine import decode
from unmask.methods import (
    DCD,
    DDPD,
    DEMASK,
    DOS,
    DSB,
    DUS,
    KLASS,
    MEDAL,
    METHODS,
    P2,
    SOAR,
    VSB,
    WINO,
    BestOf,
    Composed,
    CoRe,
    Dream,
    EBSampler,
    FastDLLM,
    FastDLLMDream,
    InfoGain,
    LLaDA,
    LookUM,
    OrderTokenSearch,
    ReMDMLLaDA,
    ReMDMSampler,
    Swordsman,
    fixed_action,
    with_remasking,
)
from unmask.models import ExactDenoiser, JointDistribution


@dataclass(frozen=True)
class Neutral:
    """Two policies that must agree, and the share of a row's answer that they take as steps (None: one step)."""

    method: Policy | Search
    simpler: Policy | Search
    why: str
    share: float | None = 1.0
    temperature: float = 0.0


ALL_AT_ONCE = fixed_action(cardinality="share:1.0")
ONE_BY_ONE = LLaDA()
IN_BLOCKS = LLaDA(block_length=4)
TABLE = [
    Neutral(LLaDA(), fixed_action(), "LLaDA's even split is the least count that still finishes", 0.5),
    Neutral(Composed(), fixed_action(), "nothing put together is the fixed reference", 0.5),
    Neutral(LLaDA(), ALL_AT_ONCE, "one step reveals everything", None),
    Neutral(LLaDA(block_length=1), FastDLLM(block_length=1), "blocks of one are left to right"),
    Neutral(FastDLLM(threshold=1.0, block_length=None), ONE_BY_ONE, "a threshold above every confidence seen"),
    Neutral(FastDLLM(threshold=1.0, block_length=4), IN_BLOCKS, "the same within blocks"),
    Neutral(FastDLLM(threshold=0.0, block_length=None), ALL_AT_ONCE, "a threshold that everything passes"),
    Neutral(FastDLLM("factor", factor=0.0, block_length=4), IN_BLOCKS, "a factor of 0 asks for certainty"),
    Neutral(FastDLLM("factor", factor=1000.0, block_length=None), ALL_AT_ONCE, "a factor that forgives everything"),
    Neutral(FastDLLM(threshold=0.0, block_length=4, spacing=16), IN_BLOCKS, "no two positions are that far apart"),
    Neutral(FastDLLMDream(0.0), LLaDA(), "nothing is deferred: the quota alone", 0.5),
    Neutral(FastDLLMDream(1.0), ONE_BY_ONE, "all but the first is deferred"),
    Neutral(KLASS(threshold=1.0), LLaDA(), "a gate that never opens leaves the schedule", 0.5),
    Neutral(KLASS(epsilon=0.0, block_length=4), IN_BLOCKS, "no position is ever that stable"),
    Neutral(KLASS(threshold=1.0, variant="dream"), ONE_BY_ONE, "Dream's loop falls back to one position"),
    Neutral(EBSampler(gamma=inf), ALL_AT_ONCE, "an infinite budget"),
    Neutral(EBSampler(gamma=0.0, proxy="confidence"), ONE_BY_ONE, "no budget: one position a step"),
    Neutral(DOS("eb", gamma=inf), ALL_AT_ONCE, "its base with an infinite budget"),
    Neutral(DOS("eb", gamma=0.0), DOS(), "both bases reveal one position a step, in its order"),
    Neutral(DUS(block_length=4, base=1), FastDLLM(threshold=0.0, block_length=4), "one group is the whole block"),
    Neutral(DUS(block_length=1), LLaDA(block_length=1), "blocks of one are left to right"),
    Neutral(DUS(block_length=4, skip=0.0), DUS(block_length=4, leave_skipped=True), "nothing is skipped"),
    Neutral(DSB(FastDLLM(threshold=0.5), 64, 64), FastDLLM(threshold=0.5, block_length=None), "wider than the answer"),
    Neutral(DSB(FastDLLM(threshold=0.5), 1, 1), LLaDA(block_length=1), "a window of one"),
    Neutral(DSB(FastDLLM(threshold=0.5), 3, None), DCD(0.5, 3, None), "greedy DSB is DCD without a longest window"),
    Neutral(Swordsman(1.0, inf), ONE_BY_ONE, "one block, and a threshold that nothing reaches"),
    Neutral(Swordsman(0.5, inf), FastDLLM(threshold=0.5, block_length=None), "one block keeps its first threshold"),
    Neutral(DCD(0.5, 64, None), FastDLLM(threshold=0.5, block_length=None), "a window that holds the answer"),
    Neutral(DCD(s_init=64, per_step=1), ONE_BY_ONE, "one a step, from everywhere"),
    Neutral(DCD(s_init=1), LLaDA(block_length=1), "a window of one mask"),
    Neutral(VSB(4, 4, threshold=0.5), FastDLLM(threshold=0.5, block_length=4), "shortest and longest block are one"),
    Neutral(ReMDMSampler(ReMDM("cap", 0.0)), Dream("origin", eps=1e-5), "sigma 0: ancestral sampling", 1.0, 1.0),
    Neutral(ReMDMSampler(ReMDM("rescale", 0.0)), Dream("origin", eps=1e-5), "the same", 1.0, 1.0),
    Neutral(ReMDMSampler(ReMDM("conf", 0.0)), Dream("origin", eps=1e-5), "the same", 0.5, 1.0),
    Neutral(ReMDMLLaDA(block_length=4, k=0), IN_BLOCKS, "nothing is dropped"),
    Neutral(WINO(4, tau1=1.0, tau2=0.0), IN_BLOCKS, "no draft passes, no token is doubted"),
    Neutral(WINO(4, tau1=0.5, tau2=0.0), FastDLLM(threshold=0.5, block_length=4), "drafts that stand"),
    Neutral(CoRe(revise_every=0), LLaDA(), "no revision", 0.5),
    Neutral(CoRe(revise_every=1, tail=0, window=(0.0, 1.0), rewrites=0), LLaDA(), "probes that rewrite nothing", 0.5),
    Neutral(CoRe(block_length=4, revise_every=0), IN_BLOCKS, "no revision"),
    Neutral(InfoGain(candidates=1, threshold=None), LLaDA(), "one candidate, the greedy one", 0.5),
    Neutral(InfoGain(tau_pos=0.0, threshold=None, block_length=4), IN_BLOCKS, "candidates that are all the greedy one"),
    Neutral(LookUM(budget="1x"), LLaDA(), "its smallest budget", 0.5),
    Neutral(LookUM(variant="smc", budget="1x", block_length=1), LLaDA(block_length=1), "the same"),
    Neutral(LookUM(paths=1), LLaDA(), "one path, the greedy one", 0.5, 0.8),
    Neutral(SOAR(threshold=1.0, budget="1x"), ONE_BY_ONE, "its smallest budget"),
    Neutral(SOAR(width=1, threshold=1.0, block_length=4), IN_BLOCKS, "a beam of one that is never sure", 1.0, 0.8),
    Neutral(SOAR(width=1, threshold=0.5, most=64), FastDLLM(threshold=0.5, block_length=None), "one that is soon sure"),
    Neutral(OrderTokenSearch(tau=0.0, budget="1x"), LLaDA(), "its smallest budget", 0.5),
    Neutral(OrderTokenSearch(tau=0.0, block_length=4), IN_BLOCKS, "drafts that are all alike"),
    Neutral(OrderTokenSearch(budget="1x"), OrderTokenSearch(beams=1), "its base is one draft with its noise"),
    Neutral(MEDAL(budget="1x"), LLaDA(), "its smallest budget", 0.5, 0.8),
    Neutral(MEDAL(budget="1x", block_length=4), IN_BLOCKS, "the same"),
    Neutral(P2(0.0), LLaDA(), "nothing is re-masked", 0.5),
    Neutral(P2(0.0, "linear", form="log", exact=True), ONE_BY_ONE, "the same with an exact count"),
    Neutral(DEMASK(inf, head="measured"), ALL_AT_ONCE, "an infinite budget"),
    Neutral(DEMASK(0.0, head="measured"), ONE_BY_ONE, "no budget, and everything depends a little"),
    Neutral(DEMASK(inf, 0.5, head="measured"), FastDLLM(threshold=0.5, block_length=None), "the threshold alone"),
    Neutral(DDPD(head="self"), ALL_AT_ONCE, "one step: its end fills every mask with the likeliest token", None),
    Neutral(Dream("maskgit_plus"), ALL_AT_ONCE, "one step reveals everything", None),
    Neutral(Dream("origin"), ALL_AT_ONCE, "the same", None),
    Neutral(BestOf(IN_BLOCKS, n=1), IN_BLOCKS, "one decode", 1.0, 0.8),
    Neutral(with_remasking(fixed_action(commitment="none"), ReMDM("cap", 0.0)), fixed_action(), "sigma 0", 0.5),
    Neutral(
        with_remasking(FastDLLM(threshold=0.5), ReMDM("conf", 1.0)), FastDLLM(threshold=0.5), "all is committed", 1.0
    ),
    Neutral(fixed_action(region="block:4"), IN_BLOCKS, "a block that is always as large as its quota"),
]
IDS = [f"{case.method.name}-{number:02d}" for number, case in enumerate(TABLE)]


def toy_rows():
    canvases = [[3, 5, *[MASK] * 8], [1, *[MASK] * 4, 7, 2], [8, 0, 4, *[MASK] * 12]]
    return Toy(17, ()), canvases, MASK


def exact_rows():
    exact = ExactDenoiser(JointDistribution.random(8, 3, dependence=2.0, seed=5))
    mask = exact.mask_id
    return exact, [[0, *[mask] * 4], [1, 2, *[mask] * 4], [2, *[mask] * 2, 0, *[mask] * 2, 1, 1]], mask


def mini_rows():
    denoiser = unmask.load("mini").denoiser
    mask = denoiser.vocabulary.mask_id
    return denoiser, [[5, 9, *[mask] * 4]], mask


def run(rows, policy, case):
    denoiser, canvases, mask = rows
    answers = [canvas.count(mask) for canvas in canvases]
    steps = [1 if case.share is None else round(case.share * n) for n in answers]
    state = State.from_canvases(canvases, steps=steps, mask_id=mask)
    sampling = SamplingParams(case.temperature)
    return decode(denoiser, policy, state, noise=Noise.of(list(range(len(canvases)))), sampling=sampling)


def order(traj, row):
    """Sets of positions that were revealed together, first to last."""
    revealed = [step.revealed_BL[0].nonzero().flatten().tolist() for step in traj.row(row).steps]
    return [positions for positions in revealed if positions]


@each_case("network", [toy_rows, exact_rows], ids=["toy", "exact"])
@each_case("case", TABLE, ids=IDS)
def test_a_neutral_setting_is_a_simpler_method(case, network):
    if case.method.needs.attention and network is toy_rows:
        # The toy network has no attention to read out.
        network = mini_rows
    rows = network()
    ours, simpler = (run(rows, policy, case) for policy in (case.method, case.simpler))
    assert torch.equal(ours.state.tokens_BL, simpler.state.tokens_BL), case.why
    for row in range(ours.state.batch):
        assert order(ours, row) == order(simpler, row), case.why


def test_every_method_has_one():
    assert {case.method.name for case in TABLE} == set(METHODS)
