"""Methods that own their loop: budgets, shared passes and notes of all, then each against brute force."""

import math
from dataclasses import replace
from itertools import combinations, permutations
from math import inf, log

import pytest
import torch

import unmask
from tests.helpers.cases import each_case
from tests.helpers.enumerated import free, remaining_confidence, remaining_entropy, told
from unmask.base.errors import ConfigError
from unmask.core import DenoiserWrapper, Noise, SamplingParams, State
from unmask.engine import decode
from unmask.methods import (
    KLASS,
    MEDAL,
    SOAR,
    BestOf,
    FastDLLM,
    InfoGain,
    LLaDA,
    LookUM,
    OrderTokenSearch,
    make_policy,
    with_remasking,
)
from unmask.methods.best_of import log_probability
from unmask.methods.examples import ScriptedDenoiser, logs
from unmask.models import ExactDenoiser, GuidedDenoiser, JointDistribution

# What all searches share: budgets that are kept, looks that are batched, and a record of what was thought of


SEARCHES = [
    LookUM(paths=4, tau=1.0),
    LookUM(paths=4, tau=1.0, variant="smc", beta=100.0),
    SOAR(width=3, threshold=0.9),
    OrderTokenSearch(beams=3, tau=1.0, block_length=3),
    MEDAL(),
]


IDS = ["lookum", "lookum-smc", "soar", "order-token-search", "medal"]


every_search = each_case("search", SEARCHES, ids=IDS)


EOS = 2


class Listening(DenoiserWrapper):
    """Which canvases it was shown, pass by pass."""

    def __init__(self, inner):
        self.denoiser, self.passes = inner, []

    def __call__(self, view, needs):
        self.passes.append([tuple(row) for row in view.tokens_BN.tolist()])
        return self.denoiser(view, needs)


def exact(n=6, seed=4):
    return ExactDenoiser(JointDistribution.random(n, 3, dependence=2.0, seed=seed), eos_ids=(EOS,))


def rows(denoiser, count=1, n=6):
    mask = denoiser.vocabulary.mask_id
    return State.from_canvases([[at % 3, *[mask] * (n - 1)] for at in range(count)], steps=n - 1, mask_id=mask)


def noise(count=1):
    return Noise.of(list(range(7, 7 + count)))


@every_search
@each_case("budget", [5, 6, 8, 13, 40, "1x", "1.5x", "3x"])
def test_every_budget_is_kept_and_gives_a_whole_answer(search, budget):
    model = exact()
    end = decode(model, replace(search, budget=budget), rows(model, 3), noise=noise(3))
    most = budget if isinstance(budget, int) else int(5 * float(budget[:-1]))
    assert max(end.forwards_B.tolist()) <= most
    assert not bool(end.state.masked_BL.any())


@every_search
def test_a_budget_below_a_base_decode_is_refused(search):
    model = exact()
    with pytest.raises(ConfigError, match="budget is 4; allowed: 5 or more, the forwards of a base decode of row 0"):
        decode(model, replace(search, budget=4), rows(model), noise=noise())


@every_search
def test_under_guidance_a_look_is_two_forwards(search):
    model = GuidedDenoiser(exact(), 2.0)
    state = rows(model)
    with pytest.raises(ConfigError, match="budget is 9; allowed: 10 or more"):
        decode(model, replace(search, budget=9), state, noise=noise())
    for budget in (10, 17, "2x"):
        end = decode(model, replace(search, budget=budget), state, noise=noise())
        assert int(end.forwards_B) <= (20 if budget == "2x" else budget)


@every_search
def test_looks_of_all_rows_share_passes(search):
    """As many passes for three rows alike as for one, and none is larger than what the rows ask for."""
    model = exact()
    alone, three = Listening(model), Listening(model)
    decode(alone, search, rows(model), noise=noise())
    same = torch.tensor([0, 0, 0])
    end = decode(three, search, rows(model).select(same), noise=noise().select(same))
    assert [len(p) for p in three.passes] == [3 * len(p) for p in alone.passes]
    assert int(end.forwards_B.sum()) == sum(map(len, three.passes))


