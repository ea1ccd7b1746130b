"""Worked examples: every one comes out as computed by hand, and a wrong one is noticed."""

from dataclasses import replace

import pytest

from tests.helpers.cases import each_case
from unmask.base.errors import ConfigError, UnknownName
from unmask.methods import METHODS
from unmask.methods.examples import example_names, example_source, load_cases, run_case

OURS = {"fast-dllm-dream", "best-of", "revised", "fixed", "composed"}
"""Without an example: a second loop of a method that has one, and this library's own."""


@each_case(
    "case", [case for name in example_names() for case in load_cases(name)], ids=lambda c: f"{c.method}: {c.title}"
)
def test_worked_example(case):
    result = run_case(case)
    assert result.as_expected, result.found
    wrong = {name: _other(value) for name, value in case.expected.items()}
    assert not run_case(replace(case, expected=wrong)).as_expected


def _other(value):
    if isinstance(value, list):
        return [_other(value[0]), *value[1:]] if value else [99]
    return 99 if value is None else value + 1


def test_every_published_rule_has_a_worked_example():
    assert set(example_names()) == set(METHODS) - OURS
    assert all(METHODS[name].citation in example_source(name) for name in example_names())


def test_methods_without_an_example_are_refused():
    with pytest.raises(UnknownName, match="unknown method with a worked example 'klas'; did you mean klass"):
        load_cases("klas")
    with pytest.raises(ConfigError, match=r"fast-dllm-dream has no worked example; allowed: .*klass"):
        load_cases("fast-dllm-dream")
