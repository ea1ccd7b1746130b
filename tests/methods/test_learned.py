"""DEMASK and DDPD: their rules, the bound and the corrections on joints, and their heads on disk."""

import json
import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

import unmask
from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError, OtherModel, SchemaError
from unmask.base.json_files import to_hashed_json
from unmask.core import Noise, SamplingParams, State, Trajectory
from unmask.engine import LookAheadCache, StepSettings, decode, predict
from unmask.methods import (
    DDPD,
    DEMASK,
    HeadCard,
    LLaDA,
    heads,
    make_policy,
    save_head,
    shipped_heads,
    with_head,
)
from unmask.methods.check import Problem, check_policy
from unmask.methods.demask import measure_dependence
from unmask.methods.heads import DependenceHead, load_head
from unmask.models import ExactDenoiser, JointDistribution

# DEMASK


def dependence(joint, i, j, seen=None):
    """D_ij from the joint itself."""
    seen = seen or {}
    now = joint.marginals(seen)
    moved = [np.abs(joint.marginals({**seen, j: y})[i] - now[i]).sum() / 2 for y in range(joint.vocab)]
    return float((now[j] * moved).sum())


def said_by(policy, joint, canvas):
    """The policy's measured dependence on a canvas, and the trajectory before its step."""
    denoiser = ExactDenoiser(joint)
    state = State.from_canvases([canvas], steps=1, mask_id=denoiser.mask_id)
    settings = StepSettings(denoiser, SamplingParams())
    traj = Trajectory.start(state, Noise.of([0]))
    traj, _ = predict(settings, traj, policy.model_input(traj), policy.needs)
    looks = LookAheadCache(settings)
    looks.start_counting(traj.rows_B)
    return measure_dependence(traj, looks, state.masked_BL, policy.outcomes)[0].numpy(), traj


def test_demask_measured_dependence_is_that_of_the_joint():
    joint, policy = JointDistribution.random(4, 3, dependence=2.0, seed=3), DEMASK(head="measured")
    found, _ = said_by(policy, joint, [3, 3, 1, 3])
    for i, j in product((0, 1, 3), repeat=2):
        expected = 0.0 if i == j else dependence(joint, i, j, {2: 1})
        assert found[i, j] == pytest.approx(expected, abs=1e-9)
    assert not found[2].any()
    assert not found[:, 2].any()
    # Of a true joint it is the distance from independence, the same both ways; a network's need not be.
    assert found == pytest.approx(found.T, abs=1e-9)
    assert found[0, 1] > 0.1


def distance(joint, chosen):
    """Total variation between the joint of some positions and the product of their marginals."""
    others = tuple(i for i in range(joint.n) if i not in chosen)
    table = joint.p.sum(others)
    flat = np.ones_like(table)
    for axis in range(table.ndim):
        marginal = table.sum(tuple(a for a in range(table.ndim) if a != axis), keepdims=True)
        flat = flat * marginal
    return float(np.abs(table - flat).sum() / 2)


def adds_up(joint, order):
    """Whether each position is moved by those before it no more than their influences sum to."""
    for m in range(1, len(order)):
        before, i = order[:m], order[m]
        axes = tuple(a for a in range(joint.n) if a not in (*before, i))
        table = np.moveaxis(joint.p.sum(axes), sorted((*before, i)).index(i), -1)
        weight = table.sum(-1, keepdims=True)
        together = float((weight[..., 0] * np.abs(table / weight - joint.marginals({})[i]).sum(-1) / 2).sum())
        if together > sum(dependence(joint, i, j) for j in before) + 1e-12:
            return False
    return True


