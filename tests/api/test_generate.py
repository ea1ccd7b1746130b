"""`generate` and `infill`, as a user of the package sees them."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

import unmask
from tests.helpers.cases import each_case
from unmask.api.options import OPTIONS
from unmask.base.errors import ConfigError, UnmaskError
from unmask.core import Policy, row_key
from unmask.engine import decode
from unmask.methods import METHODS, Dream, LLaDA, fixed_action

FITTING = {"wino": {"block_length": 4}}
"""Settings without which a method cannot show itself on a small canvas."""


@pytest.fixture(scope="module")
def model():
    return unmask.load("exact")


@pytest.fixture(scope="module")
def ending():
    """The same distribution, two of whose letters end the text."""
    return unmask.load("exact", eos="ac")


def fingerprint(out):
    """Everything a run did, without what it was asked to do."""
    steps = [
        (s.rows_B.tolist(), s.revealed_BL.tolist(), s.remasked_BL.tolist(), s.state.tokens_BL.tolist())
        for s in out.trajectory.steps
    ]
    confidence = [s.confidence_BL.nan_to_num(-1).tolist() for s in out.trajectory.steps]
    return out.texts, out.row_forwards, steps, confidence


class TestPackage:
    def test_public_names(self):
        values = {"Action", "Generation", "Model", "Noise", "Policy", "SamplingParams", "State", "Trajectory"}
        functions = {"calibrate", "compose", "decode", "load"}
        assert set(unmask.__all__) == {
            *("__version__", "METHODS", "MODELS", "ConfigError", "UnmaskError"),
            *(values | functions),
        }
        assert all(getattr(unmask, name) is not None for name in unmask.__all__)
        assert unmask.decode is unmask.engine.decode is decode
        with pytest.raises(AttributeError, match=r"no attribute 'laod'; did you mean load\?"):
            _ = unmask.laod


class TestGeneration:
    def test_defaults_fill_the_canvas_in_half_as_many_steps(self, model):
        out = model.generate(["a", "bc"])
        assert [(r["new_tokens"], r["steps"]) for r in out.config["rows"]] == [(7, 4), (6, 3)]
        assert [len(text) for text in out.texts] == [7, 6]
        assert out.canvases == tuple(p + t for p, t in zip(["a", "bc"], out.texts, strict=True))
        assert tuple(map(model.codec.decode, out.tokens)) == out.texts

    def test_costs_are_counted_per_row(self, model):
        out = model.generate(["a", "bc"], steps=3)
        assert (out.row_forwards, out.forwards, out.cost.processed_tokens) == ((3, 3), 6, 6 * 8)
        assert out.tokens_per_forward == 13 / 6
        with pytest.raises(ConfigError, match=r"use \.texts"):
            _ = out.text

    def test_configuration_is_resolved_and_plain(self, model):
        out = model.generate("a", policy="core", window=(0.0, 0.5))
        assert json.loads(json.dumps(out.config)) == out.config
        assert (out.config["policy"]["window"], out.config["policy"]["revise_every"]) == ([0.0, 0.5], 8)
        assert out.config["method"] == {"label": "verified", "version": "1"}
        assert model.generate("a", policy="dos").config["method"]["label"] == "reconstruction"
        assert out.config["model"] == {"name": "exact", **model.options}
        assert set(out.config["versions"]) == {"unmask", "torch", "numpy", "python", "threads"}
        assert out.config["versions"]["torch"] == torch.__version__

    def test_configuration_repeats_the_run(self, model):
        out = model.generate(["a", "b"], policy="dream", alg="origin", temperature=0.7, seed=3, samples=2)
        config = out.config
        again = unmask.load(config["model"].pop("name"), **config["model"]).generate(
            [row["prompt"] for row in config["rows"][:: config["samples"]]],
            policy=config["policy"].pop("name"),
            steps=config["rows"][0]["steps"],
            seed=config["seed"],
            samples=config["samples"],
            **{k: v for k, v in config["proposal"].items() if k != "bar_mask"},
            **config["policy"],
        )
        assert fingerprint(again) == fingerprint(out)

    def test_json_has_every_row_and_the_configuration(self, model):
        out = model.generate(["a", "b"], temperature=1.0)
        text = out.to_json()
        assert text == model.generate(["a", "b"], temperature=1.0).to_json()
        document = json.loads(text)
        assert [row["text"] for row in document["rows"]] == list(out.texts)
        assert [tuple(row["tokens"]) for row in document["rows"]] == list(out.tokens)
        assert document["config"] == out.config

    def test_row_keys_are_seed_prompt_and_sample(self, model):
        out = model.generate("ab", seed=5, samples=2)
        canvas = np.array([0, 1, *[4] * 6], "<i8").tobytes()
        keys = [row_key(5, canvas, 0), row_key(5, canvas, 1)]
        assert [row["key"] for row in out.config["rows"]] == out.trajectory.noise.key_B.tolist() == keys

    @each_case("policy", [name for name in METHODS if name != "fast-dllm-dream"])
    def test_rows_decode_alone_as_in_a_batch(self, policy, model):
        prompts = ["a", "cab", "d", "bb"]
        options = {"policy": policy, "temperature": 0.9, "samples": 2, "steps": 3, **FITTING.get(policy, {})}
        together = model.generate(prompts, **options)
        for at, prompt in enumerate(prompts):
            alone = model.generate(prompt, **options)
            assert alone.texts == together.texts[2 * at : 2 * at + 2]
            assert alone.row_forwards == together.row_forwards[2 * at : 2 * at + 2]

    def test_byte_order_mark_is_dropped(self, model):
        assert model.generate("\ufeffab").canvases == model.generate("ab").canvases
        assert model.infill("\ufeffa_").texts == model.infill("a_").texts
        assert model.generate(["\ufeffab"]).config["rows"][0]["prompt"] == "ab"

    def test_samples_differ_and_the_first_is_the_single_one(self, model):
        many = model.generate("a", samples=8, temperature=1.0)
        assert many.texts[0] == model.generate("a", temperature=1.0).text
        assert len(set(many.texts)) > 1

    def test_record_and_on_step(self, model):
        seen = []
        out = model.generate("a", steps=4, record=False, on_step=lambda traj: seen.append(int(traj.state.step_B[0])))
        assert (out.trajectory.steps, seen) == ((), [1, 2, 3, 4])
        assert out.text == model.generate("a", steps=4).text

    def test_record_top_keeps_as_many_and_changes_nothing_else(self, model):
        plain = model.generate("ab", policy="remdm", seed=2)
        wide = model.generate("ab", policy="remdm", seed=2, record_top=3)
        assert fingerprint(wide) == fingerprint(plain)
        widths = [{s.prediction.clean.top_BNK.shape[-1] for s in out.trajectory.steps} for out in (plain, wide)]
        assert widths == [{2}, {3}]
        assert wide.config == plain.config | {"record_top": 3}


class TestPolicies:
    def test_settings_reach_the_policy(self, model):
        by_name = model.generate("ab", policy="llada", block_length=2, steps=6, remasking="random")
        by_object = model.generate("ab", policy=LLaDA(2, "random"), steps=6)
        assert by_name.config["policy"] == by_object.config["policy"]
        assert fingerprint(by_name) == fingerprint(by_object)
        dream = model.generate("ab", policy="dream", alg="topk_margin", alg_temp=0.1)
        assert fingerprint(dream) == fingerprint(model.generate("ab", policy=Dream("topk_margin", 0.1)))

    def test_dotted_settings_reach_parts(self, model):
        out = model.generate("ab", policy="revised", **{"operator.variant": "cap"})
        assert out.config["policy"]["operator"]["variant"] == "cap"
        assert out.config["policy"]["base"]["name"] == "fixed"

    def test_own_policy_decodes_and_is_recorded(self, model):
        class LeftToRight(Policy):
            name: ClassVar[str] = "left-to-right"

            def act(self, traj, look_ahead):
                return fixed_action(region="block:1", cardinality=1.0).act(traj, look_ahead)

        out = model.generate("ab", policy=LeftToRight(), steps=6)
        assert out.config["policy"]["name"] == "left-to-right"
        # No setting says what it does: a hash of its code does.
        assert "LeftToRight, code " in out.config["policy"]["class"]
        assert [int(s.revealed_BL[0].long().argmax()) for s in out.trajectory.steps] == [2, 3, 4, 5, 6, 7]


class TestInfill:
    def test_given_tokens_stay(self, model):
        text = "a__c[MASK]_b"
        out = model.infill(text)
        plain = text.replace("[MASK]", "_")
        assert len(out.text) == len(plain)
        assert all(after == before for after, before in zip(out.text, plain, strict=True) if before != "_")
        assert "_" not in out.text
        row = {"prompt": text, "sample": 0, "key": 0, "new_tokens": 4, "steps": 2}
        assert out.config["rows"][0] | {"key": 0} == row

    def test_one_position_at_a_time_is_the_exact_conditional(self, model):
        out = model.infill("ab_dabcd", steps=1)
        evidence = {i: "abcd".index(letter) for i, letter in enumerate("ab_dabcd") if letter != "_"}
        assert "abcd".index(out.text[2]) == int(model.denoiser.joint.marginals(evidence)[2].argmax())


@dataclass(frozen=True)
class Effect:
    """A value of an option under which a run must change."""

    value: object
    policy: str = "llada"
    ends: bool = False
    """Whether the model needs an end of text for it."""
    inert: tuple[float, ...] = ()
    """Temperatures at which it cannot have an effect, as documented."""


EFFECTS = {
    "policy": Effect("wino"),
    "preset": Effect("origin", policy="dream"),
    "max_new_tokens": Effect(4),
    "steps": Effect(2),
    "samples": Effect(2),
    "seed": Effect(1, inert=(0.0,)),
    "temperature": Effect(1.7),
    # Without temperature, filters move only what is scored: the filtered statistics, which dream reads.
    "top_p": Effect(0.5, policy="dream"),
    "top_k": Effect(1, policy="dream"),
    "sampler": Effect("gumbel", inert=(0.0,)),
    "logits_eos_inf": Effect(True, ends=True),
    "confidence_eos_eot_inf": Effect(True, ends=True),
    "eos_penalty": Effect(2.0, ends=True),
    "cfg_scale": Effect(1.5),
    "eos_fill": Effect(True, ends=True),
}
ELSEWHERE = {"planner", "record", "record_top", "on_step", "cache", "cache_refresh", "gate", "force_gate"}
"""Options that need another model or a gate, or do not change what is decoded; each has a test of its own."""
PROMPTS = ["a", "b", "cd", "dab"]


class TestEveryOption:
    def test_table_has_every_option(self):
        assert EFFECTS.keys() | ELSEWHERE == OPTIONS - {"prompt", "gen_length"}

    @each_case("temperature", [0.0, 0.8])
    @each_case("option", EFFECTS)
    def test_every_option_has_its_effect(self, option, temperature, model, ending):
        effect = EFFECTS[option]
        own = {"policy": effect.policy, "temperature": temperature}
        used = ending if effect.ends else model
        texts = [prompt + "_" * (8 - len(prompt)) for prompt in PROMPTS]
        for run, given in [(used.generate, PROMPTS), (used.infill, texts)][: 1 if option == "max_new_tokens" else 2]:
            changed = fingerprint(run(given, **{**own, option: effect.value}))
            assert (changed == fingerprint(run(given, **own))) == (temperature in effect.inert), run.__name__

    @pytest.mark.parametrize("option", ["top_p", "top_k"])
    def test_filters_leave_greedy_decoding_alone(self, option, model):
        value = EFFECTS[option].value
        assert fingerprint(model.generate(PROMPTS, **{option: value})) == fingerprint(model.generate(PROMPTS))


REFUSED = [
    ({"prompt": ""}, ["prompt is ''", "one character or more"]),
    ({"prompt": []}, ["prompt is []", "one text or more"]),
    ({"prompt": 3}, ["prompt is 3", "a text"]),
    ({"prompt": b"ab"}, ["prompt is b'ab'", "a text", "decode the bytes"]),
    ({"prompt": [b"ab"]}, ["prompt is b'ab'", "a text"]),
    ({"prompt": "\ufeff"}, ["prompt is ''", "one character or more"]),
    ({"prompt": "axe"}, ["'x'", "'abcd'"]),
    ({"prompt": "a_"}, ["blank", "use infill"]),
    ({"prompt": "abcdabcd"}, ["9 positions", "at most 8", "shorten"]),
    ({"max_new_tokens": 0}, ["max_new_tokens is 0", "1 to 7"]),
    ({"max_new_tokens": 8}, ["max_new_tokens is 8", "1 to 7", "1 of 8 positions", "shorten the prompt"]),
    ({"steps": 0}, ["steps of row 0 is 0", "1 to 7", "take at least one step"]),
    ({"steps": 8}, ["steps of row 0 is 8", "1 to 7", "lower steps"]),
    ({"task": "x"}, ["'task'"]),
    ({"policy": "wino", "block_length": 10**23}, ["block_length", "1 to 1000000"]),
    ({"policy": "fixed", "region": "block:" + "9" * 30}, ["region", "1 to 1000000"]),
    ({"policy": "info-gain", "candidates": 10**5}, ["candidates of info-gain is 100000", "1 to 1024"]),
    ({"temperature": -1.0}, ["temperature is -1.0", ">= 0"]),
    ({"top_p": 0.0}, ["top_p is 0.0", "above 0"]),
    ({"top_k": -1}, ["top_k is -1", "0 or more"]),
    ({"sampler": "magic"}, ["'magic'", "gumbel"]),
    ({"eos_fill": True}, ["eos_fill is True", "end-of-text", "eos='a'"]),
    ({"eos_penalty": 1.0}, ["eos_penalty is 1.0", "end-of-text"]),
    ({"policy": "lada"}, ["'lada'", "did you mean llada?"]),
    ({"policy": 3}, ["policy is 3", "a name"]),
    ({"policy": "klass:threshold=0.5"}, ["settings as keywords; write policy='klass' and threshold=0.5 beside it"]),
    ({"policy": "medal", "record_top": 3}, ["record_top is 3; allowed: 0 with a search such as medal"]),
    ({"policy": LLaDA(), "block_length": 2}, ["block_length", "on the object"]),
    ({"policy": LLaDA(), "preset": "gsm8k"}, ["none with a policy object"]),
    ({"policy": "klass", "preset": "gsm"}, ["preset of klass is 'gsm' with a model of the family llada"]),
    ({"policy": "dos", "preset": "gsm8k"}, ["allowed: none; leave it out"]),
    ({"cache": "dual"}, ["cache is 'dual'", "None with exact"]),
    ({"score": "margin", "block_length": 4}, ["policy settings is ['block_length']; allowed: score, region"]),
    ({"score": "margin", "policy": "klass"}, ["unknown setting of klass 'score'"]),
    ({"score": "margin", "policy": LLaDA()}, ["none with a policy object"]),
    ({"region": "blok:2"}, ["unknown region 'blok'; did you mean block"]),
    ({"block_lenght": 2}, ["'block_lenght'", "did you mean block_length?"]),
    ({"block_length": "4"}, ["block_length of llada is '4'", "1 to 1000000, or None"]),
    ({"block_length": True}, ["block_length of llada is True", "1 to 1000000, or None"]),
    ({"block_length": 4}, ["block_length is 4", "a divisor of the 7 new tokens"]),
    ({"policy": "fixed", "kappa": 1.5}, ["1.5", "[0, 1]"]),
    ({"policy": "fixed", "alpha": [1, 1, 0, 0, 0]}, ["sum to 1", "divide"]),
    ({"policy": "fixed", "alpha": {"confidence": "x"}}, ["'x'", "alpha of fixed", "check its type"]),
    ({"policy": "fixed", "alpha": {"konfidence": 1.0}}, ["'konfidence'", "did you mean confidence?"]),
    ({"policy": "revised", "base": 7}, ["base of revised is 7", "step by step"]),
    ({"policy": "revised", "operator.eta": "x"}, ["'x'", "eta of revised.operator", "check its type"]),
    ({"policy": "core", "window": [0.1, 0.2, 0.3]}, ["window of core is [0.1, 0.2, 0.3]", "tuple[float, float]"]),
]


@each_case(("options", "words"), REFUSED, ids=[str(options)[:50] for options, _ in REFUSED])
def test_impossible_options_of_generate_are_refused(options, words, model):
    with pytest.raises(UnmaskError) as refused:
        model.generate(**{"prompt": "a", **options})
    assert all(word in str(refused.value) for word in words), refused.value


@each_case(
    ("text", "options", "words"),
    [
        ("abc", {}, ["'abc'", "'_' or [MASK]", "mark"]),
        ("", {}, ["text is ''"]),
        ("x_", {}, ["'x'", "'abcd'"]),
        ("_________", {}, ["9 positions", "at most 8"]),
        ("a__", {"steps": 3}, ["steps of row 0 is 3", "1 to 2"]),
    ],
)
def test_impossible_options_of_infill_are_refused(text, options, words, model):
    with pytest.raises(ConfigError) as refused:
        model.infill(text, **options)
    assert all(word in str(refused.value) for word in words), refused.value
