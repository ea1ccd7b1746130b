"""The contract check over every registered method, and proof that it catches methods that break it."""

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import pytest
import torch

import unmask
from tests.helpers.cases import each_case
from tests.helpers.device import DEVICE
from unmask.axes import AXES, ReMDM
from unmask.base.errors import ContractError, DenoiserError, UnmaskError
from unmask.core import Action, Noise, Policy, Probability, Search, State, row_key
from unmask.engine import join_rows
from unmask.methods import (
    DCD,
    DOS,
    DSB,
    DUS,
    KLASS,
    METHODS,
    P2,
    VSB,
    BestOf,
    Composed,
    Dream,
    EBSampler,
    FastDLLM,
    FastDLLMDream,
    LLaDA,
    ReMDMLLaDA,
    ReMDMSampler,
    Swordsman,
    candidates,
    compose,
    fixed_action,
    make_policy,
    register_reference,
    with_remasking,
)
from unmask.methods.check import Problem, check_policy, check_search
from unmask.models import GuidedDenoiser

VARIANTS = {
    "llada": [{}, {"block_length": 2}, {"remasking": "random"}, {"block_length": 2, "remasking": "random"}],
    "dream": [{"alg": a} for a in ("origin", "maskgit_plus", "topk_margin", "entropy")]
    + [{"alg": "entropy", "alg_temp": 0.3}],
    "fixed": [{}]
    + [{"alpha": a} for a in ("margin", "certainty", "stability", "dependency", "uniform")]
    + [{"region": r} for r in ("block:2", "last-block:2", "window:3", "dilated:2", "near:1")]
    + [{"kappa": k} for k in ("count:1", "share:0.5", "above:0.9", 1.0)]
    + [{"commit": c} for c in ("none", "confidence:0.9", "margin:0.5")],
    "revised": [{}]
    + [{"operator.variant": v, "operator.eta": e} for v, e in (("cap", 0.5), ("rescale", 0.5), ("loop", 0.1))],
    "wino": [{"block_length": 2}, {"block_length": 6}, {"tau1": 0.3, "tau2": 0.95}, {}],
    "core": [
        {"revise_every": 1, "tail": 0, "candidates": 2},
        {"block_length": 2},
        {},
        {"revise_every": 1, "tail": 0, "joint_reeval": True, "base": "margin", "window": (0.0, 1.0)},
    ],
    "vsb": [{"window": 4, "least": 2}],
    "info-gain": [{"threshold": None}, {}, {"block_length": 2}, {"objective": "remaining", "candidates": 3}],
    "demask": [{"head": "measured"}, {"head": "measured", "threshold": 0.5, "budget": 0.3, "both": True}],
    "ddpd": [{"head": "self"}, {"head": "self", "start": "uniform", "weights": "sigmoid"}],
    "lookum": [{}, {"variant": "smc", "verifier": "confidence"}],
    "order-token-search": [{"block_length": 2, "beams": 2}],
}
# Its quota needs steps that divide the answer: it is tried on such rows below.
OTHER_ROWS = {"fast-dllm-dream"}
CASES = [(name, options) for name in METHODS if name not in OTHER_ROWS for options in VARIANTS.get(name, [{}])]


def kept(method, problem=None):
    """None, where the contract of its kind is."""
    return (check_policy if isinstance(method, Policy) else check_search)(method, problem)


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{o}" for n, o in CASES])
def test_every_registered_method_keeps_the_contract(name, options):
    """Once per method also on longer answers and at both ends of its settings: where no problem is given."""
    first = options == VARIANTS.get(name, [{}])[0]
    problem = None if first and DEVICE.type == "cpu" else Problem.default(device=DEVICE)
    assert kept(make_policy(name, **options), problem) is None


def test_the_dream_loop_of_fast_dllm_keeps_the_contract_where_steps_divide_the_answer():
    problem = Problem.default()
    even = problem.state.select(torch.tensor([0, 1]))
    check_policy(FastDLLMDream(0.5), Problem(problem.denoiser, even, Noise(problem.noise.key_B[:2])))


