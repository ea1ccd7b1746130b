"""`branch`: one row of a run again from any step, in memory or from its file; what is not given is inherited."""

import json
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

import unmask
from tests.helpers.cases import each_case
from unmask.api.resolve import json_values, policy_from_config
from unmask.base.errors import ConfigError, InvalidAction, OtherModel, SchemaError
from unmask.core import Action, Policy, SamplingParams, Trajectory, row_key
from unmask.methods import METHODS, LLaDA, describe_policy, fixed_action, make_policy

POLICIES = [name for name, method in METHODS.items() if issubclass(method.kind, Policy)]
SEARCHES = [name for name in METHODS if name not in POLICIES]
FITTING = {"wino": {"block_length": 4}}


@pytest.fixture(scope="module")
def model():
    return unmask.load("exact", eos="ac")


def count_steps(generation):
    """What every step of a run did, and to what."""
    return [
        (s.policy, s.state.tokens_BL.tolist(), s.revealed_BL.tolist(), s.forwards_B.tolist())
        for s in generation.trajectory.steps
    ]


def saved(generation, tmp_path):
    generation.trajectory.save(tmp_path / "run.npz")
    return tmp_path / "run.npz"


class TestInheritance:
    @each_case("policy", [name for name in POLICIES if name != "fast-dllm-dream"])
    def test_branch_without_options_repeats_the_run(self, policy, model, tmp_path):
        options = {"policy": policy, "temperature": 1.0, "seed": 3, "samples": 2, "steps": 3, **FITTING.get(policy, {})}
        whole = model.generate(["a", "cb"], **options)
        path = saved(whole, tmp_path)
        for source in (whole, whole.trajectory, Trajectory.load(path), path, str(path)):
            again = model.branch(source, row=3, step=1)
            assert isinstance(again, unmask.Generation)
            assert again.texts == whole.texts[3:]
            assert again.tokens == whole.tokens[3:]
            assert again.canvases == whole.canvases[3:]
            assert again.row_forwards == whole.row_forwards[3:]

    @pytest.mark.parametrize("policy", SEARCHES)
    def test_branch_of_a_search_searches_anew(self, policy, model):
        """Nobody goes on inside it: what it held in hand beside the path is not recorded. From its start it repeats."""
        whole = model.generate(["a", "cb"], policy=policy, temperature=1.0, seed=3, steps=3)
        again = model.branch(whole, row=1, step=0)
        assert again.canvases == whole.canvases[1:]
        assert again.row_forwards == whole.row_forwards[1:]
        later = model.branch(whole, row=1, step=1)
        assert later.trajectory.steps[0].revealed_BL.tolist() == whole.trajectory.row(1).steps[0].revealed_BL.tolist()
        assert not bool(later.trajectory.state.masked_BL.any())

    @each_case(
        "options",
        [
            {"top_p": 0.7, "temperature": 0.9},
            {"sampler": "gumbel", "temperature": 0.9},
            {"cfg_scale": 1.5},
            {"eos_fill": True, "temperature": 1.0},
            {"eos_penalty": float("inf"), "temperature": 1.0},
            {"confidence_eos_eot_inf": True},
            {"policy": "dream", "alg": "origin"},
            {"policy": "revised", "operator.variant": "cap", "temperature": 1.0},
            {"policy": "fixed", "alpha": {"confidence": 0.5, "margin": 0.5}, "kappa": "count:1"},
            {"policy": "core", "window": (0.0, 0.5)},
        ],
    )
    def test_every_option_is_inherited_from_a_file(self, options, model, tmp_path):
        whole = model.generate("ab", steps=6, seed=5, **options)
        again = model.branch(saved(whole, tmp_path), step=2)
        assert count_steps(again) == count_steps(whole)
        same = ("policy", "proposal", "cfg_scale", "eos_fill", "seed", "fingerprint", "task", "model")
        assert {k: again.config[k] for k in same} == {k: whole.config[k] for k in same}

    def test_branch_of_a_branch_repeats_it(self, model, tmp_path):
        whole = model.generate("a", steps=7, temperature=1.0, seed=1)
        once = model.branch(whole, step=2, seed=8)
        twice = model.branch(saved(once, tmp_path), step=5)
        assert twice.text == once.text
        assert twice.config["branch"]["from"]["branch"]["step"] == 2

    def test_settings_change_the_inherited_policy(self, model, tmp_path):
        whole = model.generate("ab", policy="llada", steps=6, remasking="random")
        other = model.branch(saved(whole, tmp_path), step=1, block_length=2)
        assert other.config["policy"] == {"name": "llada", "block_length": 2, "remasking": "random"}

    def test_other_policy_starts_with_its_own_settings(self, model):
        whole = model.generate("ab", policy="llada", steps=6, remasking="random")
        other = model.branch(whole, step=1, policy="dream")
        assert other.config["policy"] == json_values(describe_policy(make_policy("dream")))
        assert [s.policy for s in other.trajectory.steps[:2]] == ["llada", "dream"]

    def test_other_seed_draws_other_numbers(self, model, tmp_path):
        whole = model.generate(["ab", "a"], steps=6, temperature=2.0, samples=2)
        key = row_key(9, np.array([0, 1, *[4] * 6], "<i8").tobytes(), 1)
        for source in (whole, saved(whole, tmp_path)):
            drawn = [model.branch(source, row=1, step=1, seed=seed) for seed in range(10)]
            assert drawn[9].config["rows"][0]["key"] == key
            assert len({one.text for one in drawn}) > 1
        assert (
            model.branch(whole, row=1, step=0, seed=9).text
            == model.generate("ab", steps=6, temperature=2.0, samples=2, seed=9).texts[1]
        )

    def test_configuration_records_the_parent_run(self, model):
        whole = model.generate("a", steps=7, temperature=1.0, seed=1)
        other = model.branch(whole, step=3, policy="dream", temperature=0.0)
        assert json.loads(json.dumps(other.config)) == other.config
        assert other.config["branch"]["row"] == 0
        assert other.config["branch"]["step"] == 3
        assert other.config["branch"]["from"]["policy"]["name"] == "llada"
        assert other.config["branch"]["from"]["proposal"]["temperature"] == 1.0
        assert json.loads(other.to_json())["config"] == other.config


