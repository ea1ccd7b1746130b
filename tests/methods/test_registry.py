"""The table of methods, settings in and out, and a user's own classes."""

import sys
from math import inf, nan

import pytest

from tests.helpers.cases import each_case
from tests.helpers.own_policies import GOOD
from unmask.api.load import load
from unmask.axes import ReMDM
from unmask.base.errors import ConfigError, UnknownName
from unmask.core import State
from unmask.methods import (
    DSB,
    METHODS,
    OURS,
    RECONSTRUCTION,
    FastDLLM,
    ReMDMLLaDA,
    describe_policy,
    make_own_policy,
    make_policy,
)
from unmask.methods.check import check_policy

# What entries say, held against the classes


PUBLISHED = [name for name, method in METHODS.items() if method.label != OURS]


# Defects of the authors' code that are mended here, and the setting that brings each back. Where it is tested:
# test_authors.py (DUS, KLASS, the factor rule in DSB's runs), test_info_gain.py.
DEFECTS = {
    "dus": "leave_skipped",
    "klass": "leave_unfinished",
    "info-gain": "leave_unfinished",
    "fast-dllm": "authors_tail",
}


# Where paper and code differ, or the code does what few would expect: the setting that takes the other way.
OTHER_WAYS = {"p2": ("form", "exact", "noisy"), "swordsman": ("mean",), "klass": ("variant",), "dsb": ("max_block",)}


@pytest.mark.parametrize(("name", "flag"), DEFECTS.items())
def test_mended_defects_can_be_brought_back(name, flag):
    assert getattr(make_policy(name), flag) is False
    assert getattr(make_policy(name, **{flag: True}), flag) is True
    assert any(flag in line for line in METHODS[name].differs)


@pytest.mark.parametrize(("name", "settings"), OTHER_WAYS.items())
def test_other_ways_are_settings(name, settings):
    assert set(settings) <= set(describe_policy(make_policy(name)))


def test_labels():
    """Reconstructions are those with parts of ours, or untested against their authors' files."""
    labels = {name: METHODS[name].label for name in PUBLISHED}
    found = {name for name, label in labels.items() if label == RECONSTRUCTION}
    searches = {"lookum", "soar", "order-token-search", "medal"}
    assert found == {"eb-sampler", "dos", "swordsman", "vsb", "demask", "ddpd"} | searches
    assert {label for name, label in labels.items() if name not in found} == {"verified"}
    assert all(METHODS[name].differs for name in found)


@each_case("name", METHODS)
def test_presets_are_settings_of_the_method(name):
    for preset, values in METHODS[name].presets.items():
        assert isinstance(make_policy(name, **values), METHODS[name].kind), preset


# Settings are checked when a method is made, and recorded as given


