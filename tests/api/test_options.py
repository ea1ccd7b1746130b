"""The options of `generate`, `infill`, `branch` and `log_likelihood`: what they take and refuse."""

import inspect
from dataclasses import fields

import pytest

import unmask
from tests.helpers.cases import each_case
from unmask.api.options import FIXED_AT_START, FUNCTION_OPTIONS, OPTIONS, DecodeOptions, LikelihoodOptions
from unmask.api.resolve import SAMPLING
from unmask.base.errors import ConfigError
from unmask.core import SamplingParams


def test_options_of_the_start_are_not_options_of_a_branch():
    names = {function: set(options) for function, options in FUNCTION_OPTIONS.items()}
    assert names["generate"] == OPTIONS - {"prompt", "gen_length"}
    assert names["generate"] - names["infill"] == {"max_new_tokens"}
    assert names["generate"] - names["branch"] == FIXED_AT_START


def test_sampling_options_have_the_defaults_of_sampling_params():
    own = {field.name: field.default for field in fields(SamplingParams) if field.name != "bar_mask"}
    assert {name: DecodeOptions.model_fields[name].default for name in SAMPLING} == own


@pytest.mark.parametrize("function", ["generate", "infill", "branch", "log_likelihood"])
def test_signatures_and_docstrings_show_every_option(function):
    """Editors and `help` read them, although every option is spelled once, as a field."""
    shown = inspect.signature(getattr(unmask.Model, function)).parameters
    options = FUNCTION_OPTIONS[function]
    assert tuple(name for name in shown if name in options) == options
    assert all(f"\n    {name}: " in getattr(unmask.Model, function).__doc__ for name in options)


def test_other_keywords_are_settings_of_the_policy():
    options = DecodeOptions(seed=3, block_length=4, gen_length=8)
    assert (options.seed, options.max_new_tokens, options.settings) == (3, 8, {"block_length": 4})


@each_case(
    ("kind", "keywords", "words"),
    [
        (DecodeOptions, {"seed": 1.5}, "seed is 1.5; allowed: a whole number of 64 bits"),
        (DecodeOptions, {"seed": 2**63}, "seed is 9223372036854775808; allowed: a whole number of 64 bits"),
        (DecodeOptions, {"steps": "4"}, "steps is '4'; allowed: int"),
        (DecodeOptions, {"steps": True}, "steps is True; allowed: int"),
        (DecodeOptions, {"samples": 0}, "samples is 0; allowed: 1 to 100000"),
        (DecodeOptions, {"samples": 10**9}, "samples is 1000000000; allowed: 1 to 100000"),
        (DecodeOptions, {"temperature": "hot"}, "temperature is 'hot'; allowed: float"),
        (DecodeOptions, {"cfg_scale": "x"}, "cfg_scale is 'x'; allowed: a finite number, 0 or more"),
        (DecodeOptions, {"cfg_scale": float("nan")}, "cfg_scale is nan; allowed: a finite number, 0 or more"),
        (DecodeOptions, {"eos_fill": 1}, "eos_fill is 1; allowed: true or false"),
        (DecodeOptions, {"preset": 3}, "preset is 3; allowed: the name of a preset"),
        (DecodeOptions, {"force_gate": True}, "force_gate is True; allowed: False without a gate"),
        (DecodeOptions, {"cache_refresh": 1}, "cache_refresh is 1; allowed: 0 without a cache"),
        (DecodeOptions, {"record_top": 17}, "record_top is 17; allowed: 0 to 16"),
        (DecodeOptions, {"record_top": 5, "record": False}, "record_top is 5; allowed: 0 with record=False"),
        (DecodeOptions, {"gen_length": 3, "max_new_tokens": 3}, "is .3, 3.; allowed: one of the two"),
        (LikelihoodOptions, {"estimator": "elbo"}, "estimator is 'elbo'; allowed: 'exact', 'monte-carlo' or 'oracle'"),
        (LikelihoodOptions, {"temperature": 0.0}, "temperature is 0.0; allowed: above 0"),
        (LikelihoodOptions, {"tokens_per_step": 1.5}, "tokens_per_step is 1.5; allowed: int"),
        (LikelihoodOptions, {"samples": 0, "estimator": "monte-carlo"}, "samples is 0; allowed: 1 to 100000"),
        (LikelihoodOptions, {"samples": 5}, "samples is 5; allowed: None without estimator='monte-carlo'"),
        (LikelihoodOptions, {"oracle_block": 13, "estimator": "oracle"}, "oracle_block is 13; allowed: 1 to 12"),
        (LikelihoodOptions, {"policy": "x", "estimator": "oracle"}, "policy given; allowed: no method under estimator"),
        (LikelihoodOptions, {"n": 1, "estimator": "monte-carlo"}, "n given; allowed: no method under estimator"),
    ],
)
def test_impossible_options_are_refused(kind, keywords, words):
    with pytest.raises(ConfigError, match=words):
        kind(**keywords)


@each_case(
    ("call", "words"),
    [
        (lambda model: model.log_likelihood("ab", steps=4), "steps is no option of log_likelihood; allowed: policy, "),
        (lambda model: model.infill("a_", gen_length=3), "gen_length is no option of infill; allowed: policy, "),
        (lambda model: model.infill("a_", max_new_tokens=3), "max_new_tokens is no option of infill; allowed: policy"),
        (lambda model: model.branch(model.generate("a"), step=1, steps=2), "steps is no option of branch; allowed: "),
        (lambda model: model.generate("a", **{"steps.x": 1}), "unknown option 'steps.x'"),
        (lambda model: model.generate("a", temprature=1.0), "unknown option 'temprature'; did you mean temperature"),
        (lambda model: model.log_likelihood("ab", estimater="exact"), "'estimater'; did you mean estimator"),
    ],
)
def test_options_of_other_functions_are_refused(call, words):
    with pytest.raises(ConfigError, match=words):
        call(unmask.load("exact"))
