"""DDPD: the authors' loop step by step, both starts, corrections, the end, and the head."""

import json

import numpy as np
import pytest
import torch

import unmask
from tests.helpers import paths
from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError
from unmask.core import BatchValue, Noise, SamplingParams, State
from unmask.engine import decode
from unmask.methods import DDPD, METHODS, heads, make_policy
from unmask.methods.check import Problem, check_policy
from unmask.models import ExactDenoiser, JointDistribution

JOINT = JointDistribution.random(6, 3, dependence=2.0, seed=4)
MODEL = ExactDenoiser(JOINT)


def run(policy, steps, canvas=None, temperature=0.0, keys=(0,)):
    state = State.from_canvases([canvas or [3] * 6] * len(keys), steps=steps, mask_id=3, extra_steps=True)
    return decode(MODEL, policy, state, noise=Noise.of(list(keys)), sampling=SamplingParams(temperature))


def authors(policy, steps, noise, canvas, temperature):
    """The text8 sampler with a mask denoiser, for one row, in NumPy: the same uniforms in the same places."""
    tokens, n = list(canvas), len(canvas)
    free = [i for i, t in enumerate(canvas) if t == 3]
    position = torch.arange(n)[None]
    first = int(policy.start == "uniform")
    if first:
        start = noise.uniform(torch.tensor([0]), position, "planner/start")[0]
        for i in free:
            tokens[i] = int(start[i] * 3)
    for step in range(first, steps + first):
        at = torch.tensor([step])
        stands = {i: t for i, t in enumerate(tokens) if t != 3}
        p = JOINT.marginals(stands)
        g = np.array([50.0 if tokens[i] == 3 else np.log(0.5 / 3 / (0.5 * p[i][tokens[i]])) for i in free])
        q = 1 / (1 + np.exp(-g))
        weight = np.exp(g - g.max()) if policy.weights == "softmax" else q
        u = float(noise.uniform(at, position, "planner/position")[0, free[0]])
        chosen = free[int(np.searchsorted(np.cumsum(weight / weight.sum()), u, side="right"))]
        coins = noise.uniform(at, position, "planner/coin")[0].numpy()
        hidden = {i for i, chance in zip(free, q, strict=True) if coins[i] < chance} | {chosen}
        said = JOINT.marginals({i: t for i, t in stands.items() if i not in hidden})
        tempered = said[chosen] ** (1 / temperature) if temperature else said[chosen]
        drawn = float(noise.uniform(at, position, "token")[0, chosen])
        token = int(np.searchsorted(np.cumsum(tempered / tempered.sum()), drawn, side="right"))
        tokens[chosen] = token if temperature else int(said[chosen].argmax())
        if step == steps + first - 1:
            for i, chance in zip(free, q, strict=True):
                if chance > policy.fill:
                    tokens[i] = int(said[i].argmax())
    return tokens


@each_case("temperature", [0.0, 1.0])
@each_case("weights", ["softmax", "sigmoid"])
@each_case("start", ["masks", "uniform"])
def test_whole_runs_are_those_of_the_loop_written_out(start, weights, temperature):
    policy = DDPD(start, weights, head="self")
    for canvas, steps in (([3] * 6, 4), ([3] * 6, 15), ([1, 3, 3, 0, 3], 6)):
        done = run(policy, steps, canvas, temperature, range(6))
        for key in range(6):
            expected = authors(policy, steps, Noise.of([key]), canvas, temperature)
            assert done.state.tokens_BL[key].tolist() == expected


def test_masks_go_first_then_come_corrections():
    done = run(DDPD(head="self"), 12)
    written = [int(step.revealed_BL.sum()) for step in done.steps]
    assert written[:6] == [1] * 6
    assert not any(bool(step.remasked_BL.any()) for step in done.steps[:6])
    assert all(bool(step.remasked_BL.any()) for step in done.steps[6:])
    assert len(done.steps) == 12


