"""Many small cases in one test: all of them run, and the failure names each that failed.

`pytest.mark.parametrize` makes a test of every case, and collecting one costs more than most cases take. `each_case`
takes the same arguments and stands in the same place:

    @each_case(("text", "number"), [("1", 1), ("1,000", 1000)])
    def test_number(text, number):
        assert parse(text) == number

What remains of the test's parameters are fixtures. Its cases share them, except that each has a `tmp_path` and a
`monkeypatch` of its own. A test that changes another fixture keeps `parametrize`.
"""

import functools
import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest


@dataclass(frozen=True)
class Case:
    """Arguments of one call of a test, and the id under which a failure names it."""

    name: str
    arguments: dict[str, Any]
    number: int


def each_case(
    names: str | Sequence[str], values: Iterable[Any], ids: Iterable[str | None] | Callable[[Any], Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with every case in turn and report all failures together; stacked, with every combination."""
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    own_ids = ids if ids is None or callable(ids) else list(ids)
    cases = distinct([case_of(arguments, value, at, own_ids) for at, value in enumerate(values)])
    if not cases:
        raise ValueError(f"no cases for {', '.join(arguments)}: a test without cases would always pass")

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        body = getattr(test, "case_body", test)
        layers = [cases, *getattr(test, "case_layers", [])]

        @functools.wraps(test)
        def run_cases(*args: Any, **fixtures: Any) -> None:
            def call(case: Case) -> None:
                with separate(fixtures, case.number) as own:
                    body(*args, **own, **case.arguments)

            run_all(combinations(layers), call)

        # What pytest reads to find the fixtures: the parameters that no case gives.
        signature = inspect.signature(test)
        unknown = set(arguments) - set(signature.parameters)
        if unknown:
            raise ValueError(f"{test.__name__} has no parameter {', '.join(sorted(unknown))}")
        kept = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        run_cases.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        run_cases.case_body, run_cases.case_layers = body, layers  # type: ignore[attr-defined]
        return run_cases

    return decorate


def run_all(cases: Iterable[Case], call: Callable[[Case], None]) -> None:
    """Call with every case; raise all failures as one group whose message names the cases."""
    failures: list[Exception] = []
    failed: list[str] = []
    skipped: list[str] = []
    count = 0
    for case in cases:
        count += 1
        try:
            call(case)
        except pytest.skip.Exception as reason:
            skipped.append(f"[{case.name}] {reason}")
        except pytest.fail.Exception as failure:
            # `pytest.fail` and `pytest.raises` raise no `Exception`, and a group of exceptions takes nothing else.
            failed.append(case.name)
            failures.append(with_case(AssertionError(str(failure)).with_traceback(failure.__traceback__), case))
        except Exception as failure:
            failed.append(case.name)
            failures.append(with_case(failure, case))
    if failures:
        raise ExceptionGroup(f"{len(failed)} of {count} cases failed: {'; '.join(failed)}", failures)
    if skipped:
        # Some reference data is missing: what ran has passed, but the report should not call the test complete.
        pytest.skip(f"{len(skipped)} of {count} cases: {'; '.join(dict.fromkeys(skipped))}")


def with_case(failure: Exception, case: Case) -> Exception:
    """Add the case to what the traceback of a failure ends with."""
    failure.add_note(f"in case [{case.name}]")
    return failure


def combinations(layers: Sequence[Sequence[Case]]) -> Iterator[Case]:
    """Every combination of the cases of stacked decorators, with ids as pytest writes them."""
    for number, chosen in enumerate(itertools.product(*reversed(layers))):
        arguments = {name: value for case in chosen for name, value in case.arguments.items()}
        yield Case("-".join(case.name for case in chosen), arguments, number)


@contextmanager
def separate(fixtures: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """The fixtures of one case: an empty folder and a `monkeypatch` of its own where the test has them."""
    with pytest.MonkeyPatch.context() as patch:
        own = dict(fixtures)
        if "tmp_path" in own:
            own["tmp_path"] = own["tmp_path"] / f"case{number}"
            own["tmp_path"].mkdir()
        if "monkeypatch" in own:
            own["monkeypatch"] = patch
        yield own


def distinct(cases: list[Case]) -> list[Case]:
    """The cases, with their number added to ids that several of them have."""
    taken = Counter(case.name for case in cases)
    return [replace(case, name=f"{case.name}{case.number}") if taken[case.name] > 1 else case for case in cases]


def case_of(names: Sequence[str], value: Any, at: int, ids: Sequence[str | None] | Callable[[Any], Any] | None) -> Case:
    """Arguments and id of one entry, which may be a `pytest.param` with an id but without marks."""
    if hasattr(value, "marks"):
        if value.marks:
            raise ValueError(f"case {at} of {', '.join(names)} has marks; a marked case needs pytest.mark.parametrize")
        given, own_id = value.values, value.id
    else:
        given, own_id = ((value,) if len(names) == 1 else tuple(value)), None
    if len(given) != len(names):
        raise ValueError(f"case {at} has {len(given)} values for {len(names)} names: {', '.join(names)}")
    if own_id is None and ids is not None and not callable(ids):
        own_id = ids[at]
    if own_id is None:
        own_id = "-".join(id_of(name, one, at, ids) for name, one in zip(names, given, strict=True))
    return Case(str(own_id), dict(zip(names, given, strict=True)), at)


def id_of(name: str, value: Any, at: int, ids: Any) -> str:
    """What `ids` makes of a value, else a plain value itself, the name of a function, or `name` and a number."""
    chosen = ids(value) if callable(ids) else None
    value = value if chosen is None else chosen
    if isinstance(value, str | int | float | bool | complex | None):
        text = str(value).encode("unicode_escape").decode("ascii")
        return text if len(text) <= 60 else f"{text[:57]}..."
    return str(getattr(value, "__name__", f"{name}{at}"))
