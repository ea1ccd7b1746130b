"""What methods that look ahead, search, ask a planner or keep a clock of their own may rely on."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from unmask.api.load import load
from unmask.axes import ReMDM
from unmask.base.errors import ConfigError
from unmask.core import (
    NO_LOOK_AHEAD,
    ModelInput,
    Needs,
    Noise,
    Policy,
    SamplingParams,
    Search,
    State,
    Trajectory,
    row_key,
)
from unmask.engine import LookAheadCache, StepSettings, decode, join_rows, predict
from unmask.methods import Composed, LLaDA, fixed_action, with_remasking
from unmask.models import ExactDenoiser, JointDistribution

JOINT = JointDistribution.random(7, 4, dependence=1.5, seed=3)
EXACT = ExactDenoiser(JOINT, eos_ids=(2,))
PLANNER = ExactDenoiser(JointDistribution.random(7, 4, dependence=0.5, seed=9))
WARM = SamplingParams(temperature=1.0)


def begun(prompts=((0,), (1, 2)), new_tokens=5, steps=3):
    state = State.from_prompts([list(p) for p in prompts], new_tokens=new_tokens, steps=steps, mask_id=EXACT.mask_id)
    return Trajectory.start(state, Noise.of([row_key(0, bytes(p)) for p in prompts]))


def looks(traj, sampling=WARM, denoiser=EXACT):
    cache = LookAheadCache(StepSettings(denoiser, sampling))
    cache.start_counting(traj.rows_B)
    return cache


class TestLook:
    def test_is_greedy_unless_it_is_given_noise(self):
        traj = begun()
        both = torch.arange(2)
        greedy = looks(traj).predict(traj.state, both)
        assert torch.equal(greedy.token_BN, greedy.clean.top_BNK[..., 0])
        drawn = [looks(traj).predict(traj.state, both, noise=Noise.of([k, k + 1])).token_BN for k in range(40)]
        assert any(not torch.equal(tokens, greedy.token_BN) for tokens in drawn)
        again = looks(traj).predict(traj.state, both, noise=Noise.of([3, 4])).token_BN
        assert torch.equal(again, drawn[3])

    def test_draws_what_the_run_itself_would_draw(self):
        """The rows' own noise at their own step: a look that comes true is the step."""
        traj = begun()
        real, _ = predict(StepSettings(EXACT, WARM), traj, ModelInput.of(traj.state, Needs()), Needs())
        real = real.current_prediction
        looked = looks(traj).predict(traj.state, torch.arange(2), noise=traj.noise)
        assert torch.equal(looked.token_BN, real.token_BN)
        assert torch.equal(looked.confidence_BN, real.confidence_BN)

    def test_gives_attention_and_hidden_rows(self, scaled, tmp_path):
        network = load(str(scaled.llada(tmp_path / "llada", layers=1)), dtype="fp32", device="cpu").denoiser
        mask_id = network.vocabulary.mask_id
        state = State.from_prompts([[5, 6, 7]], new_tokens=4, steps=2, mask_id=mask_id)
        traj = Trajectory.start(state, Noise.of([1]))
        made = looks(traj, SamplingParams(), network)
        seen = made.predict(state, torch.tensor([0]), Needs(attention=True, hidden=True))
        assert seen.attention_BNN.shape == (1, 7, 7)
        torch.testing.assert_close(seen.attention_BNN[0, 3:].sum(-1), torch.ones(4))
        assert seen.hidden_BNH.shape[:2] == (1, 7)
        assert bool(seen.hidden_BNH[0, 3:].any(-1).all())

    def test_takes_a_view_of_its_own(self, scaled, tmp_path):
        """A pass in which no slot sees what stands to its right: its last slot alone sees what it always sees."""
        network = load(str(scaled.llada(tmp_path / "llada", layers=2)), dtype="fp32", device="cpu").denoiser
        state = State.from_canvases(
            [[5, 6, network.vocabulary.mask_id, 7]], steps=1, mask_id=network.vocabulary.mask_id
        )
        traj = Trajectory.start(state, Noise.of([1]))
        made = looks(traj, SamplingParams(), network)
        inputs = ModelInput.of(state, Needs())
        past_only = replace(inputs, attend_BNN=torch.ones(1, 4, 4, dtype=torch.bool).tril())
        blind = made.predict(state, torch.tensor([0]), inputs=past_only)
        full = made.predict(state, torch.tensor([0]))
        assert not torch.equal(blind.logz_BN, full.logz_BN)
        changed = replace(past_only, tokens_BN=torch.tensor([[5, 6, network.vocabulary.mask_id, 8]]))
        unmoved = made.predict(state, torch.tensor([0]), inputs=changed)
        torch.testing.assert_close(unmoved.logz_BN, blind.logz_BN)
        assert made.cost.forwards_B.tolist() == [3]

    def test_a_pass_with_its_own_attention_is_never_taken_for_the_real_one(self):
        traj = begun(prompts=((0,),))
        made = looks(traj, SamplingParams())
        attend = torch.ones(1, 6, 6, dtype=torch.bool)
        inputs = replace(ModelInput.of(traj.state, Needs()), attend_BNN=attend)
        made.predict(traj.state, torch.tensor([0]), inputs=inputs)
        _, cost = predict(made.settings, traj, ModelInput.of(traj.state, Needs()), Needs(), made)
        assert cost.forwards_B.tolist() == [1], "the real forward was run"
        made.predict(traj.state, torch.tensor([0]))
        _, cost = predict(made.settings, traj, ModelInput.of(traj.state, Needs()), Needs(), made)
        assert cost.forwards_B.tolist() == [0], "a look that comes true is not run again"


