"""A policy of a user's own by its name: its settings, and what is refused."""

import sys

import pytest

from tests.helpers.own_policies import GOOD
from unmask.api.load import load
from unmask.base.errors import ConfigError, UnknownName
from unmask.methods import describe_policy, make_own_policy, make_policy
from unmask.methods.check import check_policy


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(GOOD, encoding="utf-8")
    return tmp_path / "mine.py"


def test_it_decodes_with_its_settings():
    policy = make_own_policy("mine.py:Counted", {"count": 3, "order": "left", "shares": [0.5]})
    check_policy(policy)
    assert load("exact").generate("a", policy=policy).forwards == 3


def test_its_settings_are_recorded_with_its_code(mine):
    shown = describe_policy(make_own_policy("mine.py:Counted", {}))
    assert {key: shown[key] for key in ("name", "count")} == {"name": "counted", "count": 2}
    assert shown["class"].startswith("Counted, code ")
    mine.write_text(GOOD.replace("count: int = 2", "count: int = 2  # two"), encoding="utf-8")
    other = describe_policy(make_own_policy("mine.py:Counted", {}))
    assert other["count"] == 2
    assert other["class"] != shown["class"]
    assert "class" not in describe_policy(make_policy("wino"))


def test_a_setting_without_a_default():
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
def test_refusals(name, options, words):
    with pytest.raises(ConfigError, match=words):
        make_own_policy(name, options)


def test_names_from_elsewhere_run_nothing():
    """A server or a file that looks a policy up by its name must not run code."""
    with pytest.raises(UnknownName):
        make_policy("mine.py:Counted")
    with pytest.raises(UnknownName):
        load("exact").generate("a", policy="mine.py:Counted")