@each_case("seed", range(12))
@each_case("budget", [0.05, 0.2, 0.5])
def test_demask_what_is_revealed_together_keeps_the_bound(seed, budget):
    joint = JointDistribution.random(5, 3, dependence=1.0, seed=seed)
    policy = DEMASK(budget, head="measured")
    denoiser = ExactDenoiser(joint)
    state = State.from_canvases([[3] * 5], steps=5, mask_id=3)
    done = decode(denoiser, policy, state, noise=Noise.of([0]))
    first = done.steps[0]
    chosen = first.revealed_BL[0].nonzero().flatten().tolist()
    confidence = first.prediction.confidence_BN[0].tolist()
    order = sorted(chosen, key=lambda i: (-confidence[i], i))
    total = sum(dependence(joint, order[m], j) for m in range(len(order)) for j in order[:m])
    assert total <= budget + 1e-9
    assert adds_up(joint, order)
    assert distance(joint, chosen) <= total + 1e-9


def test_demask_forwards_of_measuring_are_counted():
    """One forward of the step, and one for each candidate and outcome."""
    joint = JointDistribution.random(3, 2, dependence=1.0, seed=0)
    state = State.from_canvases([[2, 2, 2]], steps=1, mask_id=2)
    done = decode(ExactDenoiser(joint), DEMASK(float("inf"), head="measured"), state, noise=Noise.of([0]))
    assert done.forwards_B.tolist() == [1 + 3 * 2]


class TestHead:
    def test_demask_a_trained_head_decides(self, demask_head):
        mini = unmask.load("mini")
        done = mini.generate("2+2", policy="demask", head=str(demask_head), budget=0.5, max_new_tokens=8)
        assert done.config["policy"]["head"] == str(demask_head)
        assert done.config["method"]["label"] == "reconstruction"
        one = mini.generate("2+2", policy="demask", head=str(demask_head), budget=0.0, max_new_tokens=8)
        assert one.forwards == 8 >= done.forwards
        everything = mini.generate("2+2", policy="demask", head=str(demask_head), budget=1e9, max_new_tokens=8)
        assert everything.forwards == 1

    def test_demask_without_one_the_way_to_it_is_told(self, tmp_path, monkeypatch):
        monkeypatch.setattr(heads, "SHIPPED", tmp_path)
        with pytest.raises(ConfigError, match="train one: unmask train head --kind demask --model mini-dream --out"):
            unmask.load("mini-dream").generate("a", policy="demask")
        exact = ExactDenoiser(JointDistribution.random(3, 2, dependence=1.0, seed=0))
        state = State.from_canvases([[2, 2, 2]], steps=1, mask_id=2)
        with pytest.raises(ConfigError, match=r"head of demask is 'auto'.*train one: unmask train head --kind demask"):
            decode(exact, DEMASK(), state, noise=Noise.of([0]))

    def test_demask_of_another_model_or_kind_is_refused(self, demask_head):
        with pytest.raises(OtherModel, match=r"was trained for mini \(.*this is mini-dream"):
            unmask.load("mini-dream").generate("a", policy="demask", head=str(demask_head))
        with pytest.raises(ConfigError, match="is a head for demask; allowed: one for ddpd"):
            unmask.load("mini").generate("a", policy="ddpd", head=str(demask_head))

    def test_demask_for_rows_of_another_width_is_refused(self, demask_head):
        exact = ExactDenoiser(JointDistribution.random(3, 2, dependence=1.0, seed=0))
        state = State.from_canvases([[2, 2, 2]], steps=1, mask_id=2)
        with pytest.raises(ConfigError, match="width of the hidden rows is 2; allowed: 256, the head's"):
            decode(exact, DEMASK(head=str(demask_head)), state, noise=Noise.of([0]))


def test_demask_the_contract_holds_with_a_trained_head(demask_head):
    denoiser = unmask.load("mini").denoiser
    mask = denoiser.vocabulary.mask_id
    state = State.from_canvases([[5, 9, mask, mask]], steps=2, mask_id=mask)
    assert check_policy(make_policy("demask", head=str(demask_head)), Problem(denoiser, state, Noise.of([3]))) is None


# DDPD


JOINT = JointDistribution.random(6, 3, dependence=2.0, seed=4)


MODEL = ExactDenoiser(JOINT)