@dataclass(frozen=True)
class Planned(Policy):
    """Reveals the position that the planner is surest of."""

    name: ClassVar[str] = "planned"
    looks_ahead = True

    def act(self, traj, look_ahead):
        rows_B = torch.arange(traj.state.batch)
        logits = look_ahead.ask_planner(traj.state, rows_B)
        sure_R = logits.logits_RV.softmax(-1).amax(-1)
        sure_BL = torch.full(traj.state.tokens_BL.shape, -1.0, dtype=sure_R.dtype)
        sure_BL[logits.wanted_BN] = sure_R
        first_BL = torch.zeros_like(traj.state.masked_BL).scatter(1, sure_BL.argmax(-1, keepdim=True), True)
        action = LLaDA().act(traj, NO_LOOK_AHEAD)
        return replace(action, region_BL=first_BL, kappa_B=torch.ones_like(action.kappa_B))


class TestPlanner:
    def test_is_counted_apart(self):
        traj = begun(prompts=((0,), (1,)), new_tokens=[4, 2], steps=[4, 2])
        end = decode(EXACT, Planned(), traj, planner=PLANNER)
        assert end.forwards_B.tolist() == [4, 2]
        assert end.planner_forwards_B.tolist() == [4, 2]
        assert [s.planner_forwards_B.tolist() for s in end.row(0).steps] == [[1]] * 4
        assert end.resume(0, 2).planner_forwards_B.tolist() == [2]

    def test_its_costs_survive_a_file_and_older_files_are_the_same(self, tmp_path):
        end = decode(EXACT, Planned(), begun(), planner=PLANNER)
        end.save(tmp_path / "with.npz")
        assert Trajectory.load(tmp_path / "with.npz").planner_forwards_B.tolist() == end.planner_forwards_B.tolist()
        plain = decode(EXACT, LLaDA(), begun())
        assert plain.planner_forwards_B is None
        assert b"planner" not in plain.to_bytes()


@dataclass(frozen=True)
class Leftmost(Search):
    """Left to right, one position at a time."""

    name: ClassVar[str] = "leftmost"
    draws: bool = False

    @property
    def random(self):
        return self.draws

    def check(self, state):
        if bool((state.answer_BL.sum(-1) > 5).any()):
            raise ConfigError("leftmost takes 5 positions at most")

    def decode(self, run, traj):
        ends = []
        for row in range(traj.state.batch):
            one = traj.select(torch.tensor([row]))
            while bool(one.state.masked_BL.any()):
                seen = run.predict(one.state, torch.tensor([row]))
                if self.draws:
                    traj.uniform("order")
                first_BL = one.state.masked_BL & (one.state.masked_BL.long().cumsum(-1) == 1)
                action = LLaDA().act(replace(one, prediction=seen), NO_LOOK_AHEAD)
                action = replace(action, region_BL=first_BL, kappa_B=torch.ones_like(action.kappa_B))
                one = run.apply_action(replace(one, prediction=seen), self.name, action)
            ends.append(one)
        return join_rows(ends)


class TestSearch:
    def test_honours_end_of_text_filling(self):
        prompts = [(a, b) for a in range(4) for b in range(4)]
        plain = decode(EXACT, Leftmost(), begun(prompts, new_tokens=4))
        filled = decode(EXACT, Leftmost(), begun(prompts, new_tokens=4), eos_fill=True)
        ends = (filled.state.tokens_BL == 2) & filled.state.answer_BL
        assert bool(ends.any())
        after = (ends.long().cumsum(-1) > 0) & filled.state.answer_BL
        assert bool((filled.state.tokens_BL[after] == 2).all())
        assert int(filled.forwards_B.sum()) < int(plain.forwards_B.sum())


class TestClock:
    def test_more_steps_than_positions_are_for_those_who_say_so(self):
        @dataclass(frozen=True)
        class Long(Composed):
            extra_steps = True

        canvas = [[0, *[EXACT.mask_id] * 4]]
        with pytest.raises(ConfigError, match="1 to 4"):
            State.from_canvases(canvas, steps=9, mask_id=EXACT.mask_id)
        state = State.from_canvases(canvas, steps=9, mask_id=EXACT.mask_id, extra_steps=True)
        with pytest.raises(ConfigError, match=r"steps of row 0 is 9; allowed: 1 to 4 .* with revised"):
            decode(EXACT, with_remasking(fixed_action(commitment="none")), state, noise=Noise.of([1]))
        model = load("exact", n=5)
        assert (
            model.generate(
                "a", policy=Long(fixed_action(commitment="none"), operator=ReMDM("conf")), max_new_tokens=4, steps=9
            ).forwards
            == 9
        )
        with pytest.raises(ConfigError, match="1 to 4"):
            model.generate("a", policy=with_remasking(fixed_action(commitment="none")), max_new_tokens=4, steps=9)
        end = decode(EXACT, Long(fixed_action(commitment="none"), operator=ReMDM("conf")), state, noise=Noise.of([1]))
        assert end.forwards_B.tolist() == [9]
        assert not end.state.masked_BL.any()