MORE = [
    KLASS(),
    KLASS(0.4, 1.0, block_length=3),
    KLASS(0.4, 0.5, variant="dream"),
    KLASS(0.1, 5.0, strategy="random"),
    KLASS(0.1, 5.0, window=3, strategy="min_kl"),
    FastDLLM(block_length=2),
    FastDLLM("factor", block_length=None),
    FastDLLM(threshold=0.3, spacing=2),
    EBSampler(1.0, "margin", 3),
    EBSampler(2.0, spacing=2),
    DSB(FastDLLM(threshold=0.5), 2, 2),
    DSB(FastDLLM("factor"), 2, None),
    DUS(4),
    DUS(4, skip=0.6),
    DUS(3, 3, skip=0.9),
    DCD(0.5, 2, 3),
    DCD(-0.5, 3, score="entropy"),
    DCD(0.2, score="margin"),
    DCD(per_step=2),
    DOS("eb", gamma=1.0),
    DOS(drop_self=True, sinks=0.3),
    Swordsman(0.5, 0.05, "masked"),
    Swordsman(0.7, 10.0),
    VSB(window=3, least=1),
    VSB(window=4, least=2, delta=0.0, aggregate="max"),
    P2(2.0),
    P2(0.0, "sine"),
    P2(1.3, form="probability", exact=True),
    P2(noisy=True),
    ReMDMSampler(ReMDM("conf")),
    ReMDMSampler(ReMDM("loop")),
    ReMDMSampler(ReMDM("rescale")),
    ReMDMLLaDA(None, 2),
    BestOf(EBSampler(), n=3),
    BestOf(FastDLLM(block_length=2), n=3),
    with_remasking(fixed_action(score="uniform", commitment="margin:0.5"), ReMDM("rescale", eta=0.7)),
    with_remasking(LLaDA(), ReMDM("cap", eta=1.0)),
    with_remasking(Composed(Dream(), commitment="margin:0.5")),
    Composed(Dream(), score="uniform"),
    Composed(Dream(), score="certainty", region="block:2"),
    Composed(LLaDA(), cardinality="count:2"),
    compose("margin", "block:3", "eb:0.5", "remdm-conf"),
    compose("random", "masks:2", "factor:1"),
    compose("stability+confidence", "sliding:2:3", "above:0.6", "confidence:0.5+remdm-cap:0.3"),
    compose("entropy", "groups:4", "all"),
    compose("uniform", "last-block:3", 0.5, "remdm-loop:0.1"),
]
"""Settings that take other ways through the rules; each in the nightly run."""


@pytest.mark.slow
@pytest.mark.parametrize("method", MORE, ids=lambda method: method.name)
def test_other_settings_keep_the_contract(method):
    kept(method)


@pytest.mark.slow
@pytest.mark.parametrize("axis", list(AXES))
def test_candidates_around_a_policy_keep_the_contract(axis):
    for policy in candidates(register_reference(FastDLLM(block_length=2)))[axis].values():
        check_policy(policy)


ROWS = ([5, 9, -1, -1, -1, -1], [17, 23, 42, -1, -1, -1, -1, 11])
"""Generation and infilling, four blanks each, so that blocks of 2 and 2 or 4 steps suit every method."""
SHADOWS = ("wino", "vsb")
NETWORK = [(name, options) for name in METHODS for options in VARIANTS.get(name, [{}])[:2]]


@cache
def network(name):
    # On a GPU a row alone has other bits unless its batch is filled up.
    return unmask.load(name, device=str(DEVICE), invariant=DEVICE.type != "cpu").denoiser


def rows_of(name, canvases, steps):
    denoiser = network(name)
    mask = denoiser.vocabulary.mask_id
    canvases = [[mask if token < 0 else token for token in canvas] for canvas in canvases]
    state = State.from_canvases(canvases, steps=steps, mask_id=mask, device=DEVICE)
    return Problem(denoiser, state, Noise.of([row_key(0, repr(canvas)) for canvas in canvases], DEVICE))


def short(name):
    """Settings that suit an answer of two positions."""
    own = {"wino": {"block_length": 2}, "vsb": {"window": 2, "least": 1}}
    return own.get(name) or ({"head": make_policy(name).headless} if METHODS[name].learned else {})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_contract_on_a_short_row_of_mini(name):
    assert kept(make_policy(name, **short(name)), rows_of("mini", [ROWS[0][:4]], [2])) is None


@pytest.mark.parametrize("name", ["dream", "fast-dllm-dream"])
def test_methods_for_dream_keep_the_contract_on_a_short_row_of_mini_dream(name):
    assert check_policy(make_policy(name), rows_of("mini-dream", [ROWS[0][:4]], [2])) is None


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mini", "mini-dream"])
@pytest.mark.parametrize(("name", "options"), NETWORK, ids=[f"{n}-{o}" for n, o in NETWORK])
def test_every_method_keeps_the_contract_on_trained_networks(name, options, model):
    if model == "mini-dream" and name in SHADOWS:
        with pytest.raises(DenoiserError, match="shadow slots"):
            check_policy(make_policy(name, **options), rows_of(model, ROWS, [2, 4]))
        return
    assert kept(make_policy(name, **options), rows_of(model, ROWS, [2, 4])) is None


