"""Completions judged rightly, one at a time and many."""

import gzip
import json
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from tests.helpers.sandboxed import (
    PROBLEM,
    RIGHT,
    SHORT,
    WRONG,
    below,
    code,
    exceptions,
    judged,
    needs_seccomp,
    no_children,
    run,
    wait_until,
)
from unmask.base.errors import ConfigError
from unmask.tasks.sandbox import Limits, SandboxVerdict, check_completion, check_many, probe, run_program


def test_right_and_wrong(mode):
    assert check_completion(PROBLEM, RIGHT, mode=mode).status == "pass"
    verdict = check_completion(PROBLEM, WRONG, mode=mode)
    assert verdict.status == "fail"
    assert "assert candidate(2) == 4" in verdict.detail
    assert verdict.mode == probe.find_walls(mode).text
    assert verdict.wall_s > 0


@pytest.mark.parametrize(
    ("problem", "completion", "words"),
    [(None, RIGHT, "problem is None; allowed: a mapping of"), (PROBLEM, None, "completion is None; allowed: a text")],
)
def test_what_is_no_problem_or_no_text_is_refused(problem, completion, words):
    with pytest.raises(ConfigError, match=words):
        check_completion(problem, completion)
    with pytest.raises(ConfigError, match=words):
        check_many([(PROBLEM, RIGHT), (problem, completion)])


def test_how_a_completion_goes_wrong():
    cases = [
        ("    return 1 / 0\n", "error", "ZeroDivisionError: division by zero"),
        ("    return y\n", "error", "NameError"),
        ("    return (\n", "error", "SyntaxError"),
        ("    pass\n\nraise ValueError('at load')\n", "error", "does not load: ValueError: at load"),
        ("    pass\n\ndel double\n", "error", "no function 'double'"),
        ("    pass\n\ndouble = 3\n", "error", "no function 'double'"),
        ("    assert False, 'mine'\n", "error", "raised AssertionError: mine"),
        ("    class Own(KeyError): pass\n    raise Own('k')\n", "error", "Own: 'k'"),
        ("    raise SystemExit(0)\n", "error", "SystemExit"),
        ("    raise KeyboardInterrupt\n", "error", "KeyboardInterrupt"),
        ("    \x00\n", "error", "does not load"),
        ("    return '\ud800'\n", "error", "does not load"),
        ("    return [" * 5000, "error", "does not load"),
        ("    return None\n", "fail", "line 2"),
        ("", "error", "IndentationError"),
    ]
    verdicts = judged(body for body, _, _ in cases)
    for (body, status, detail), verdict in zip(cases, verdicts, strict=True):
        assert (verdict.status, detail in verdict.detail) == (status, True), (body[:80], verdict)


HONEST = {
    "prints": "print('noise' * 1000)",
    "imports": "import bisect, collections, heapq, math, re, hashlib, decimal, statistics",
    "more functions": "def other(x): return x\nif __name__ == '__main__': exit(1)",
    "threads": "from concurrent.futures import ThreadPoolExecutor as Pool\nPool(2).submit(int).result()",
    "asyncio": "import asyncio\nasync def f(): return 1\nasyncio.run(f())",
    "own files": "import tempfile\ntempfile.TemporaryFile().write(b'1')\nopen('x', 'w').write('1')\nopen('x').read()",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int",
    "devices": "import os\nopen('/dev/null', 'w').write('x')\nos.urandom(8)\nopen('/dev/urandom', 'rb').read(1)",
    "fraction": "from fractions import Fraction\ndef double(x): return Fraction(2) * x",
    "own number": "class Number(int): pass\ndef double(x): return Number(2 * x)",
    "deep": "import sys\nsys.setrecursionlimit(20000)\ndef f(n): return n and f(n - 1)\nf(10000)",
    "bytes": "import os\nos.write(1, b'\\xff' * 100000)\nos.write(2, b'\\x00' * 100000)",
    "clock": "import datetime, time, zoneinfo\ndatetime.datetime.now()\nzoneinfo.ZoneInfo('UTC')",
}


def test_unusual_but_honest(mode):
    needs_seccomp(mode, "without it neither threads nor asyncio work")
    verdicts = judged([f"{RIGHT}\n{text}\n" for text in HONEST.values()], mode)
    assert not exceptions(HONEST, verdicts, "pass")


def test_values_cross_with_their_types():
    cases = [
        ("[1, 2]", "candidate() == [1, 2]", "pass"),
        ("(1, 2)", "candidate() == [1, 2]", "fail"),
        ("(1, 2)", "candidate() == (1, 2)", "pass"),
        ("iter([1, 2])", "candidate() == [1, 2]", "fail"),
        ("map(int, '12')", "list(candidate()) == [1, 2]", "pass"),
        ("{'a': 1}.keys()", "candidate() == {'a'}", "pass"),
        ("__import__('collections').Counter('aab')", "candidate() == {'a': 2, 'b': 1}", "pass"),
        ("{1: [2.5, None], (1, 2): {3}}", "candidate() == {1: [2.5, None], (1, 2): {3}}", "pass"),
        ("float('nan')", "candidate() != candidate()", "pass"),
        ("True", "candidate() is True", "pass"),
        ("10 ** 5000", "candidate() == 10 ** 5000", "pass"),
        ("object()", "candidate() == 1", "fail"),
        ("object()", "abs(candidate() - 1) < 1", "fail"),
        ("(i for i in __import__('itertools').count())", "candidate() == 1", "fail"),
        ("'\\ud800'", "candidate() == '\\ud800'", "pass"),
    ]
    problem = {"prompt": "def f():\n", "entry_point": "f"}
    items = [
        ({**problem, "test": f"def check(candidate):\n    assert {test}\n"}, f"    return {result}\n")
        for result, test, _ in cases
    ]
    for case, verdict in zip(cases, check_many(items, limits=SHORT), strict=True):
        assert verdict.status == case[2], (case, verdict)