def test_random_tokens_come_first_where_the_authors_begin():
    done = run(DDPD("uniform", head="self"), 5)
    assert len(done.steps) == 6
    assert bool(done.steps[0].revealed_BL.all())
    assert not bool(done.steps[1].state.masked_BL.any())
    # Random tokens cost one forward, every step after that two.
    assert done.forwards_B.tolist() == [1 + 2 * 5]
    many = run(DDPD("uniform", head="self"), 1, keys=range(9)).steps[1].state.tokens_BL.tolist()
    starts = {tuple(row) for row in many}
    assert len(starts) > 6


def test_two_forwards_a_step():
    assert run(DDPD(head="self"), 4).forwards_B.tolist() == [8]


def test_what_is_noise_at_the_end_is_filled():
    done = run(DDPD(head="self"), 2)
    assert not bool(done.state.masked_BL.any())
    assert int(done.steps[-1].revealed_BL.sum()) >= 5


def test_given_tokens_are_never_touched():
    canvas = [1, 3, 3, 0, 3, 2]
    for end in run(DDPD("uniform", head="self"), 9, canvas, 1.0, range(8)).state.tokens_BL.tolist():
        assert [end[0], end[3], end[5]] == [1, 0, 2]


def test_corrections_help_on_the_joint():
    """From random tokens, more steps make more probable texts: the mean log-probability grows."""
    means = []
    for steps in (3, 24):
        done = run(DDPD("uniform", head="self"), steps, temperature=1.0, keys=range(40))
        means.append(np.mean([JOINT.log_prob(text) for text in done.state.tokens_BL.tolist()]))
    assert means[1] > means[0]


def test_a_trained_head_plans(ddpd_head):
    mini = unmask.load("mini")
    options = {"policy": "ddpd", "head": str(ddpd_head), "max_new_tokens": 6, "steps": 8}
    done = mini.generate(["2+2", "Describe the lamp."], **options)
    assert [row["steps"] for row in done.config["rows"]] == [8, 8]
    assert done.row_forwards == (16, 16)
    assert done.texts == tuple(mini.generate(prompt, **options).text for prompt in ("2+2", "Describe the lamp."))


def test_without_a_head_the_way_to_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(heads, "SHIPPED", tmp_path)
    with pytest.raises(ConfigError, match=r"ddpd needs a head trained for mini-dream.*unmask train head --kind ddpd"):
        unmask.load("mini-dream").generate("a", policy="ddpd")
    assert unmask.load("exact").generate("a", policy="ddpd").config["policy"]["head"] == "self"


def test_it_says_that_it_is_an_adaptation():
    card = METHODS["ddpd"]
    assert card.learned
    assert card.planning == "learned"
    assert any("adaptation by default" in line for line in card.differs)


def test_the_contract_holds_with_a_trained_head(ddpd_head):
    denoiser = unmask.load("mini").denoiser
    mask = denoiser.vocabulary.mask_id
    state = State.from_canvases([[5, 9, mask, mask]], steps=2, mask_id=mask)
    assert check_policy(make_policy("ddpd", head=str(ddpd_head)), Problem(denoiser, state, Noise.of([3]))) is None


GOLDEN = json.loads((paths.GOLDEN / "ddpd.json").read_text(encoding="utf-8"))["cases"]


class Recorded(BatchValue):
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
@each_case("case", GOLDEN, ids=lambda case: case["id"])
def test_the_authors_loop(case, row, toy):
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
        toy(case["toy_seed"]), policy, state, noise=Recorded(case, row), sampling=SamplingParams(case["x1_temp"])
    )
    ours = [canvas.tolist() for canvas in end.row(0).canvases()]
    # Their last record is before the fill, which is part of our last step.
    assert ours[2:-1] == [canvas[row] for canvas in case["canvases"][:-1]]
    assert ours[-1] == case["final"][row]
    assert int(end.forwards_B) == case["forward_calls"] + 1


def test_the_recorded_runs_correct_and_fill():
    rewritten = [c for c in GOLDEN if c["steps"] > c["length"]]
    filled = [c for c in GOLDEN if c["canvases"][-1] != c["final"]]
    assert len(GOLDEN) == 32
    assert len(rewritten) >= 5
    assert len(filled) >= 5
