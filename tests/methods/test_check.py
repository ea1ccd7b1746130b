"""The contract check over every registered method, and proof that it catches methods that break it."""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar

import pytest
import torch

import unmask
from tests.helpers.device import DEVICE
from unmask.axes import ReMDM, cardinality, commitment, score
from unmask.base.errors import ContractError, DenoiserError, UnmaskError
from unmask.core import Action, Noise, Policy, Search, State, row_key
from unmask.engine import join_rows
from unmask.methods import METHODS, LLaDA, fixed_action, make_policy, with_remasking
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
# Its quota needs steps that divide the answer: tests/methods/test_fast_dllm.py checks it on such rows.
OTHER_ROWS = {"fast-dllm-dream"}
CASES = [(name, options) for name in METHODS if name not in OTHER_ROWS for options in VARIANTS.get(name, [{}])]


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{o}" for n, o in CASES])
def test_every_registered_method_keeps_the_contract(name, options):
    assert kept(make_policy(name, **options), Problem.default(device=DEVICE)) is None


def kept(method, problem=None):
    """None, where the contract of its kind is."""
    return (check_policy if isinstance(method, Policy) else check_search)(method, problem)


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
    return Action(
        score.rows("confidence", state),
        state.masked_BL,
        torch.ones(state.batch, dtype=torch.float64),
        commitment.commit_all(state),
        rule="confidence",
    )


@dataclass(frozen=True)
class ReadsNeighbours(Policy):
    """Reveals as many as the batch's first row has masks left: Dream's batch mean, exaggerated."""

    name: ClassVar[str] = "reads-neighbours"

    def act(self, traj, look_ahead):
        n_B = traj.state.masked_BL.sum(-1)
        k_B = (n_B[0] // 2).clamp(min=1).expand_as(n_B)
        return replace(_everything(traj.state), kappa_B=cardinality.fraction(k_B, n_B))


@dataclass(frozen=True)
class ReadsPadding(Policy):
    name: ClassVar[str] = "reads-padding"

    def act(self, traj, look_ahead):
        n_B = traj.state.masked_BL.sum(-1)
        k = max(1, traj.state.tokens_BL.shape[1] // 3)
        return replace(_everything(traj.state), kappa_B=cardinality.fraction(k, n_B))


@dataclass(frozen=True)
class Counts(Policy):
    """Keeps its memory in itself."""

    name: ClassVar[str] = "counts"
    calls: list = field(default_factory=list, repr=False)

    def act(self, traj, look_ahead):
        self.calls.append(1)
        n_B = traj.state.masked_BL.sum(-1)
        return replace(_everything(traj.state), kappa_B=cardinality.fraction(1 + len(self.calls) % 3, n_B))


@dataclass(frozen=True)
class WritesInput(Policy):
    name: ClassVar[str] = "writes-input"

    def act(self, traj, look_ahead):
        traj.state.tokens_BL[:, -1] += 0 * traj.state.tokens_BL[:, -1] + 1
        return _everything(traj.state)


@dataclass(frozen=True)
class HidesMemory(Policy):
    """Says it reads no past and does."""

    name: ClassVar[str] = "hides-memory"

    def act(self, traj, look_ahead):
        n_B = traj.state.masked_BL.sum(-1)
        k = 1 if traj.last is None else 2
        return replace(_everything(traj.state), kappa_B=cardinality.fraction(k, n_B))


@dataclass(frozen=True)
class Waits(Policy):
    name: ClassVar[str] = "waits"

    def act(self, traj, look_ahead):
        return replace(_everything(traj.state), kappa_B=torch.zeros(traj.state.batch, dtype=torch.float64))


@dataclass
class NotFrozen(Policy):
    name: ClassVar[str] = "not-frozen"

    def act(self, traj, look_ahead):
        return _everything(traj.state)


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        (ReadsNeighbours(), "neighbours"),
        (ReadsPadding(), "padding"),
        (Counts(), "same bytes|neighbours"),
        (WritesInput(), "inputs alone"),
        (HidesMemory(), "memory 0"),
        (Waits(), "had not finished"),
        (NotFrozen(), "frozen"),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_broken_methods_are_caught(policy, complaint):
    with pytest.raises(UnmaskError, match=complaint):
        check_policy(policy)


@dataclass(frozen=True)
class Forgets(Policy):
    name: ClassVar[str] = "forgets"

    def act(self, traj, look_ahead):
        _everything(traj.state)


def test_common_slips_are_named():
    with pytest.raises(UnmaskError, match="returned None; allowed: an Action"):
        check_policy(Forgets())
    with pytest.raises(ContractError, match="LLaDA\\(\\), not LLaDA"):
        check_policy(LLaDA)


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


def test_revised_wraps_any_policy():
    assert (
        check_policy(with_remasking(fixed_action(score="uniform", commitment="margin:0.5"), ReMDM("rescale", eta=0.7)))
        is None
    )
    assert check_policy(with_remasking(LLaDA(), ReMDM("cap", eta=1.0))) is None