def run_ddpd(policy, steps, canvas=None, temperature=0.0, keys=(0,)):
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
def test_ddpd_whole_runs_are_those_of_the_loop_written_out(start, weights, temperature):
    policy = DDPD(start, weights, head="self")
    for canvas, steps in (([3] * 6, 4), ([3] * 6, 15), ([1, 3, 3, 0, 3], 6)):
        done = run_ddpd(policy, steps, canvas, temperature, range(6))
        for key in range(6):
            expected = authors(policy, steps, Noise.of([key]), canvas, temperature)
            assert done.state.tokens_BL[key].tolist() == expected


def test_ddpd_random_tokens_come_first_where_the_authors_begin():
    done = run_ddpd(DDPD("uniform", head="self"), 5)
    assert len(done.steps) == 6
    assert bool(done.steps[0].revealed_BL.all())
    assert not bool(done.steps[1].state.masked_BL.any())
    # Random tokens cost one forward, every step after that two.
    assert done.forwards_B.tolist() == [1 + 2 * 5]
    many = run_ddpd(DDPD("uniform", head="self"), 1, keys=range(9)).steps[1].state.tokens_BL.tolist()
    starts = {tuple(row) for row in many}
    assert len(starts) > 6


def test_ddpd_corrections_help_on_the_joint():
    """From random tokens, more steps make more probable texts: the mean log-probability grows."""
    means = []
    for steps in (3, 24):
        done = run_ddpd(DDPD("uniform", head="self"), steps, temperature=1.0, keys=range(40))
        means.append(np.mean([np.log(JOINT.prob(text)) for text in done.state.tokens_BL.tolist()]))
    assert means[1] > means[0]


def test_ddpd_a_trained_head_plans(ddpd_head):
    mini = unmask.load("mini")
    options = {"policy": "ddpd", "head": str(ddpd_head), "max_new_tokens": 6, "steps": 8}
    done = mini.generate(["2+2", "Describe the lamp."], **options)
    assert [row["steps"] for row in done.config["rows"]] == [8, 8]
    assert done.row_forwards == (16, 16)
    assert done.texts == tuple(mini.generate(prompt, **options).text for prompt in ("2+2", "Describe the lamp."))


def test_ddpd_the_contract_holds_with_a_trained_head(ddpd_head):
    denoiser = unmask.load("mini").denoiser
    mask = denoiser.vocabulary.mask_id
    state = State.from_canvases([[5, 9, mask, mask]], steps=2, mask_id=mask)
    assert check_policy(make_policy("ddpd", head=str(ddpd_head)), Problem(denoiser, state, Noise.of([3]))) is None


# Heads


QUALITY = {"loss": 0.5, "loss_of_the_mean": 0.4}


HEAD_CARD = HeadCard("demask", "mini", "abc", 6, 3, "", "a loss", {"texts": 2}, {"seed": 0}, QUALITY, {"torch": "2"})


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    save_head(tmp_path / "head", DependenceHead(6, 3), HEAD_CARD)
    return tmp_path / "head"


def test_what_is_written_comes_back(folder):
    head = load_head(str(folder), "demask")
    assert replace(head.card, weights_sha256="") == HEAD_CARD
    torch.manual_seed(0)
    hidden = torch.arange(24.0).square().reshape(1, 4, 6)
    assert torch.equal(head.network(hidden), DependenceHead(6, 3).eval()(hidden).detach())
    assert not any(parameter.requires_grad for parameter in head.network.parameters())
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert "demask head for mini" in page
    assert head.card.weights_sha256 in page
    assert "Verdict: NOT better than always saying the mean" in page


def test_the_same_weights_are_the_same_bytes(folder, tmp_path):
    torch.manual_seed(0)
    save_head(tmp_path / "again", DependenceHead(6, 3), HEAD_CARD)
    for name in ("head.json", "head.safetensors", "README.md"):
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_flipped_bit_is_noticed(folder):
    stored = bytearray((folder / "head.safetensors").read_bytes())
    stored[-1] ^= 1
    (folder / "head.safetensors").write_bytes(stored)
    with pytest.raises(
        SchemaError, match="does not have the hash of its card; allowed: what `unmask train head` wrote"
    ):
        load_head(str(folder), "demask")


