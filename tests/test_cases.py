"""`each_case` runs every case and names those that fail."""

import os

import pytest

from tests.helpers.cases import each_case


def test_all_cases_run_and_the_failed_ones_are_named():
    seen = []

    @each_case("number", [1, 2, 3, 4])
    def check(number):
        seen.append(number)
        assert number % 2, "even"

    with pytest.raises(ExceptionGroup, match=r"2 of 4 cases failed: 2; 4") as caught:
        check()
    assert seen == [1, 2, 3, 4]
    assert [failure.__notes__ for failure in caught.value.exceptions] == [["in case [2]"], ["in case [4]"]]


def test_a_missing_error_is_a_failure_of_its_case():
    @each_case("call", [lambda: None], ids=["silent"])
    def check(call):
        with pytest.raises(KeyError):
            call()

    with pytest.raises(ExceptionGroup, match="1 of 1 cases failed: silent"):
        check()


def test_stacked_decorators_run_every_combination():
    seen = []

    @each_case("a", [1, pytest.param(2, id="two")])
    @each_case(("b", "c"), [(3, 4), (5, 6)], ids=str)
    def check(a, b, c):
        seen.append((a, b, c))
        assert a != 2

    with pytest.raises(ExceptionGroup, match="2 of 4 cases failed: 3-4-two; 5-6-two"):
        check()
    assert sorted(seen) == [(1, 3, 4), (1, 5, 6), (2, 3, 4), (2, 5, 6)]


@pytest.fixture
def base():
    return 10


class TestInAClass:
    @pytest.mark.parametrize("outer", [1, 2])
    @each_case("inner", [3, 4])
    def test_fixtures_and_parametrize_stand_beside_it(self, base, outer, inner):
        assert base + outer + inner in {14, 15, 16}


def test_every_case_has_a_folder_and_patches_of_its_own(tmp_path, monkeypatch):
    @each_case("n", [1, 1])
    def check(tmp_path, monkeypatch, n):
        assert not list(tmp_path.iterdir())
        (tmp_path / "file").touch()
        assert "UNMASK_CASE" not in os.environ
        monkeypatch.setenv("UNMASK_CASE", "1")

    check(tmp_path=tmp_path, monkeypatch=monkeypatch)
    assert "UNMASK_CASE" not in os.environ


def test_a_skipped_case_is_reported_after_the_others_ran():
    seen = []

    @each_case("n", [1, 2])
    def check(n):
        if n == 1:
            pytest.skip("no data")
        seen.append(n)

    with pytest.raises(pytest.skip.Exception, match=r"1 of 2 cases: \[1\] no data"):
        check()
    assert seen == [2]


@pytest.mark.parametrize(
    ("names", "values", "words"),
    [
        ("x", [], "no cases"),
        ("y", [1], "no parameter y"),
        (("x", "z"), [(1,)], "1 values for 2 names"),
        ("x", [pytest.param(1, marks=pytest.mark.slow)], "marks"),
    ],
)
def test_mistakes_are_refused_when_the_test_is_collected(names, values, words):
    def check(x):
        pass

    with pytest.raises(ValueError, match=words):
        each_case(names, values)(check)