@pytest.mark.parametrize("search", SEARCHES[:3], ids=IDS[:3])
def test_no_canvas_is_run_twice(search):
    """A look-ahead that comes true is the next step's prediction. (Drafts and tree nodes may meet by other ways.)"""
    model = Listening(exact())
    decode(model, search, rows(model), noise=noise())
    shown = [canvas for canvases in model.passes for canvas in canvases]
    assert len(shown) == len(set(shown)) > 5


@every_search
def test_the_tail_after_an_end_of_text_is_closed(search):
    """By the first revealed end of text, on every path."""
    model = exact(seed=9)
    state = rows(model, 3)
    end = decode(model, search, state, noise=noise(3), sampling=SamplingParams(temperature=1.0), eos_fill=True)
    closed = 0
    for row in range(3):
        for step in end.row(row).steps:
            canvas = step.state.tokens_BL[0, 1:].tolist()
            if EOS in canvas:
                assert model.mask_id not in canvas[canvas.index(EOS) :]
                closed += 1
    assert not bool(end.state.masked_BL.any())
    assert closed or EOS in end.state.tokens_BL[:, 1:]


@every_search
def test_steps_say_what_was_thought_of(search):
    model = exact()
    end = decode(model, replace(search, budget=100), rows(model), noise=noise())
    trees = [int(step.action.notes["tree"]) for step in end.steps]
    assert trees == sorted(trees)
    assert trees[-1] > len(end.steps)
    dropped = sum(int(step.action.notes["dropped"]) for step in end.steps)
    over = sum(step.action.notes["passed_over"] for step in end.steps)
    assert dropped > 0
    assert int(over.sum()) >= dropped
    assert not bool(over[0, :1].any())


@every_search
def test_a_recorded_search_can_be_saved(search, tmp_path):
    model = exact()
    end = decode(model, search, rows(model, 2), noise=noise(2))
    end.save(tmp_path / "run.npz")
    again = type(end).load(tmp_path / "run.npz")
    assert again.row(1).steps[0].action.notes["tree"].tolist() == end.row(1).steps[0].action.notes["tree"].tolist()


@every_search
def test_it_can_be_watched(search):
    """The best path of each row, as it stands; watching changes nothing."""
    model, seen = exact(), []
    end = decode(model, search, rows(model, 2), noise=noise(2), on_step=seen.append)
    assert torch.equal(end.state.tokens_BL, decode(model, search, rows(model, 2), noise=noise(2)).state.tokens_BL)
    assert seen[-1].rows_B.tolist()[-1] in (0, 1)
    assert all(int(traj.notes["tree"].min()) >= 1 for traj in seen)
    assert max(int(traj.forwards_B.max()) for traj in seen) == int(end.forwards_B.max())
    last = {int(row): traj.state.tokens_BL[at].tolist() for traj in seen for at, row in enumerate(traj.rows_B)}
    assert last == {row: end.state.tokens_BL[row].tolist() for row in range(2)}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("search", [*SEARCHES, BestOf(n=3)], ids=[*IDS, "best-of"])
def test_a_search_beside_a_gpu(search):
    """Paths on the CPU, the model on the GPU: a whole answer inside the budget, the same every time, on the GPU."""
    model = unmask.load("mini", device="cuda", dtype="fp32", engine="eager").denoiser
    mask = model.vocabulary.mask_id
    state = State.from_canvases([[5, 9, *[mask] * 6], [7, *[mask] * 6]], steps=6, mask_id=mask, device="cuda")
    keys, sampling = Noise.of([1, 2], device="cuda"), SamplingParams(temperature=0.7)
    shown = []
    one, two = (
        decode(model, search, state, noise=keys, sampling=sampling, eos_fill=True, on_step=shown.append)
        for _ in range(2)
    )
    assert one.state.tokens_BL.is_cuda
    assert not bool(one.state.masked_BL.any())
    assert torch.equal(one.state.tokens_BL, two.state.tokens_BL)
    assert max(one.forwards_B.tolist()) <= 24
    assert all(step.state.tokens_BL.is_cuda for step in one.steps)
    assert shown


