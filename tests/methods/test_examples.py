"""Worked examples: every one comes out as computed by hand, and a wrong one is noticed."""

from dataclasses import replace

import pytest

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError, UnknownName
from unmask.methods import METHODS
from unmask.methods.examples import example_names, example_source, load_cases, run_case

OWN = {"fast-dllm-dream", "best-of", "revised", "fixed", "composed"}
"""Without an example: a second loop of a method that has one, and what is this library's own."""
CASES = [case for name in example_names() for case in load_cases(name)]


@each_case("case", CASES, ids=lambda case: f"{case.method}: {case.title}")
def test_worked_example(case):
    result = run_case(case)
    assert result.as_expected, result.found


def test_every_published_rule_has_one():
    assert set(example_names()) == set(METHODS) - OWN
    for name in example_names():
        assert METHODS[name].citation in example_source(name)
        assert ".md" not in example_source(name), "a file that nobody has"


@each_case("name", example_names())
def test_another_outcome_is_noticed(name):
    case = load_cases(name)[0]
    wrong = {what: _other(value) for what, value in case.expected.items()}
    assert not run_case(replace(case, expected=wrong)).as_expected


def _other(value):
    if isinstance(value, list):
        return [_other(value[0]), *value[1:]] if value else [99]
    return 99 if value is None else value + 1


def test_an_unknown_one_is_refused():
    with pytest.raises(UnknownName, match="unknown method with a worked example 'klas'; did you mean klass"):
        load_cases("klas")


def test_a_method_without_an_example_is_no_misspelt_one():
    with pytest.raises(ConfigError, match=r"fast-dllm-dream has no worked example; allowed: .*klass"):
        load_cases("fast-dllm-dream")
