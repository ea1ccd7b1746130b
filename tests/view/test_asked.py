"""What a page may ask for: names that are registered, plain settings, bounded sizes."""

import pytest

from tests.helpers.cases import each_case
from tests.helpers.own_policies import GOOD
from unmask.base.errors import ConfigError, UnknownName
from unmask.methods import METHODS
from unmask.viewer.asked import LONGEST_PROMPT, asked_branch, asked_run, body

RUN = {"model": "exact", "prompt": "ab"}
BRANCH = {"run": "x", "step": 0}


@pytest.mark.parametrize("name", ["os:system", "mine.py:SureOrOne", "unmask.methods.llada:LLaDA", "selective", "", 3])
def test_code_is_never_named(name, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("import pathlib; pathlib.Path('hurt').touch()\n" + GOOD)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        asked_run({**RUN, "policy": name})
    with pytest.raises(ConfigError):
        asked_branch({**BRANCH, "instead": {"policy": name}})
    assert not (tmp_path / "hurt").exists()


@each_case("name", METHODS)
def test_every_registered_method_can_be_named(name):
    assert asked_run({**RUN, "policy": name}).policy == name


@each_case(
    "settings",
    [
        {"head": "auto"},
        {"base.head": "somewhere"},
        {"base": "/etc/passwd"},
        {"x": "a/b"},
        {"x": ["a"]},
        {"x": {"a": 1}},
        {"n": 10**9},
        {"x": "a" * 100},
        [],
    ],
)
def test_a_setting_names_no_file_and_is_small(settings):
    with pytest.raises(ConfigError, match="setting"):
        asked_run({**RUN, "settings": settings})


@each_case("name", ["gate", "planner", "record", "on_step", "policy", "samples", "force_gate", "unknown"])
def test_an_option_that_names_a_file_or_a_function_is_unknown(name):
    with pytest.raises(UnknownName):
        asked_run({**RUN, "options": {name: 1}})


@pytest.mark.parametrize("options", [{"steps": 10**7}, {"max_new_tokens": 0}, {"steps": 1.5}, {"steps": True}])
def test_counts_are_bounded(options):
    with pytest.raises(ConfigError, match="1 to 4096"):
        asked_run({**RUN, "options": options})


@pytest.mark.parametrize("prompt", ["", "x" * (LONGEST_PROMPT + 1), 3, None, ["a"]])
def test_a_prompt_is_a_text_of_bounded_length(prompt):
    with pytest.raises(ConfigError, match="prompt"):
        asked_run({"model": "exact", "prompt": prompt})


def test_half_a_character_does_not_get_in():
    assert asked_run({"model": "exact", "prompt": "a\ud800"}).prompt == "a\ufffd"


@each_case(
    "instead",
    [
        {},
        {"axis": "score", "policy": "llada"},
        {"axis": "height", "candidate": "x"},
        {"axis": "score"},
        {"position": -1, "text": "a"},
        {"position": 3},
        {"position": 3, "token": "a"},
        {"position": True, "token": 1},
        3,
    ],
)
def test_a_deviation_is_one_thing(instead):
    with pytest.raises(ConfigError):
        asked_branch({**BRANCH, "instead": instead})


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff", b"[" * 10**5])
def test_a_body_is_a_json_object(content):
    with pytest.raises(ConfigError, match="request"):
        body(content)