# LookUM


def lookum_problem(seed, n=6, steps=3):
    joint = JointDistribution.random(n, 3, dependence=2.5, seed=seed)
    exact = ExactDenoiser(joint)
    return joint, exact, State.from_canvases([[exact.mask_id] * n], steps=steps, mask_id=exact.mask_id)


def by_brute_force(joint, k):
    """Of all sets of k, the one that leaves least entropy, again and again: sets and the answer."""
    canvas, sets = {}, []
    while places := free(joint, canvas):
        best = told(joint, canvas).argmax(-1)
        tried = [{**canvas, **{at: int(best[at]) for at in s}} for s in combinations(places, min(k, len(places)))]
        after = min(tried, key=lambda later: remaining_entropy(joint, later))
        sets.append(sorted(set(after) - set(canvas)))
        canvas = after
    return sets, [canvas[at] for at in range(joint.n)]


@pytest.mark.parametrize("seed", range(6))
def test_lookum_over_all_sets_with_infinite_beta_it_is_brute_force(seed):
    joint, exact, state = lookum_problem(seed)
    search = LookUM(exhaustive=True, pool=inf, beta=inf, budget="100x")
    end = decode(exact, search, state, noise=Noise.of([1]))
    sets, answer = by_brute_force(joint, 2)
    assert [step.revealed_BL[0].nonzero().flatten().tolist() for step in end.steps] == sets
    assert end.state.tokens_BL[0].tolist() == answer
    # One, 15 sets of 6, 6 sets of 4; the last two positions are no choice.
    assert int(end.forwards_B) == 1 + 15 + 6
    assert end.steps[0].action.notes["dropped"].tolist() == [14]


def test_lookum_particles_are_resampled_by_what_they_gained():
    """With infinite sharpness the best of the particles is followed by all; the end is the best one's."""
    _, exact, state = lookum_problem(2, steps=6)
    end = decode(exact, LookUM(paths=4, variant="smc", tau=2.0, pool=3.0, beta=inf), state, noise=Noise.of([5]))
    assert not bool(end.state.masked_BL.any())
    assert max(int(step.action.notes["dropped"]) for step in end.steps) >= 1
    assert int(end.forwards_B) <= 1 + 4 * 5


# SOAR


def best_order(joint):
    """Over all orders of revealing the most probable tokens one by one: the largest sum of their probabilities."""
    found = []
    for order in permutations(range(joint.n)):
        canvas, total = {}, 0.0
        for at in order:
            p = told(joint, canvas)[at]
            canvas[at], total = int(p.argmax()), total + float(p.max())
        found.append((total, [canvas[at] for at in range(joint.n)]))
    return max(found)


@each_case("value", ["sum", "mean"])
@each_case("seed", range(4))
def test_soar_at_full_width_without_collapse_it_is_brute_force(seed, value):
    joint = JointDistribution.random(5, 3, dependence=2.5, seed=seed)
    exact = ExactDenoiser(joint)
    state = State.from_canvases([[exact.mask_id] * 5], steps=5, mask_id=exact.mask_id)
    search = SOAR(width=1000, threshold=1.0, collapse=None, value=value, budget="1000x")
    end = decode(exact, search, state, noise=Noise.of([0]))
    total, answer = best_order(joint)
    assert float(end.steps[-1].action.notes["value"]) == pytest.approx(total / (5 if value == "mean" else 1), abs=1e-6)
    assert end.state.tokens_BL[0].tolist() == answer


