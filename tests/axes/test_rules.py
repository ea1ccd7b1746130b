"""Rules in text form: they print as they are read, and wrong ones are refused with the text that was given."""

import pytest

from tests.helpers.cases import each_case
from unmask.axes import Cardinality, Commitment, Region, ReMDM, cardinality, score
from unmask.base.errors import ConfigError, UnknownName

ROUND_TRIPS = {
    Cardinality: ("schedule", "count:4", "count:4:below", "share:0.25", "above:0.9"),
    Commitment: ("all", "none", "confidence:0.9", "margin:0.5", "margin:0"),
    Region: ("full", "block:8", "last-block:16", "window:16", "dilated:4", "near:2", "masks:16", "sliding:32:64"),
}
WRONG_COUNTS = ("schedule:below", "count:below", "count:2:below:below", "count:2:below3", "count", "count:", "count:0")
WRONG_COUNTS += ("count:-2", "count:1.5", "count:inf", "count:nan", "count:many", "share:1.1", "share:-0.1", "share:")
WRONG_COUNTS += ("above:2", "schedule:3", 1.5, -0.25, float("nan"), 2)
REFUSED = [
    *((Cardinality.parse, text) for text in WRONG_COUNTS),
    *((Commitment.parse, text) for text in ("all:1", "none:0", "confidence", "confidence:", "confidence:1.1")),
    *((Commitment.parse, text) for text in ("confidence:x", "margin:-0.1", "margin:nan")),
    *((Region.parse, text) for text in ("full:1", "block", "block:", "block:0", "block:2.5", "block:-1", "window:x")),
    *((score.weights, mixture) for mixture in ([0.5, 0.5], [1, 1, 0, 0, 0], [-1, 2, 0, 0, 0], {"margin": 0.5})),
    *((score.weights, text) for text in ("0.5*margin+confidence", "margin+margin", "x*margin")),
]
UNKNOWN = [
    (Cardinality.parse, "counts:3", "count"),
    (Commitment.parse, "confidnce:0.9", "confidence"),
    (Region.parse, "blok:8", "block"),
    (score.weights, "marginn", "margin"),
    (ReMDM, "cpa", "cap"),
]


@pytest.mark.parametrize("kind", ROUND_TRIPS)
def test_rules_print_as_they_are_read(kind):
    for text in ROUND_TRIPS[kind]:
        assert str(kind.parse(text)) == text


@each_case(("parse", "text"), REFUSED)
def test_wrong_rules_are_refused(parse, text):
    with pytest.raises(ConfigError, match="allowed: "):
        parse(text)


@each_case(("parse", "text", "meant"), UNKNOWN)
def test_unknown_rules_suggest_a_similar_one(parse, text, meant):
    with pytest.raises(UnknownName, match=f"did you mean .*{meant}"):
        parse(text)


@each_case("options", [{"eta": 1.5}, {"eta": -0.1}, {"t_on": 0.01}, {"t_off": 0.6}, {"alpha_on": 1.0}])
def test_wrong_settings_of_remasking_are_refused(options):
    with pytest.raises(ConfigError, match="allowed: "):
        ReMDM("loop", **options)


@pytest.mark.parametrize("text", ["schedule", "quota", "all", "count:2:below", "full"])
def test_rules_without_a_number_have_no_form_without_floor(text):
    assert cardinality.allow_below_k_min(text) == text