@pytest.mark.parametrize("name", SHADOWS)
def test_shadow_slots_are_refused_where_predictions_are_read_one_slot_early(name):
    with pytest.raises(DenoiserError, match="allowed: policies without shadow slots"):
        check_policy(make_policy(name, **short(name)), rows_of("mini-dream", [ROWS[0][:4]], [2]))


def _everything(state):
    return Action.reveal(state.masked_BL, of=state.masked_BL)


def surest(state, k):
    """The first masked positions: as many as `k`, per row or for all rows."""
    rank_BL = state.masked_BL.long().cumsum(-1) - 1
    k_B = k if isinstance(k, torch.Tensor) else torch.full_like(state.step_B, k)
    return Action.reveal(state.masked_BL & (rank_BL < k_B.clamp(min=1)[:, None]), of=state.masked_BL)


def policy_of(act, **traits):
    """A policy without settings that acts by a function of trajectory and look-ahead, and declares these traits."""
    body = {"name": "broken", "act": lambda self, traj, look_ahead: act(traj, look_ahead), "__annotations__": {}}
    return dataclass(frozen=True)(type("Broken", (Policy,), {**body, **traits}))()


CALLS = []


def counts_calls(traj, _):
    CALLS.append(1)
    return surest(traj.state, 1 + len(CALLS) % 3)


def writes_input(traj, _):
    traj.state.tokens_BL[:, -1] += 1
    return _everything(traj.state)


def takes_back(traj, _):
    again_BL = traj.state.revealed_BL & (traj.state.step_B == 1)[:, None]
    action = surest(traj.state, 2)
    return replace(action, commit_BL=torch.zeros_like(action.commit_BL), remask_BL=again_BL)


def draws(traj, _):
    traj.uniform("order")
    return _everything(traj.state)


def looks(traj, look_ahead):
    look_ahead.predict(traj.state, torch.arange(traj.state.batch))
    return _everything(traj.state)


def past(traj, most):
    return min(len(traj.steps), most)