WRONG = [
    ("llada", {"block_length": 0}, "block_length of llada is 0; allowed: 1 to 1000000, or None"),
    ("llada", {"block_length": True}, "block_length of llada is True; allowed: 1 to 1000000"),
    ("llada", {"remasking": "high"}, "remasking of llada is 'high'; allowed: low_confidence or random"),
    ("fast-dllm", {"threshold": 1.2}, "threshold of fast-dllm is 1.2; allowed: 0 to 1"),
    ("fast-dllm", {"threshold": "0.9"}, "threshold of fast-dllm is '0.9'; allowed: 0 to 1"),
    ("fast-dllm", {"threshold": nan}, "threshold of fast-dllm is nan; allowed: 0 to 1"),
    ("fast-dllm", {"rule": "best"}, "rule of fast-dllm is 'best'; allowed: threshold or factor"),
    ("fast-dllm", {"factor": -1.0}, "factor of fast-dllm is -1.0; allowed: 0 or more"),
    ("fast-dllm", {"factor": inf}, "factor of fast-dllm is inf; allowed: 0 or more, below inf"),
    ("fast-dllm", {"spacing": -1}, "spacing of fast-dllm is -1; allowed: 0 or more"),
    ("fast-dllm-dream", {"threshold": -1}, "threshold of fast-dllm-dream is -1; allowed: 0 to 1"),
    ("dream", {"alg": "confidence"}, "alg of dream is 'confidence'; allowed: origin or maskgit_plus or"),
    ("dream", {"alg_temp": -0.1}, "alg_temp of dream is -0.1; allowed: 0 or more"),
    ("dream", {"eps": 1.0}, "eps of dream is 1.0; allowed: above 0, below 1"),
    ("klass", {"window": 0}, "window of klass is 0; allowed: 1 to 64"),
    ("klass", {"strategy": "best"}, "strategy of klass is 'best'"),
    ("eb-sampler", {"gamma": -1}, "gamma of eb-sampler is -1; allowed: 0 or more"),
    ("eb-sampler", {"proxy": "x"}, "proxy of eb-sampler is 'x'; allowed: entropy or confidence or margin"),
    ("dos", {"base": "wino"}, "base of dos is 'wino'; allowed: schedule or eb"),
    ("dos", {"sinks": 0}, "sinks of dos is 0; allowed: above 0, at most 1, or None"),
    ("dus", {"skip": 2}, "skip of dus is 2; allowed: 0 to 1"),
    ("dus", {"block_length": None}, "block_length of dus is None; allowed: 1 to 1000000"),
    ("dsb", {"max_block": 0}, "max_block of dsb is 0; allowed: 1 to 1000000, or None"),
    ("dsb", {"base": "llada"}, "base of dsb is 'llada'; allowed: FastDLLM"),
    ("dsb", {"base.threshold": 2}, "threshold of fast-dllm is 2; allowed: 0 to 1"),
    ("swordsman", {"mean": "all"}, "mean of swordsman is 'all'; allowed: block or masked"),
    ("dcd", {"score": "entropy"}, "threshold of dcd is 0.9; allowed: 0 or less with score=entropy"),
    ("dcd", {"s_init": 0}, "s_init of dcd is 0; allowed: 1 to 1000000"),
    ("vsb", {"window": 4, "least": 8}, r"least, window is \(8, 4\); allowed: 1 <= least <= window"),
    ("remdm-llada", {"k": -1}, "k of remdm-llada is -1; allowed: 0 to 1000000"),
    ("remdm", {"operator.eta": 2}, "eta is 2; allowed: 0 to 1"),
    ("wino", {"tau1": 1.1}, "tau1 of wino is 1.1; allowed: 0 to 1"),
    ("core", {"base": "entropy"}, "base of core is 'entropy'; allowed: confidence or margin"),
    ("core", {"candidates": 0}, "candidates of core is 0; allowed: 1 to 1000000"),
    ("core", {"tail": -1}, "tail of core is -1; allowed: 0 or more"),
    ("core", {"window": (0.8, 0.2)}, r"window is \(0.8, 0.2\); allowed: 0 <= start <= end <= 1"),
    ("core", {"window": (0.1, "b")}, r"window of core is \(0.1, 'b'\); allowed: tuple"),
    ("info-gain", {"objective": "lookum"}, "objective of info-gain is 'lookum'; allowed: info_gain or remaining"),
    ("info-gain", {"threshold": 1.1}, "threshold of info-gain is 1.1; allowed: 0 to 1, or None"),
    ("lookum", {"pool": 0.5}, "pool of lookum is 0.5; allowed: 1 or more"),
    ("lookum", {"tau": 0.0}, "tau of lookum is 0.0; allowed: above 0"),
    ("lookum", {"exhaustive": True, "variant": "smc"}, "exhaustive is True; allowed: false with variant=smc"),
    ("lookum", {"budget": 0}, "budget is 0; allowed: forwards per row, 1 or more, or times a base decode"),
    ("lookum", {"budget": "0.5x"}, "budget is '0.5x'; allowed: forwards per row"),
    ("soar", {"value": "median"}, "value of soar is 'median'; allowed: sum or mean"),
    ("soar", {"collapse": 0}, "collapse of soar is 0; allowed: 1 or more, or None"),
    ("order-token-search", {"tau": nan}, "tau of order-token-search is nan; allowed: 0 or more, below inf, or None"),
    ("medal", {"explore": -1.0}, "explore of medal is -1.0; allowed: 0 or more"),
    ("demask", {"outcomes": 0}, "outcomes of demask is 0; allowed: 1 to 64"),
    ("demask", {"head": ""}, "head of demask is ''"),
    ("ddpd", {"planner_temperature": 0.0}, "planner_temperature of ddpd is 0.0; allowed: above 0"),
    ("ddpd", {"fill": 1.0}, "fill of ddpd is 1.0; allowed: 0 or more, below 1"),
    ("p2", {"eta": -1}, "eta of p2 is -1; allowed: 0 or more"),
    ("p2", {"schedule": "cosine"}, "schedule of p2 is 'cosine'; allowed: linear or sine"),
    ("best-of", {"n": 0}, "n of best-of is 0; allowed: 1 to 10000"),
    ("best-of", {"temperature": 0}, "temperature of best-of is 0; allowed: above 0"),
    ("revised", {"base": 3}, "base of revised is 3; allowed: .*a method that decides step by step"),
    ("fixed", {"kappa": 1.5}, "kappa is 1.5; allowed: a share in"),
    ("fixed", {"alpha": {"confidence": "x"}}, "alpha of fixed is .*'x'"),
    ("composed", {"region": 7}, "region of composed is 7"),
]