def test_soar_sure_positions_go_together_but_no_more_than_allowed():
    state = State.from_canvases([[3] * 8], steps=8, mask_id=3)
    sure = ScriptedDenoiser(lambda tokens, slot, call: logs([0.99, 0.005, 0.005]), vocab=3)
    end = decode(sure, SOAR(), state, noise=Noise.of([0]))
    assert [int(step.revealed_BL.sum()) for step in end.steps] == [5, 3]
    assert int(end.forwards_B) == 2
    in_blocks = decode(sure, SOAR(block_length=4), state, noise=Noise.of([0]))
    assert [int(step.revealed_BL.sum()) for step in in_blocks.steps] == [4, 4]


# Order-Token Search


def run_drafts(search, seed=0, n=6, steps=6, key=3):
    joint = JointDistribution.random(n, 3, dependence=2.5, seed=seed)
    exact = ExactDenoiser(joint)
    state = State.from_canvases([[exact.mask_id] * n], steps=steps, mask_id=exact.mask_id)
    return joint, decode(exact, search, state, noise=Noise.of([key]))


def test_order_token_the_chosen_draft_of_one_block_is_the_likeliest():
    """One block is the whole answer: drafts are scored on a canvas of masks, where brute force knows every p."""
    gains = []
    for key in range(6):
        ends = [
            run_drafts(OrderTokenSearch(beams=beams, tau=2.0, block_length=None, budget="100x"), n=4, steps=1, key=key)
            for beams in (4, 1)
        ]
        p = told(ends[0][0], {})
        values = [sum(log(p[at, t]) for at, t in enumerate(end.state.tokens_BL[0].tolist())) for _, end in ends]
        assert float(ends[0][1].steps[-1].action.notes["value"]) == pytest.approx(values[0], abs=1e-5)
        gains.append(values[0] - values[1])
    # The first draft is the one that stands alone without a search.
    assert min(gains) >= 0
    assert max(gains) > 0.5


def test_order_token_what_is_not_filled_yet_is_hidden_and_the_rest_of_the_draft_is_not():
    """A block is scored with the drafted future in view and itself hidden."""
    model = ScriptedDenoiser(lambda tokens, slot, call: [0.3, 0.2, 0.1], vocab=3)
    state = State.from_canvases([[3] * 4], steps=4, mask_id=3)
    search = OrderTokenSearch(beams=2, tau=5.0, block_length=2, budget="100x")
    decode(model, search, state, noise=Noise.of([0]))
    scored = [row for view in model.calls if view.given_BN is not None for row in view.tokens_BN.tolist()]
    assert scored
    hidden = [[at for at, token in enumerate(row) if token == 3] for row in scored]
    assert set(map(tuple, hidden)) == {(0, 1), (2, 3)}


def test_order_token_forwards_are_those_of_the_sheet_less_what_is_shared():
    """S K + B K^2 where nothing is equal; here the beams' one root and its K drafts are run once, not K times."""
    for beams in (2, 3):
        search = OrderTokenSearch(beams=beams, tau=50.0, block_length=3, budget="1000x")
        _, end = run_drafts(search, n=6, steps=6, key=1)
        assert int(end.forwards_B) <= (6 - 1) * beams + 1 + beams + beams**2 <= 6 * beams + 2 * beams**2
        assert int(end.forwards_B) > 6


def test_order_token_fewer_steps_than_blocks_are_refused():
    with pytest.raises(ConfigError, match="one per block"):
        run_drafts(OrderTokenSearch(block_length=2), steps=2)


# MEDAL


WHOLE = {"positions": 99, "tokens": 99, "actions": 999, "simulations": 10**6, "budget": "1000x"}


def medal_problem(seed, n=4):
    joint = JointDistribution.random(n, 3, dependence=2.5, seed=seed)
    exact = ExactDenoiser(joint)
    return joint, exact, State.from_canvases([[exact.mask_id] * n], steps=n, mask_id=exact.mask_id)