ANY_STEPS = {"steps": "ignore"}
BROKEN = {
    "neighbours|ignore their order": (
        lambda t, _: surest(t.state, (t.state.masked_BL.sum(-1)[0] // 2).expand_as(t.state.step_B)),
        ANY_STEPS,
    ),
    "padding": (lambda t, _: surest(t.state, t.state.tokens_BL.shape[1] - 6), ANY_STEPS),
    "padding|padded by 24": (lambda t, _: surest(t.state, 1 + t.state.tokens_BL.shape[1] // 16), ANY_STEPS),
    "same bytes|neighbours": (counts_calls, ANY_STEPS),
    "inputs alone": (writes_input, ANY_STEPS),
    "past_steps = 0 reads no past": (lambda t, _: surest(t.state, 1 + past(t, 1)), ANY_STEPS),
    "past_steps = 1 reads no more|resumes from any": (
        lambda t, _: surest(t.state, 1 + past(t, 2)),
        {"past_steps": 1, **ANY_STEPS},
    ),
    "had not finished": (lambda t, _: replace(_everything(t.state), kappa_B=0 * t.state.step_B.double()), {}),
    "steps = 'end'": (lambda t, _: surest(t.state, 1), {}),
    "steps = 'ignore'": (lambda t, _: surest(t.state, t.state.masked_BL.sum(-1) // t.state.remaining_B), ANY_STEPS),
    "steps = 'pace'": (lambda t, _: _everything(t.state), {"steps": "pace"}),
    "steps = 'end'.* given .1": (
        lambda t, _: surest(t.state, torch.where(t.state.horizon_B == 1, 1, t.state.masked_BL.sum(-1))),
        {},
    ),
    "remasks = False": (takes_back, ANY_STEPS),
    "block_cache = True": (lambda t, _: surest(t.state, 3), {"block_cache": True, "block_length": 2, **ANY_STEPS}),
    "cuda_graph = True.*__int__": (lambda t, _: surest(t.state, int(t.state.step_B.max()) + 1), {"cuda_graph": True}),
    "cuda_graph = True.*nonzero": (
        lambda t, _: (t.state.masked_BL.nonzero(), _everything(t.state))[1],
        {"cuda_graph": True},
    ),
    "cuda_graph = True.*__getitem__": (
        lambda t, _: (t.state.tokens_BL[t.state.masked_BL], _everything(t.state))[1],
        {"cuda_graph": True},
    ),
    "`random` is True for policies that draw": (draws, {}),
    "`looks_ahead` is True for policies that do": (looks, {}),
    "returned None; allowed: an Action": (lambda t, _: None, {}),
}


@each_case("promise", BROKEN)
def test_a_broken_promise_is_caught(promise):
    act, traits = BROKEN[promise]
    with pytest.raises(UnmaskError, match=promise):
        check_policy(policy_of(act, **traits))


@dataclass(frozen=True)
class StopsAtOne(Policy):
    """Reveals nothing when its threshold is 1."""

    name: ClassVar[str] = "stops-at-one"
    steps = "ignore"
    threshold: Probability = 0.5

    def act(self, traj, look_ahead):
        action = _everything(traj.state)
        return action if self.threshold < 1 else replace(action, kappa_B=0 * action.kappa_B)


def test_the_ends_of_settings_are_tried():
    with pytest.raises(UnmaskError, match="had not finished"):
        check_policy(StopsAtOne())


@dataclass
class NotFrozen(Policy):
    name: ClassVar[str] = "not-frozen"

    def act(self, traj, look_ahead):
        return _everything(traj.state)


def test_what_is_no_frozen_policy_is_named():
    with pytest.raises(ContractError, match="LLaDA\\(\\), not LLaDA"):
        check_policy(LLaDA)
    with pytest.raises(ContractError, match="frozen"):
        check_policy(NotFrozen())


@dataclass(frozen=True)
class BestOfGreedy(Search):
    """A small search: complete each row one position at a time, branching on the two best first positions."""

    name: ClassVar[str] = "best-of-greedy"
    width: int = 2
    sloppy: bool = False
    silent: bool = False

    def decode(self, run, traj):
        ends = []
        for row in range(traj.state.batch):
            one = traj.select(torch.tensor([row]))
            beams = [self._complete(run, one, torch.tensor([row]), first) for first in range(self.width)]
            ends.append(max(beams, key=lambda beam: beam[1])[0])
        end = join_rows(ends)
        if self.sloppy:
            tokens_BL = torch.where(traj.state.masked_BL, traj.state.batch % 3, end.state.tokens_BL)
            end = replace(end, state=replace(end.state, tokens_BL=tokens_BL))
        return replace(end, steps=()) if self.silent else end

    def _complete(self, run, traj, owner_U, first):
        value, turn = 0.0, 0
        while bool(traj.state.masked_BL.any()):
            seen = run.predict(traj.state, owner_U)
            confidence_BL = torch.where(traj.state.masked_BL, seen.confidence_BN, -1.0)
            order = confidence_BL[0].sort(descending=True, stable=True).indices
            at = int(order[min(first if turn == 0 else 0, int(traj.state.masked_BL.sum()) - 1)])
            region_BL = torch.zeros_like(traj.state.masked_BL)
            region_BL[0, at] = True
            value += float(confidence_BL[0, at].log())
            action = replace(_everything(traj.state), region_BL=region_BL)
            traj = run.apply_action(replace(traj, prediction=seen), self.name, action)
            turn += 1
        return traj, value


def test_a_method_that_owns_its_loop_keeps_its_contract():
    assert check_search(BestOfGreedy()) is None


@dataclass(frozen=True)
class ReadsTheBatch(BestOfGreedy):
    """Looks further when it has company."""

    def decode(self, run, traj):
        return replace(self, width=min(traj.state.batch, 3))._alone(run, traj)

    def _alone(self, run, traj):
        return BestOfGreedy.decode(self, run, traj)


def test_a_search_whose_rows_read_each_other_is_caught():
    with pytest.raises(ContractError, match="neighbours"):
        check_search(ReadsTheBatch())


def test_a_search_that_records_nothing_is_caught():
    with pytest.raises(ContractError, match="records its steps"):
        check_search(BestOfGreedy(silent=True))


def test_a_search_whose_end_is_not_where_its_steps_lead_is_caught():
    with pytest.raises(ContractError, match="records its steps"):
        check_search(BestOfGreedy(sloppy=True), Problem.default(seed=1))


@dataclass(frozen=True)
class Spends(BestOfGreedy):
    """Says what a base decode takes and heeds no budget, or never asks whether it is enough."""

    budget: int | str = "1.5x"

    def baseline_forwards(self, state):
        return state.masked_BL.sum(-1)


@dataclass(frozen=True)
class NeverAsks(Spends):
    width: int = 1


def test_a_search_that_spends_more_than_its_budget_is_caught():
    with pytest.raises(ContractError, match="stops inside its budget"):
        check_search(Spends())


def test_a_search_that_takes_any_budget_is_caught():
    with pytest.raises(ContractError, match="refuses a budget below a base decode"):
        check_search(NeverAsks())


@pytest.mark.parametrize(
    "method", [LLaDA(), make_policy("info-gain", threshold=None), make_policy("core", revise_every=1, tail=0)]
)
def test_the_contract_holds_under_guidance(method):
    """Rows that reach one canvas with different given tokens must not share logits."""
    plain = Problem.default()
    assert check_policy(method, Problem(GuidedDenoiser(plain.denoiser, 2.0), plain.state, plain.noise)) is None