def test_an_edited_card_is_noticed(folder):
    card = json.loads((folder / "head.json").read_text(encoding="utf-8"))
    card["body"]["quality"]["loss"] = 0.1
    (folder / "head.json").write_text(json.dumps(card), encoding="utf-8")
    with pytest.raises(SchemaError, match="was edited"):
        load_head(str(folder), "demask")


def test_weights_of_another_shape_are_refused(folder):
    card = load_head(str(folder), "demask").card
    body = vars(replace(card, size=4))
    (folder / "head.json").write_text(to_hashed_json(heads.FORMAT, body), encoding="utf-8")
    with pytest.raises(SchemaError, match="the weights are not those of a demask head"):
        load_head(str(folder), "demask")


def test_missing_files(folder, tmp_path):
    (folder / "head.safetensors").unlink()
    with pytest.raises(SchemaError, match="cannot be read"):
        load_head(str(folder), "demask")
    with pytest.raises(ConfigError, match=r"cannot be read .*allowed: a folder that `unmask train head` wrote"):
        load_head(str(tmp_path / "nothing"), "demask")


def test_a_run_reads_its_head_once(demask_head, monkeypatch):
    reads = []
    monkeypatch.setattr(heads, "load_head", lambda *which: (reads.append(which), load_head(*which))[1])
    denoiser = unmask.load("mini").denoiser
    mask = denoiser.vocabulary.mask_id
    state = State.from_canvases([[5, 9, *[mask] * 4]], steps=4, mask_id=mask)
    end = decode(denoiser, DEMASK(0.0, head=str(demask_head)), state, noise=Noise.of([3]))
    assert len(end.steps) == 4
    assert reads == [(str(demask_head), "demask")]


def test_a_shipped_head_is_found_by_its_model(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(heads, "SHIPPED", tmp_path / "shipped")
    assert shipped_heads("demask") == {}
    with pytest.raises(ConfigError, match="needs a head trained for mini, and none comes with the package"):
        with_head(DEMASK(), "mini", "abc", False)
    shutil.copytree(folder, tmp_path / "shipped" / "demask-mini")
    assert shipped_heads("demask") == {"abc": "demask-mini"}
    assert shipped_heads("ddpd") == {}
    assert with_head(DEMASK(), "mini", "abc", False) == DEMASK(head="demask-mini")
    assert load_head("demask-mini", "demask").card.model == "mini"
    with pytest.raises(ConfigError, match="needs a head trained for other"):
        with_head(DEMASK(), "other", "xyz", False)


@pytest.mark.parametrize("model", ["mini", "mini-dream"])
@pytest.mark.parametrize("kind", ["demask", "ddpd"])
def test_shipped_heads_are_whole_and_say_what_they_are_worth(kind, model):
    card = load_head(f"{kind}-{model}", kind).card
    assert shipped_heads(kind)[card.fingerprint] == f"{kind}-{model}"
    assert (card.model, card.data["texts"], card.data["held_out"]) == (model, 8000, 500)
    assert card.quality["loss"] < 0.5 * card.quality["loss_of_the_mean"]
    assert card.quality["explained_variance"] > 0.5
    page = (heads.SHIPPED / f"{kind}-{model}" / "README.md").read_text(encoding="utf-8")
    assert page == heads.describe_card(card)
    assert "Verdict: better than always saying the mean" in page


def test_other_policies_are_left_alone():
    assert with_head(LLaDA(), "mini", "abc", False) == LLaDA()
    assert with_head(DEMASK(), "exact", "abc", True).head == "measured"


def test_the_folder_of_a_training_is_taken_for_the_head_in_it(tmp_path):
    save_head(tmp_path / "made" / "head", DependenceHead(6, 3), HEAD_CARD)
    assert load_head(str(tmp_path / "made"), "demask").card == load_head(str(tmp_path / "made" / "head"), "demask").card