@dataclass(frozen=True)
class LeftToRight(Policy):
    name: ClassVar[str] = "left-to-right"

    def act(self, traj, look_ahead):
        return fixed_action(region="block:1", cardinality=1.0).act(traj, look_ahead)


class TestPoliciesOfOnesOwn:
    def test_own_policy_is_inherited_in_memory(self, model):
        whole = model.generate("a", policy=LeftToRight(), steps=7)
        assert count_steps(model.branch(whole, step=3)) == count_steps(whole)

    def test_own_policy_must_be_named_for_a_file(self, model, tmp_path):
        whole = model.generate("a", policy=LeftToRight(), steps=7)
        path = saved(whole, tmp_path)
        with pytest.raises(ConfigError, match=r"the run's policy is 'left-to-right'; .*policy="):
            model.branch(path, step=3)
        assert count_steps(model.branch(path, step=3, policy=LeftToRight())) == count_steps(whole)

    @pytest.mark.parametrize(
        "described",
        [
            {},
            {"name": None},
            {"name": "llada", "zeal": 3},
            {"name": "llada"},
            {"name": "llada", "block_length": "x"},
            7,
        ],
    )
    def test_settings_of_another_version_are_refused(self, described):
        with pytest.raises(ConfigError, match="name the policy"):
            policy_from_config(described)


