"""What all searches share: budgets that are kept, looks that are batched, and a record of what was thought of."""

from dataclasses import replace

import pytest
import torch

import unmask
from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError
from unmask.core import DenoiserWrapper, Noise, SamplingParams, State
from unmask.engine import decode
from unmask.methods import MEDAL, SOAR, BestOf, LLaDA, LookUM, OrderTokenSearch
from unmask.models import ExactDenoiser, GuidedDenoiser, JointDistribution

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
def test_a_larger_budget_is_used(search):
    model = exact()
    spent = [
        int(
            decode(
                model, replace(search, threshold=1.0) if isinstance(search, SOAR) else search, s, noise=noise()
            ).forwards_B
        )
        for search in (replace(search, budget=5), replace(search, budget=100))
        for s in [rows(model)]
    ]
    assert spent[0] == 5 < spent[1]


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


def test_the_base_of_each_is_what_it_says():
    model = exact()
    state = rows(model)
    base = decode(model, LLaDA(), state, noise=noise())
    for search in SEARCHES[:2] + SEARCHES[4:]:
        assert torch.equal(
            decode(model, replace(search, budget=5), state, noise=noise()).state.tokens_BL, base.state.tokens_BL
        )


@every_search
def test_paths_on_the_host_are_the_same_search(search, monkeypatch):
    """Beside a GPU they live on the CPU; here everything does, so only the way there and back is taken."""
    model, sampling = exact(), SamplingParams(temperature=0.7)
    plain = decode(model, search, rows(model, 2), noise=noise(2), sampling=sampling)
    monkeypatch.setattr("unmask.engine.search.on_other_device", lambda device: True)
    seen = []
    host = decode(model, search, rows(model, 2), noise=noise(2), sampling=sampling, on_step=seen.append)
    assert torch.equal(host.state.tokens_BL, plain.state.tokens_BL)
    assert host.forwards_B.tolist() == plain.forwards_B.tolist()
    assert [step.revealed_BL.tolist() for step in host.steps] == [step.revealed_BL.tolist() for step in plain.steps]
    assert seen
    bare = decode(model, search, rows(model, 2), noise=noise(2), sampling=sampling, record=False)
    assert bare.steps == ()
    assert torch.equal(bare.state.tokens_BL, plain.state.tokens_BL)


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