def starts(joint, depth):
    """Every canvas of so many tokens, whatever the order of writing them."""
    found = [{}]
    for _ in range(depth):
        found = [{**c, at: token} for c in found for at in free(joint, c) for token in range(joint.vocab)]
    return found


@each_case("depth", [1, 2])
@each_case("seed", range(4))
def test_medal_the_start_of_a_whole_tree_is_brute_force(seed, depth):
    joint, exact, state = medal_problem(seed)
    end = decode(exact, MEDAL(depth=depth, start="confidence", **WHOLE), state, noise=Noise.of([0]))
    best = max(remaining_confidence(joint, canvas) for canvas in starts(joint, depth))
    written = {}
    for step, after in zip(end.steps[:depth], list(end.canvases())[1:], strict=False):
        written |= {at: int(after[at]) for at in step.revealed_BL[0].nonzero().flatten().tolist()}
    assert len(written) == depth
    assert remaining_confidence(joint, written) == pytest.approx(best, abs=1e-9)
    # Every node once: 12 actions, and 9 after each; the leaf that came true is not run again.
    nodes = 12 if depth == 1 else 12 + 12 * 9
    assert int(end.forwards_B) == 1 + nodes + (4 - depth - 1)


def test_medal_actions_stay_in_the_first_block():
    _, exact, state = medal_problem(3)
    end = decode(exact, MEDAL(block_length=2, depth=2), state, noise=Noise.of([0]))
    early = end.steps[0].revealed_BL | end.steps[1].revealed_BL
    assert early[0].tolist() == [True, True, False, False]


# Best of n


def test_best_of_the_most_probable_of_independent_decodes_is_kept():
    """Each decode is the base's, with noise of its own; the model's word about each is that of the base's steps."""
    model, state = exact(seed=6), rows(exact(), 3)
    end = decode(model, BestOf(n=5, temperature=0.9), state, noise=noise(3))
    found = []
    for number in range(5):
        keys = noise(3) if number == 0 else noise(3).derive(f"decode/{number}")
        drawn = SamplingParams(temperature=0.9 if number else 0.0)
        found.append(decode(model, LLaDA(), state, noise=keys, sampling=drawn))
    worth = [[log_probability(run.row(row)) for run in found] for row in range(3)]
    best = [values.index(max(values)) for values in worth]
    assert len({tuple(run.state.tokens_BL[0].tolist()) for run in found}) > 1
    for row, number in enumerate(best):
        assert end.state.tokens_BL[row].tolist() == found[number].state.tokens_BL[row].tolist()
        notes = end.row(row).steps[-1].action.notes
        assert float(notes["value"]) == pytest.approx(max(worth[row]))
        assert (int(notes["tree"]), int(notes["dropped"])) == (5, 4)
    assert end.forwards_B.tolist() == [sum(int(run.forwards_B[row]) for run in found) for row in range(3)]


def test_best_of_value_is_the_sum_of_logs_of_what_was_revealed():
    model = exact()
    run = decode(model, LLaDA(), rows(model), noise=noise())
    p = [float(step.confidence_BL[step.revealed_BL].prod()) for step in run.steps]
    assert log_probability(run) == pytest.approx(math.log(math.prod(p)))


def test_best_of_rows_that_are_full_are_not_run_again():
    """Fast-dLLM ends rows at different times."""
    model = Listening(exact(seed=2))
    end = decode(model, BestOf(FastDLLM(threshold=0.5, block_length=None), n=3), rows(model, 4), noise=noise(4))
    assert sum(map(len, model.passes)) == int(end.forwards_B.sum())
    assert len(set(end.forwards_B.tolist())) > 1


@pytest.mark.parametrize(
    "base", [KLASS(), InfoGain(), with_remasking(), make_policy("p2", planner=True), make_policy("wino")]
)
def test_best_of_bases_that_need_more_than_one_prediction_are_refused(base):
    with pytest.raises(ConfigError, match=rf"base of best-of is {base.name}; allowed: methods that decide from one"):
        BestOf(base)
