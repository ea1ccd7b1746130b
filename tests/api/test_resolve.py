"""Policies, presets, planners and caches that options name; what does not fit is refused before the first forward."""

from dataclasses import replace
from typing import ClassVar

import pytest

import unmask
from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError
from unmask.methods import METHODS, P2, Composed, compose, fixed_action, make_policy

FITTING = {"wino": {"block_length": 4}}


@pytest.fixture(scope="module")
def model():
    return unmask.load("exact", eos="ac")


class TestComposition:
    RULES: ClassVar = {"score": "margin", "region": "block:4", "cardinality": "eb:0.1", "commitment": "remdm-conf"}

    def test_keywords_compose_a_policy(self, model):
        composed = model.generate("a", **self.RULES)
        assert composed.policy == compose(**self.RULES) == unmask.compose(**self.RULES)
        assert composed.to_json() == model.generate("a", policy="composed", **self.RULES).to_json()
        assert composed.config["action"]["region"] == {"rule": "block", "size": 4}
        assert model.branch(composed, step=1).texts == composed.texts
        assert "action" not in model.generate("a").config

    @pytest.mark.parametrize("axis", RULES)
    def test_one_rule_composes_a_policy(self, model, axis):
        assert model.generate("a", **{axis: self.RULES[axis]}).policy == Composed(**{axis: self.RULES[axis]})

    def test_policies_keep_settings_named_like_rules(self, model):
        assert model.generate("a", policy="dcd", score="margin").policy == make_policy("dcd", score="margin")
        assert model.generate("a", policy="fixed", region="block:2").policy == fixed_action(region="block:2")


class TestPresets:
    def test_family_chooses_the_preset_and_settings_override_it(self, model):
        done = model.generate("a", policy="klass", preset="gsm8k", epsilon=0.5)
        assert done.policy == make_policy("klass", block_length=64, threshold=0.6, epsilon=0.5)
        assert done.config["preset"] == "llada/gsm8k"
        dream = replace(model, reference="dream").generate("a", policy="klass", preset="gsm8k")
        assert dream.policy == make_policy("klass", **METHODS["klass"].presets["dream/gsm8k"])
        named = model.generate("a", policy="dsb", preset="greedy")
        assert named.policy == make_policy("dsb", max_block=None)
        assert model.branch(done, step=0).texts == done.texts


class TestPlanner:
    def test_model_or_network_may_plan(self, model):
        policy = P2(planner=True)
        planned = [model.generate("a", policy=policy, planner=one, steps=4) for one in (model, model.denoiser)]
        assert planned[0].texts == planned[1].texts
        assert int(planned[0].trajectory.planner_forwards_B) == 4
        assert model.generate("a", policy="p2", steps=4).trajectory.planner_forwards_B is None
        assert planned[0].config["planner"].startswith("exact (")
        assert model.branch(planned[0], step=1, planner=model).texts == planned[0].texts

    def test_missing_and_unasked_planners_are_refused(self, model):
        with pytest.raises(ConfigError, match=r"p2 asks a planner.*from Python model\.generate\(\.\.\., planner="):
            model.generate("a", policy=P2(planner=True))
        with pytest.raises(ConfigError, match="planner is given, but llada asks none"):
            model.generate("a", planner=model)
        with pytest.raises(ConfigError, match="size and mask of the planner"):
            model.generate("a", policy=P2(planner=True), planner=unmask.load("exact", vocab=3))


CACHED = {"llada", "fast-dllm", "klass", "eb-sampler", "dus", "remdm-llada", "composed"}


@pytest.fixture(scope="module")
def mini():
    """A model that nobody may ask."""
    loaded = unmask.load("mini")

    def asked(*_, **__):
        raise AssertionError("the model was asked")

    return replace(loaded, denoiser=replace(loaded.denoiser, forward=asked))


class TestRefusedBeforeTheFirstForward:
    """Every method: what makes no sense is refused with its value and a remedy, and the model is not asked."""

    @pytest.mark.parametrize("name", ["llada", "core", "dos", "remdm-llada"])
    def test_blocks_that_do_not_divide_are_refused(self, name, mini):
        with pytest.raises(ConfigError, match=r"block_length is 4; allowed: a divisor of the 6 new tokens; change"):
            mini.generate("a", policy=name, block_length=4, max_new_tokens=6, steps=6)

    @each_case("name", [name for name in METHODS if name not in CACHED])
    def test_cache_is_refused_where_blocks_are_not_filled_in_turn(self, name, mini):
        with pytest.raises(ConfigError, match=r"cache is 'dual', but .*leave the cache out"):
            mini.generate("a", policy=name, cache="dual", max_new_tokens=6)

    @pytest.mark.parametrize(
        ("rules", "why"),
        [
            (
                {"region": "block:4", "commitment": "remdm-conf"},
                "for good .region=block:4, commitment=remdm-conf",
            ),
            ({"region": "sliding:4"}, "one block after the other, for good .region=sliding:4"),
            ({"score": "dependency", "region": "block:4"}, "it reads attention"),
        ],
    )
    def test_cache_is_refused_for_compositions_that_do_not_fit(self, rules, why, mini):
        with pytest.raises(ConfigError, match=why):
            mini.generate("a", cache="dual", max_new_tokens=8, **rules)

    @pytest.mark.parametrize("name", sorted(CACHED))
    def test_cache_decodes_where_it_fits(self, name):
        given = {"region": "block:4"} if name == "composed" else {"block_length": 4}
        done = unmask.load("mini").generate("a", policy=name, cache="dual", max_new_tokens=8, steps=8, **given)
        assert done.config["approximate"] == {"cache": "dual", "refresh": 0}

    @pytest.mark.parametrize("given", [{"policy": "dos"}, {"score": "dependency"}, {"score": "uniform"}])
    def test_attention_without_readout_is_refused(self, given, mini):
        blind = replace(mini, denoiser=replace(mini.denoiser, readout=()))
        with pytest.raises(ConfigError, match=r"reads attention, which mini as loaded does not give; .*readout="):
            blind.generate("a", max_new_tokens=6, **given)