def test_tests_may_use_helpers_keywords_exceptions_and_the_name_itself():
    problem = {
        "prompt": 'def helper(x):\n    return x + 1\n\ndef f(x, *, y=0):\n    """Text."""\n',
        "entry_point": "f",
        "test": code("""
            def check(candidate):
                assert candidate(1, y=2) == f(1, y=2) == helper(2)
                try:
                    candidate(-1)
                except ValueError as error:
                    assert str(error) == "negative"
                else:
                    assert False
        """),
    }
    body = "    if x < 0:\n        raise ValueError('negative')\n    return helper(x) + y - 1\n"
    assert check_completion(problem, body).status == "pass"
    # The tests keep the helper of the prompt: redefining it changes nothing for them.
    forged = body + "\ndef helper(x):\n    return 0\n"
    assert check_completion(problem, forged).status == "fail"


def test_completion_keeps_its_state_between_calls():
    problem = {
        "prompt": "seen = []\n\ndef f(x):\n",
        "entry_point": "f",
        "test": "def check(candidate):\n    assert candidate(1) == 1\n    assert candidate(5) == 2\n",
    }
    assert check_completion(problem, "    seen.append(x)\n    return len(seen)\n").status == "pass"


def test_order_of_a_set_is_the_same_every_time():
    program = "print(list({'a', 'b', 'c', 'd', 'e', 'f'}), hash('x'))"
    assert len({run_program(program).stdout for _ in range(3)}) == 1


def test_program_output_exit_and_input(mode):
    result = run("import sys\nprint('out ä')\nprint('err', file=sys.stderr)\nsys.exit(7)", mode)
    assert (result.status, result.exit_code, result.stdout, result.stderr) == ("exited", 7, "out ä\n", "err\n")
    assert run("import sys\nprint(repr(sys.stdin.read()))\ninput()", mode).stdout == "''\n"
    assert "EOFError" in run("input()", mode).stderr
    result = run("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", mode)
    assert (result.status, result.exit_code) == ("killed", None)


def test_many_keep_their_order_and_report_progress():
    bodies = [f"    return {n}\n" for n in range(6)] + [RIGHT]
    done: list[int] = []
    verdicts = check_many([(PROBLEM, body) for body in bodies], 3, lambda index, verdict: done.append(index))
    assert [verdict.status for verdict in verdicts] == ["fail"] * 6 + ["pass"]
    assert sorted(done) == list(range(7))
    assert check_many([]) == []


@pytest.mark.parametrize("mode", [None, "weak"])
def test_interrupt_ends_everything(mode):
    """The fixture sees that nothing runs on."""
    items = [(PROBLEM, RIGHT), *[(PROBLEM, "    while True: pass\n")] * 5]

    def interrupt(index: int, verdict: SandboxVerdict) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_many(items, 2, interrupt, Limits(wall_s=60, cpu_s=60), mode=mode)


def test_nothing_survives_the_death_of_the_evaluator(mode):
    """Killed the hard way, in the middle of a run: the fixture looks for orphans and for the folder."""
    program = code(f"""
        import sys, tempfile
        sys.path[:] = {sys.path!r}
        tempfile.tempdir = {tempfile.tempdir!r}
        from unmask.tasks.sandbox import Limits, check_completion
        check_completion({PROBLEM!r}, "    return 2 * x\\n", mode={mode!r})
        print("running", flush=True)
        check_completion({PROBLEM!r}, "    while True: pass\\n", Limits(wall_s=100, cpu_s=100), mode={mode!r})
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        # Supervisor, checker, and the completion.
        started = wait_until(lambda: below(process.pid, 3), 5)
        time.sleep(0.1)
        process.kill()
    assert started
    assert process.returncode == -signal.SIGKILL
    assert wait_until(no_children, 10)


@pytest.fixture(scope="module")
def problems(shared) -> list[dict[str, str]]:
    path = shared / "data" / "humaneval" / "HumanEval.jsonl.gz"
    if not path.exists():
        pytest.skip(f"needs {path.name} in shared/data/humaneval")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_all_canonical_solutions_pass(problems):
    verdicts = check_many([(problem, problem["canonical_solution"]) for problem in problems])
    assert len(verdicts) == 164
    wrong = {p["task_id"]: v for p, v in zip(problems, verdicts, strict=True) if v.status != "pass"}
    assert not wrong


def test_canonical_solutions_pass_in_weak_mode(problems):
    # Among them those whose tests use helpers of the prompt, or the function by its name.
    some = [problems[n] for n in (32, 33, 38, 50, 77, 148, *range(0, 164, 12))]
    verdicts = check_many([(problem, problem["canonical_solution"]) for problem in some], mode="weak")
    assert {verdict.status for verdict in verdicts} == {"pass"}


def test_what_does_nothing_does_not_pass(problems):
    some = problems[::10]
    verdicts = check_many([(problem, "    return None\n") for problem in some])
    assert not exceptions([problem["task_id"] for problem in some], verdicts, "fail error")
