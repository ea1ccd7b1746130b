"""Requests of a page: registered names, settings that the page offers, bounded sizes."""

import pytest

from tests.helpers.cases import each_case
from tests.helpers.own_policies import GOOD
from unmask.api.options import FUNCTION_OPTIONS
from unmask.base.errors import ConfigError, UnknownName
from unmask.methods import METHODS
from unmask.viewer.page_requests import LONGEST_PROMPT, BranchRequest, RunOptions, RunRequest, parse_body

RUN = {"model": "exact", "prompt": "ab"}
BRANCH = {"run": "x", "step": 0}


@pytest.mark.parametrize("name", ["os:system", "mine.py:SureOrOne", "unmask.methods.llada:LLaDA", "selective", "", 3])
def test_code_and_files_cannot_be_named(name, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("import pathlib; pathlib.Path('hurt').touch()\n" + GOOD)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        RunRequest(**RUN, policy=name)
    with pytest.raises(ConfigError):
        BranchRequest(**BRANCH, instead={"policy": name})
    assert not (tmp_path / "hurt").exists()


@each_case("name", METHODS)
def test_every_registered_method_can_be_named(name):
    assert RunRequest(**RUN, policy=name).policy == name


@each_case(
    "settings",
    [
        {"head": "auto"},
        {"base.head": "somewhere"},
        {"base": "/etc/passwd"},
        {"threshold": "a/b"},
        {"threshold": ["a"]},
        {"threshold": {"a": 1}},
        {"threshold": 10**9},
        {"threshold": "a" * 100},
        [],
    ],
)
def test_settings_are_those_of_the_method_and_small(settings):
    with pytest.raises(ConfigError, match="setting"):
        RunRequest(**RUN, policy="klass", settings=settings)


@each_case("name", ["gate", "planner", "record", "on_step", "policy", "samples", "force_gate", "unknown"])
def test_options_that_name_files_or_functions_are_unknown(name):
    with pytest.raises(UnknownName):
        RunRequest(**RUN, options={name: 1})


def test_options_of_a_page_are_options_of_generate():
    assert set(RunOptions.model_fields) <= set(FUNCTION_OPTIONS["generate"])


@each_case(
    "change",
    [
        {"options": {"steps": 10**7}},
        {"options": {"max_new_tokens": 0}},
        {"options": {"steps": 1.5}},
        {"options": {"steps": True}},
        {"prompt": ""},
        {"prompt": "x" * (LONGEST_PROMPT + 1)},
        {"prompt": 3},
        {"prompt": None},
        {"task": {"task": "a", "split": "b", "id": "c"}},
    ],
)
def test_requests_have_one_prompt_and_bounded_sizes(change):
    with pytest.raises(ConfigError, match=r"allowed: .+; "):
        RunRequest(**{**RUN, **change})


def test_half_a_character_is_replaced():
    assert RunRequest(model="exact", prompt="a\ud800").prompt == "a\ufffd"


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
def test_a_change_is_one_thing(instead):
    with pytest.raises(ConfigError):
        BranchRequest(**BRANCH, instead=instead)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff", b"[" * 10**5])
def test_a_body_is_a_json_object(content):
    with pytest.raises(ConfigError, match="request"):
        parse_body(content)
