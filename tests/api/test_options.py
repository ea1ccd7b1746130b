"""The options of `generate` and `infill`: what they take, what they refuse, and what is recorded."""

from dataclasses import fields

import pytest

from tests.helpers.cases import each_case
from unmask.api.options import ALIASES, OPTIONS, RECORDED, SPEC, DecodeOptions, option_fields
from unmask.base.errors import ConfigError


def test_every_option_says_what_it_does():
    assert all(f.metadata[SPEC].help.endswith(".") for f in fields(DecodeOptions))


def test_names():
    assert {"prompt", "policy", "steps", "on_step"} <= OPTIONS
    assert "settings" not in OPTIONS
    assert {"gen_length"} == ALIASES
    names = {command: {f.name for f in option_fields(command)} for command in ("generate", "infill")}
    assert names["generate"] - names["infill"] == {"max_new_tokens"}


def test_other_keywords_are_settings_of_the_policy():
    options = DecodeOptions.of("generate", {"seed": 3, "block_length": 4, "gen_length": 8})
    assert (options.seed, options.max_new_tokens, options.settings) == (3, 8, {"block_length": 4})
    # There it is no option, so that somebody can say so.
    assert DecodeOptions.of("infill", {"max_new_tokens": 8}).settings == {"max_new_tokens": 8}


def test_keywords_lead_back():
    options = DecodeOptions.of("generate", {"policy": "llada", "block_length": 4, "top_p": 0.5, "cache": "dual"})
    assert DecodeOptions.of("generate", options.keywords) == options
    assert DecodeOptions.of("infill", options.keywords) == options


def test_what_is_recorded():
    options = DecodeOptions(seed=3, cache="dual", cache_refresh=2)
    assert tuple(options.recorded) == RECORDED
    assert options.recorded["approximate"] == {"cache": "dual", "refresh": 2}
    assert DecodeOptions().recorded["approximate"] is False
    assert DecodeOptions(record_top=5).recorded == DecodeOptions().recorded | {"record_top": 5}


@each_case(
    ("keywords", "words"),
    [
        ({"seed": 1.5}, "seed is 1.5; allowed: a whole number"),
        ({"steps": "4"}, "steps is '4'; allowed: a whole number"),
        ({"samples": 0}, "samples is 0; allowed: 1 to 100000"),
        ({"cfg_scale": "x"}, "cfg_scale is 'x'; allowed: a number >= 0"),
        ({"eos_fill": 1}, "eos_fill is 1; allowed: True or False"),
        ({"force_gate": True}, "force_gate is True; allowed: False without a gate"),
        ({"cache_refresh": 1}, "cache_refresh is 1; allowed: 0 without a cache"),
        ({"record_top": 17}, "record_top is 17; allowed: 0 to 16"),
        ({"record_top": "5"}, "record_top is '5'; allowed: a whole number"),
        ({"record_top": 5, "record": False}, "record_top is 5; allowed: 0 with record=False"),
        ({"gen_length": 3, "max_new_tokens": 3}, "max_new_tokens and gen_length is .3, 3.; allowed: one of the two"),
    ],
)
def test_refusals(keywords, words):
    with pytest.raises(ConfigError, match=words):
        DecodeOptions.of("generate", keywords)