@each_case(("name", "settings", "message"), WRONG, ids=[f"{name}-{settings}" for name, settings, _ in WRONG])
def test_a_wrong_setting_is_refused(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        make_policy(name, **settings)


def test_every_method_has_a_wrong_setting_here():
    assert {name for name, _, _ in WRONG} == set(METHODS)


@each_case(
    ("name", "setting", "value"),
    [("klass", "threshold", 1), ("dream", "alg_temp", 0), ("core", "window", [0, 1]), ("remdm", "operator.eta", 0)],
)
def test_values_are_recorded_as_given(name, setting, value):
    """A whole number in a float setting stays one, because configurations are hashed."""
    found = describe_policy(make_policy(name, **{setting: value}))
    for key in setting.split("."):
        found = found[key]
    assert repr(found) == repr(value)


def test_a_part_may_be_named_or_changed():
    assert make_policy("best-of", base="fast-dllm", **{"base.threshold": 0.5}).base == FastDLLM(threshold=0.5)
    assert make_policy("dsb", **{"base.rule": "factor"}) == DSB(FastDLLM("factor"))
    assert make_policy("revised", **{"operator.variant": "cap"}).operator == ReMDM("cap")
    with pytest.raises(ConfigError, match=r"klass.threshold has no parts; allowed: threshold=VALUE; drop 'x'"):
        make_policy("klass", **{"threshold.x": 1})


def test_no_value_is_the_word_where_a_text_is_asked():
    """A command line reads `commit=none` as no value."""
    assert make_policy("fixed", commit=None) == make_policy("fixed", commit="none")
    assert make_policy("klass", block_length=None).block_length is None


def test_blocks_that_do_not_divide_the_answer_are_refused():
    state = State.from_prompts([[1]], new_tokens=6, steps=6, mask_id=9)
    with pytest.raises(ConfigError, match=r"block_length is 4; allowed: a divisor of the 6 new tokens"):
        ReMDMLLaDA(4).check(state)


# A policy of a user's own, by its name


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(GOOD, encoding="utf-8")
    return tmp_path / "mine.py"


def test_own_it_decodes_with_its_settings():
    policy = make_own_policy("mine.py:Counted", {"count": 3, "order": "left", "shares": [0.5]})
    check_policy(policy)
    assert load("exact").generate("a", policy=policy).forwards == 3


def test_own_its_settings_are_recorded_with_its_code(mine):
    shown = describe_policy(make_own_policy("mine.py:Counted", {}))
    assert {key: shown[key] for key in ("name", "count")} == {"name": "counted", "count": 2}
    assert shown["class"].startswith("Counted, code ")
    mine.write_text(GOOD.replace("count: int = 2", "count: int = 2  # two"), encoding="utf-8")
    other = describe_policy(make_own_policy("mine.py:Counted", {}))
    assert other["count"] == 2
    assert other["class"] != shown["class"]
    assert "class" not in describe_policy(make_policy("wino"))


def test_own_a_setting_without_a_default():
    assert make_own_policy("mine.py:Needy", {"needed": 4, "count": 1}).needed == 4


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("mine.py:Counted", {"cuont": 3}, "unknown setting of mine.py:Counted 'cuont'; did you mean count"),
        ("mine.py:Counted", {"count": "three"}, "count of counted is 'three'; allowed: int"),
        (
            "mine.py:Counted",
            {"order": "right"},
            "order of counted is 'right'; allowed: left or any",
        ),
        ("mine.py:Counted", {"shares": ["x"]}, "shares of counted"),
        ("mine.py:Counted", {"count.deep": 3}, "mine.py:Counted.count has no parts"),
        ("mine.py:Needy", {}, "mine.py:Needy needs the setting 'needed'"),
        ("mine.py:Needy", {"needed": "x"}, "needed of needy is 'x'; allowed: int"),
        ("mine.py:Refuses", {}, "mine.py:Refuses cannot be made .RuntimeError: not today"),
        ("mine.py:Abstract", {}, "mine.py:Abstract cannot be made .TypeError: .*act"),
        ("mine.py:Nameless", {}, "mine.py:Nameless has no name; allowed: a frozen dataclass"),
        ("mine.py:Plain", {}, "mine.py:Plain is no frozen dataclass; allowed: .*write @dataclass"),
        ("mine.py:Other", {}, "mine.py:Other is the class Other; allowed: a frozen dataclass"),
        ("mine.py:number", {}, "mine.py:number is a int; allowed: a frozen dataclass"),
        ("mine.py:Counter", {}, "unknown name in mine.py 'Counter'; did you mean Counted"),
        ("yours.py:Counted", {}, "cannot be read .No such file"),
    ],
)
def test_own_classes_that_are_refused(name, options, words):
    with pytest.raises(ConfigError, match=words):
        make_own_policy(name, options)


def test_own_names_from_elsewhere_run_nothing():
    """A server or a file that looks a policy up by its name must not run code."""
    with pytest.raises(UnknownName):
        make_policy("mine.py:Counted")
    with pytest.raises(UnknownName):
        load("exact").generate("a", policy="mine.py:Counted")