class TestAction:
    def test_action_is_taken_once_and_the_policy_goes_on(self, model):
        whole = model.generate("a", steps=7)
        own = whole.trajectory.row(0).steps[2]
        first = model.branch(whole, step=2, action=own.action)
        assert first.canvases == whole.canvases
        assert [s.policy for s in first.trajectory.steps] == ["llada", "llada", "given", *["llada"] * 4]
        last = int(own.state.masked_BL[0].nonzero()[-1])
        last_only = torch.zeros_like(own.action.region_BL)
        last_only[0, last] = True
        forced = replace(own.action, region_BL=last_only, kappa_B=torch.ones_like(own.action.kappa_B))
        other = model.branch(whole, step=2, action=forced)
        assert other.trajectory.steps[2].revealed_BL[0].nonzero().flatten().tolist() == [last]
        assert other.config["branch"]["action"] == "given"
        assert other.forwards == 7

    def test_policy_may_decide_one_step(self, model):
        whole = model.generate("a", steps=7, temperature=1.0)
        other = model.branch(whole, step=3, action=fixed_action(cardinality=1.0))
        assert [s.policy for s in other.trajectory.steps] == ["llada"] * 3 + ["fixed"]
        assert "_" not in other.text
        assert other.trajectory.sampling == SamplingParams(temperature=1.0)

    def test_branch_of_a_branch_does_not_repeat_its_action(self, model):
        whole = model.generate("a", steps=7)
        once = model.branch(whole, step=2, action=fixed_action(region="last-block:1", cardinality=1.0))
        beyond, at = model.branch(once, step=3), model.branch(once, step=2)
        revealed = [[s.revealed_BL.tolist() for s in run.trajectory.row(0).steps] for run in (whole, once, beyond, at)]
        assert revealed[2] == revealed[1] != revealed[0]
        assert revealed[3] == revealed[0]

    def test_actions_for_other_canvases_are_refused(self, model):
        whole = model.generate("a")
        good = whole.trajectory.steps[0].action
        wrong = {
            "region_BL": torch.ones(1, 3, dtype=torch.bool),
            "kappa_B": torch.ones(2),
            "alpha_BJ": torch.ones(1, 2),
            "commit_BL": torch.ones(1, 8),
            "tokens_BL": "x",
        }
        for name, value in wrong.items():
            with pytest.raises(InvalidAction, match=r"action.*allowed: an Action for 1 row of 8 positions"):
                model.branch(whole, step=1, action=replace(good, **{name: value}))
        with pytest.raises(InvalidAction, match="kappa"):
            model.branch(whole, step=1, action=replace(good, kappa_B=torch.full((1,), 9.0)))
        assert isinstance(good, Action)


class TestRefusals:
    def test_runs_of_other_models_are_refused(self, model, tmp_path):
        path = saved(model.generate("a"), tmp_path)
        other = unmask.load("exact", seed=1)
        with pytest.raises(OtherModel) as refused:
            other.branch(path, step=0)
        for word in (model.fingerprint, other.fingerprint, "exact", "load that one"):
            assert word in str(refused.value)

    @each_case(
        ("options", "words"),
        [
            *(({"step": step}, "step is") for step in (-1, 4, 1.0, "1", None)),
            *(({name: 2}, f"{name} is no option of branch") for name in ("samples", "cache", "prompt", "gen_length")),
            *(({"action": action}, "action is") for action in ("fixed", 3, {}, LLaDA)),
            *(({"generation": source}, "generation is") for source in (None, 3, b"run.npz", [], {})),
        ],
    )
    def test_impossible_options_are_refused(self, options, words, model):
        with pytest.raises(ConfigError, match=words):
            model.branch(**{"generation": model.generate("a", steps=4), "step": 1, **options})

    def test_runs_without_steps_or_configuration_are_refused(self, model):
        bare = replace(model.generate("a").trajectory, config=None)
        with pytest.raises(ConfigError, match=r"does not say which model made it.*unmask\.decode"):
            model.branch(bare, step=0)
        with pytest.raises(ConfigError, match="no steps; allowed: a recorded run; decode it again with record=True"):
            model.branch(model.generate("a", record=False), step=0)

    def test_edited_configurations_are_refused(self, model):
        run = model.generate("a").trajectory
        names = ("approximate", "seed", "policy", "cfg_scale", "rows", "task", "default_prompt")
        broken = [{key: value for key, value in run.config.items() if key != name} for name in names]
        broken += [{**run.config, name: 3} for name in names[4:]]
        for config in broken:
            with pytest.raises(SchemaError, match="makes no sense"):
                model.branch(replace(run, config=config), step=1)

    def test_unknown_tokens_are_refused(self, model):
        run = model.generate("a").trajectory
        tokens = run.state.tokens_BL.clone()
        tokens[0, 3] = 99
        for at in (0, 1):
            steps = list(run.steps)
            steps[at] = replace(steps[at], state=replace(steps[at].state, tokens_BL=tokens))
            with pytest.raises(SchemaError, match="tokens that the model has not"):
                model.branch(replace(run, steps=tuple(steps)), step=1)
