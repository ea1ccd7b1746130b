"""The sandbox: honest completions are judged rightly, hostile ones are contained and never pass.

Each test leaves no process behind: `nothing_left` sees to it. To that end this process adopts its orphaned descendants,
so that one which got away would turn up here.
"""

import contextlib
import ctypes
import errno
import gzip
import itertools
import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks import sandbox as attacks
from unmask.base.errors import ConfigError, UnknownName
from unmask.tasks import sandbox
from unmask.tasks.sandbox import (
    Limits,
    SandboxResult,
    check_completion,
    check_completions,
    choose_isolation,
    confine,
    values,
)

PROBLEM = attacks.PROBLEM
RIGHT, WRONG = "    return 2 * x\n", "    return 0\n"
SHORT = Limits(wall_s=10, cpu_s=1, memory_mb=256)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    if not attacks.isolations():
        pytest.skip("this machine has no isolation")
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1, 0, 0, 0)
    # Earlier tests of this process may have started helpers that stay, such as the resource tracker of multiprocessing.
    before = running_children()
    yield
    try:
        # An orphan may need a moment to be adopted, and a killed one to end.
        assert wait_until(lambda: running_children() <= before, 5), "a process is left"
    finally:
        prctl(36, 0, 0, 0, 0)


def running_children() -> set[int]:
    """Return the process ids of this process's children that have not ended."""
    running = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name of the program, in parentheses, may hold anything.
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z":
            running.add(int(file.parent.name))
    return running


def wait_until(condition, seconds: float) -> bool:
    stop = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > stop:
            return False
        time.sleep(0.01)
    return True


def judged(bodies: Iterable[str], limits: Limits = SHORT, workers: int = 3) -> list[SandboxResult]:
    """Results of completions of `PROBLEM`."""
    return check_completions([(PROBLEM, body) for body in bodies], workers, limits=limits)


def others(names: Iterable[str], results: Iterable[SandboxResult], allowed: str) -> dict[str, SandboxResult]:
    """Those of the results whose status is not one of the allowed."""
    pairs = zip(names, results, strict=True)
    return {name: result for name, result in pairs if result.status not in allowed.split()}


# Honest completions


def test_right_completions_pass_and_wrong_ones_fail():
    assert check_completion(PROBLEM, RIGHT).status == "pass"
    result = check_completion(PROBLEM, WRONG)
    assert (result.status, result.isolation) == ("fail", choose_isolation())
    assert "line 2 of the tests: assert candidate(2) == 4" in result.detail
    assert check_completion(PROBLEM, RIGHT, isolation="off").status == "pass"


def test_details_say_how_a_completion_went_wrong():
    cases = [
        ("    return 1 / 0\n", "error", "the completion raised ZeroDivisionError: division by zero"),
        ("    return y\n", "error", "NameError"),
        ("    return (\n", "error", "does not load: SyntaxError"),
        ("    pass\n\nraise ValueError('at load')\n", "error", "does not load: ValueError: at load"),
        ("    pass\n\nraise SystemExit(0)\n", "error", "does not load: SystemExit"),
        ("    pass\n\ndel double\n", "error", "no function 'double'"),
        ("    pass\n\ndouble = 3\n", "error", "no function 'double'"),
        ("    assert False, 'mine'\n", "error", "raised AssertionError: mine"),
        ("    class Own(KeyError): pass\n    raise Own('k')\n", "error", "Own: 'k'"),
        ("    raise KeyboardInterrupt\n", "error", "KeyboardInterrupt"),
        ("    \x00\n", "error", "does not load"),
        ("    return '\ud800'\n", "error", "does not load"),
        ("    return [" * 5000, "error", "does not load"),
        ("    return None\n", "fail", "line 2"),
        ("", "error", "IndentationError"),
    ]
    for (body, status, detail), result in zip(cases, judged(body for body, _, _ in cases), strict=True):
        assert (result.status, detail in result.detail) == (status, True), (body[:80], result)


@pytest.mark.parametrize(
    ("answer", "test", "status"),
    [
        ("[1, 2]", "candidate() == [1, 2]", "pass"),
        ("(1, 2)", "candidate() == [1, 2]", "fail"),
        ("(1, 2)", "candidate() == (1, 2)", "pass"),
        ("map(int, '12')", "list(candidate()) == [1, 2]", "pass"),
        ("iter([1, 2])", "candidate() == [1, 2]", "fail"),
        ("range(3)", "tuple(candidate()) == (0, 1, 2)", "pass"),
        ("__import__('collections').Counter('aab')", "candidate() == {'a': 2, 'b': 1}", "pass"),
        ("{1: [2.5, None], (1, 2): {3}}", "candidate() == {1: [2.5, None], (1, 2): {3}}", "pass"),
        ("float('nan')", "candidate() != candidate()", "pass"),
        ("True", "candidate() is True", "pass"),
        ("10 ** 5000", "candidate() == 10 ** 5000", "pass"),
        ("'\\ud800'", "candidate() == '\\ud800'", "pass"),
        ("object()", "candidate() == 1", "fail"),
        ("object()", "abs(candidate() - 1) < 1", "fail"),
        ("__import__('itertools').count()", "list(candidate())", "error"),
    ],
)
def test_values_cross_with_their_types(answer, test, status):
    problem = {
        "prompt": "def f():\n",
        "entry_point": "f",
        "test": f"def check(candidate):\n    assert {test}\n",
    }
    result = check_completion(problem, f"    return {answer}\n", SHORT)
    assert result.status == status, result


EXPECTS = {
    "try": """
    try:
        candidate(-1)
    except ValueError as error:
        assert error.args == ("no",)
    else:
        assert False
""",
    "unittest, as a block": """
    import unittest
    with unittest.TestCase().assertRaises(ValueError) as context:
        candidate(-1)
    assert str(context.exception) == "no"
""",
    "unittest, as a call": """
    import unittest
    unittest.TestCase().assertRaises(ValueError, candidate, -1)
    unittest.TestCase().assertRaisesRegex(ValueError, "no", candidate, -1)
""",
}


@pytest.mark.parametrize("way", EXPECTS)
def test_tests_may_expect_exceptions(way):
    problem = {**PROBLEM, "test": f"def check(candidate):\n    assert candidate(1) == 2\n{EXPECTS[way]}\n"}
    own = "    class Own(ValueError): pass\n    if x < 0: raise Own('no')\n    return 2 * x\n"
    for body in ("    if x < 0: raise ValueError('no')\n    return 2 * x\n", own):
        assert check_completion(problem, body).status == "pass", check_completion(problem, body)
    other = check_completion(problem, "    if x < 0: raise KeyError('no')\n    return 2 * x\n")
    assert (other.status, "raised KeyError" in other.detail) == ("error", True)
    assert check_completion(problem, RIGHT).status == "fail"


def test_tests_keep_the_helpers_of_the_prompt_and_completions_their_state():
    problem = {
        "prompt": "seen = []\n\ndef helper(x):\n    return x + 1\n\ndef f(x, *, y=0):\n    '''Text.'''\n",
        "entry_point": "f",
        "test": "def check(candidate):\n    assert candidate(1, y=2) == f(5) - 1 == helper(0)\n",
    }
    body = "    seen.append(x)\n    return len(seen)\n"
    assert check_completion(problem, body).status == "pass"
    assert check_completion(problem, body + "\ndef helper(x):\n    return 9\n").status == "pass"


HONEST = {
    "prints": "print('noise' * 1000)",
    "imports": "import collections, heapq, math, re, hashlib, decimal, statistics, sqlite3, zlib, lzma, ssl, uuid",
    "main": "def other(x): return x\nif __name__ == '__main__': exit(1)",
    "threads": "from concurrent.futures import ThreadPoolExecutor as Pool\nlist(Pool(32).map(int, range(100)))",
    "asyncio": "import asyncio\nasync def f(): return await asyncio.to_thread(int)\nasyncio.run(f())",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int",
    "devices": "import os\nopen('/dev/null', 'w').write('x')\nos.urandom(8)\nopen('/dev/urandom', 'rb').read(1)",
    "own number": "class Number(int): pass\ndef double(x): return Number(2 * x)",
    "deep": "import sys\nsys.setrecursionlimit(20000)\ndef f(n): return n and f(n - 1)\nf(10000)",
    "bytes": "import os\nos.write(1, b'\\xff' * 100000)\nos.write(2, b'\\x00' * 100000)",
    "clock": "import datetime, zoneinfo\ndatetime.datetime.now()\nzoneinfo.ZoneInfo('UTC')",
    "signals to itself": "import os, signal\nsignal.signal(10, lambda *a: None)\nos.kill(os.getpid(), 10)",
    "alarm": "import signal, time\nsignal.signal(14, lambda *a: None)\nsignal.setitimer(0, 0.001)\ntime.sleep(0.01)",
    "own files": "open('x', 'w').write('1')\nopen('x').read()\nimport os\nos.rename('x', 'y')\nos.remove('y')",
    "locks and data bases": "import sqlite3\nwith sqlite3.connect('base') as base: base.execute('create table t (x)')",
    "pipes": "import os, socket\nr, w = os.pipe()\nos.write(w, b'x')\na, b = socket.socketpair()\na.sendall(b'x')",
}
REFUSED = {
    "subprocess": "import subprocess\nsubprocess.run(['true'])",
    "processes": "import multiprocessing\nmultiprocessing.Process(target=int).start()",
    "sockets": "import socket\nsocket.socket()",
    "files": "open('../x', 'w')",
    "folders": "import os\nos.mkdir('x')",
    "another session": "import os\nos.setsid()",
    "packages": "import numpy",
    "packages of the environment": f"import sys\nsys.path += {sys.path!r}\nimport numpy",
    "packages of the interpreter": """
import glob, os, sys
for prefix in {os.path.dirname(os.path.dirname(os.__file__)), "/usr/lib", "/usr/local/lib"}:
    for name in ("site-packages", "dist-packages"):
        sys.path += [os.path.join(prefix, name), *(os.path.join(prefix, p, name) for p in ("python3", "python3.11"))]
sys.path += [os.path.join(os.path.dirname(os.__file__), "site-packages")]
import pip
""",
}


def test_unusual_but_honest_completions_pass():
    assert not others(HONEST, judged(f"{RIGHT}\n{text}\n" for text in HONEST.values()), "pass")


def test_processes_network_packages_and_foreign_files_are_refused():
    results = judged(f"{RIGHT}\n{text}\n" for text in REFUSED.values())
    assert not others(REFUSED, results, "error")
    assert all("does not load" in result.detail for result in results)


# Limits

ENDLESS = {
    "loop": "while True: pass",
    "signals ignored": "import signal\nfor n in signal.valid_signals() - {9, 19}: signal.signal(n, 1)\nwhile 1: pass",
    "sleep": "import time\ntime.sleep(100)",
    "stopped": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "huge number": "10 ** 10 ** 9",
    "threads": "import threading\nfor _ in 'abcd': threading.Thread(target=iter, args=(int,)).start()\nwhile 1: pass",
    "output": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
}
GREEDY = {
    "block": "x = bytearray(1 << 40)",
    "list": "x = []\nwhile True: x.append(' ' * (1 << 20))",
    "mmap": "import mmap\nx = mmap.mmap(-1, 1 << 33)",
    "ulimit": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))",
    "recursion": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()",
    "nesting": "x = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)",
    "many files": "x = [open('/dev/null') for _ in range(1000)]",
    "threads": "import threading\nfor _ in range(10 ** 4): threading.Thread(target=threading.Event().wait).start()",
}


def test_endless_and_greedy_completions_end():
    limits = Limits(wall_s=1, cpu_s=5, memory_mb=128)
    assert not others(ENDLESS, judged((f"{WRONG}\n{text}\n" for text in ENDLESS.values()), limits, 8), "timeout")
    assert not others(GREEDY, judged((f"{WRONG}\n{text}\n" for text in GREEDY.values()), limits, 4), "error timeout")


def test_processor_time_ends_a_completion():
    """Also if the signal that announces the limit is ignored."""
    body = "    import signal\n    signal.signal(signal.SIGXCPU, signal.SIG_IGN)\n    while True: pass\n"
    result = check_completion(PROBLEM, body, Limits(wall_s=30, cpu_s=0.5))
    assert result.status == "timeout"
    assert "0.5 s of processor time" in result.detail


# Attacks


def test_no_attack_escapes():
    assert len(attacks.ATTACKS) == len({attack.name for attack in attacks.ATTACKS}) == 88 + 125
    for isolation in attacks.isolations():
        with ThreadPoolExecutor(3) as pool:
            outcomes = list(pool.map(attacks.run, attacks.ATTACKS, itertools.repeat(isolation)))
        escaped = {a.name: o for a, o in zip(attacks.ATTACKS, outcomes, strict=True) if o.result == "escaped"}
        assert not escaped


@pytest.mark.slow
def test_attacks_succeed_without_isolation():
    """Else they would show nothing."""
    tried = [attack for attack in attacks.ATTACKS if attack.bare and attack.goal != "limits"]
    assert len(tried) > 90
    assert not [attack.name for attack in tried if not attacks.run_bare(attack)]


def test_the_tests_are_nowhere_in_the_memory_of_the_completion():
    """Neither as objects nor as bytes: a completion cannot look up what it should return."""
    problem = {**PROBLEM, "test": "# expected-4711\ndef check(candidate):\n    assert candidate(2) == 4\n"}
    body = """    import gc, sys
    word = "expected" + "-" + str(4700 + 11)
    def holds(thing):
        return type(thing) is str and word in thing and thing is not word
    found = any(holds(v) for o in gc.get_objects() if type(o) is dict for v in o.values())
    frame = sys._getframe()
    while frame:
        found = found or any(holds(v) for v in frame.f_locals.values() if v is not word)
        frame = frame.f_back
    return 0 if found else 2 * x
"""
    assert check_completion(problem, body).status == "pass"


def run_filter(program: bytes, machine: int, number: int, *arguments: int) -> int:
    """What the kernel would do: interpret the filter on one system call."""
    data = struct.pack("=iIQ6Q", number, machine, 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator, position = 0, 0
    while True:
        operation, if_true, if_false, constant = instructions[position]
        position += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, constant)
        elif operation == 0x06:
            return constant
        else:
            test = {0x15: accumulator == constant, 0x35: accumulator >= constant, 0x45: accumulator & constant}
            position += if_true if test[operation] else if_false


@pytest.mark.parametrize(("machine", "audit", "column"), [("x86_64", 0xC000003E, 0), ("aarch64", 0xC00000B7, 1)])
def test_the_filter_refuses_every_listed_call(machine, audit, column):
    allow, refuse, absent, not_for_this = 0x7FFF0000, 0x50001, 0x50000 | errno.ENOSYS, 0x50000 | errno.ENOTTY
    pid, worker = 4321, 4322
    program = confine.filter_program(machine, pid, worker)

    def ask(number: int, *arguments: int) -> int:
        return run_filter(program, audit, number, *arguments)

    assert {ask(n[column]) for n in confine.REFUSED.values() if n[column] is not None} == {refuse}
    assert {ask(number) for number in ((0, 1, 9, 202), (63, 64, 222, 98))[column]} == {allow}
    assert run_filter(program, 0x40000003, 0) == refuse
    assert ask(435) == absent
    clone, kill, tgkill, prlimit = ((56, 62, 234, 302), (220, 129, 131, 261))[column]
    thread = 0x3D0F00
    assert [ask(clone, flags) for flags in (thread, 17, thread | 0x10000000)] == [allow, refuse, refuse]
    for call, target in itertools.product((kill, tgkill), (1, 0, -1 & 0xFFFFFFFF, pid + 2)):
        assert ask(call, target) == refuse
    assert {ask(call, target) for call in (kill, tgkill) for target in (pid, worker)} == {allow}
    assert [ask(prlimit, target) for target in (0, pid, worker, 1)] == [allow, allow, refuse, refuse]
    fcntl, ioctl, prctl, socketpair, sendto = ((72, 16, 157, 53, 44), (25, 29, 167, 199, 206))[column]
    copy, flags, lock = 0, 4, 6
    assert {ask(fcntl, 3, command, 8) for command in (copy, flags, lock, 1030)} == {allow}
    set_owner, set_signal, set_owner_ex, set_lease, notify, hint = 8, 10, 15, 1024, 1026, 1036
    for command in (set_owner, set_signal, set_owner_ex, set_lease, notify, hint, set_owner + (1 << 32)):
        assert ask(fcntl, 3, command, 8) == refuse
    assert {ask(ioctl, 3, command) for command in (0x5401, 0x5421, 0x541B)} == {allow}
    assert {ask(ioctl, 3, c) for c in (0x8901, 0x8902, 0x5452, 0x5412, 0x40086602, 0x40806685)} == {not_for_this}
    outlive, set_dumpable, set_name = 1, 4, 15
    assert [ask(prctl, option) for option in (outlive, set_dumpable, set_name)] == [refuse, refuse, allow]
    stream, datagram, raw, close_on_exec = 1, 2, 3, 0o2000000
    assert {ask(socketpair, 1, kind) for kind in (stream, stream | close_on_exec)} == {allow}
    assert {ask(socketpair, 1, k) for k in (datagram, raw, datagram | close_on_exec)} == {refuse}
    assert ask(socketpair, 30, stream) == refuse
    assert ask(sendto, 3, 5000, 1, 0, 0, 0) == allow
    assert {ask(sendto, 3, 5000, 1, 0, address, 16) for address in (1, 1 << 32, 0x7FFF00000000)} == {refuse}
    if machine == "x86_64":
        assert ask(0x40000000 + 41) == refuse


# Values

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()) | st.binary()
)
PLAIN = st.recursive(
    SCALARS | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.tuples(st.integers()), inner, max_size=4)
        | st.sets(st.integers() | st.text(max_size=3), max_size=4)
        | st.frozensets(st.integers(), max_size=4)
    ),
    max_leaves=20,
)


def shape(value: object) -> object:
    """A value with its types, all the way down."""
    if isinstance(value, dict):
        return dict, [(shape(k), shape(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [shape(item) for item in value]
    return type(value), value


@given(PLAIN)
def test_plain_values_survive_the_pipe(value):
    assert shape(values.loads(values.dumps(value, strict=True))) == shape(value)


KINDS = st.sampled_from(["list", "dict", "set", "range", "complex", "iterator", "opaque", "bytes", "integer", "x"])
NOISE = st.recursive(
    SCALARS.filter(lambda value: not isinstance(value, bytes)),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(KINDS, inner | st.lists(inner, max_size=3)).map(list),
)


@given(st.binary(max_size=60) | NOISE.map(lambda value: json.dumps(value).encode()))
def test_noise_from_the_pipe_is_a_bad_value(data):
    with contextlib.suppress(values.BadValue):
        values.loads(data)


# Trouble of the evaluator, and which isolation is used


def test_broken_problems_are_unavailable():
    problems = [
        {},
        {**PROBLEM, "test": None},
        {**PROBLEM, "test": "def check("},
        {**PROBLEM, "test": "x = 1"},
        {**PROBLEM, "test": "import no_such_module\ndef check(candidate): pass"},
        {**PROBLEM, "test": "def check(candidate):\n    undefined(candidate)"},
        {**PROBLEM, "test": "def check(candidate):\n    candidate(object())"},
        {**PROBLEM, "prompt": "def double(x)"},
    ]
    results = check_completions([(problem, RIGHT) for problem in problems])
    assert not others(map(str, problems), results, "unavailable")
    assert all(result.detail for result in results)


def test_trouble_before_the_completion_starts_is_unavailable(monkeypatch, tmp_path):
    for name, words in ((str(tmp_path / "none"), "No such file"), ("/bin/false", "did not start: exit code")):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "_base_executable", name)
            result = check_completion(PROBLEM, RIGHT)
            assert (result.status, words in result.detail) == ("unavailable", True), result
    with monkeypatch.context() as patch:
        patch.setattr(confine, "readable_paths", lambda: [("/no-such-place", True)])
        result = check_completion(PROBLEM, RIGHT, isolation="landlock")
        assert (result.status, "/no-such-place" in result.detail) == ("unavailable", True), result
    monkeypatch.setattr(sandbox, "SETUP_S", 0.001)
    assert check_completion(PROBLEM, RIGHT).status == "unavailable"


def no_landlock() -> int:
    raise OSError(errno.ENOSYS, "no Landlock here")


def test_nothing_weaker_is_used_unasked(monkeypatch):
    monkeypatch.setattr(confine, "landlock_version", no_landlock)
    monkeypatch.setenv("PATH", "")
    result = check_completion(PROBLEM, RIGHT)
    assert (result.status, result.isolation) == ("unavailable", "none")
    assert "UNMASK_SANDBOX=off" in result.detail
    monkeypatch.setenv("UNMASK_SANDBOX", "off")
    result = check_completion(PROBLEM, RIGHT)
    assert (result.status, result.isolation) == ("pass", "off")


def test_bubblewrap_is_used_where_it_is_installed(monkeypatch, tmp_path):
    """With a stand-in that shuts nothing in: the filter of system calls does its part without it."""
    stand_in = tmp_path / "bwrap"
    stand_in.write_text('#!/bin/sh\nwhile [ "$1" != --chdir ]; do shift; done\nshift 2\nexec "$@"\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr(confine, "landlock_version", no_landlock)
    monkeypatch.setenv("PATH", str(tmp_path))
    right, network = judged([RIGHT, f"{RIGHT}\nimport socket\nsocket.socket()\n"])
    assert (right.status, right.isolation) == ("pass", "bubblewrap"), right
    assert (network.status, "PermissionError" in network.detail) == ("error", True), network


def test_a_misspelt_isolation_is_refused_where_it_is_read(monkeypatch):
    with pytest.raises(UnknownName, match="landlock"):
        check_completion(PROBLEM, RIGHT, isolation="landlok")
    monkeypatch.setenv("UNMASK_SANDBOX", "of")
    with pytest.raises(UnknownName, match="UNMASK_SANDBOX"):
        check_completions([(PROBLEM, RIGHT)])


@pytest.mark.parametrize(
    ("problem", "completion", "words"),
    [(None, RIGHT, "problem is None; allowed: a mapping of"), (PROBLEM, None, "completion is None; allowed: a text")],
)
def test_bad_input_is_refused(problem, completion, words):
    with pytest.raises(ConfigError, match=words):
        check_completions([(PROBLEM, RIGHT), (problem, completion)])
    for wrong in ({"wall_s": 0}, {"cpu_s": float("inf")}, {"memory_mb": 1}, {"memory_mb": 99.5}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Limits(**wrong)
    with pytest.raises(ConfigError, match="workers"):
        check_completions([], workers=0)


# Many at a time


def test_many_keep_their_order_and_report_progress():
    bodies = [f"    return {n}\n" for n in range(6)] + [RIGHT]
    done: list[int] = []
    results = check_completions([(PROBLEM, body) for body in bodies], 3, lambda index, result: done.append(index))
    assert [result.status for result in results] == ["fail"] * 6 + ["pass"]
    assert sorted(done) == list(range(7))
    assert check_completions([]) == []


def test_interrupt_ends_everything():
    """The fixture sees that nothing runs on."""
    items = [(PROBLEM, RIGHT), *[(PROBLEM, "    while True: pass\n")] * 5]

    def interrupt(index: int, result: SandboxResult) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_completions(items, 2, interrupt, Limits(wall_s=60, cpu_s=60))


def test_nothing_survives_the_death_of_the_evaluator():
    """Killed the hard way, in the middle of a run: the fixture looks for orphans."""
    program = textwrap.dedent(f"""
        import sys
        sys.path[:] = {sys.path!r}
        from unmask.tasks.sandbox import Limits, check_completion
        check_completion({PROBLEM!r}, "    return 2 * x\\n")
        print("running", flush=True)
        body = "    import ctypes\\n    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\\n    while True: pass\\n"
        check_completion({PROBLEM!r}, body, Limits(wall_s=100, cpu_s=100))
    """)
    before = running_children()
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"running\n"
        time.sleep(0.5)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert wait_until(lambda: running_children() <= before, 10)


# HumanEval


@pytest.fixture(scope="module")
def problems(data) -> list[dict[str, str]]:
    with gzip.open(data / "humaneval" / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_all_canonical_solutions_pass_and_what_does_nothing_does_not(problems):
    results = check_completions([(problem, problem["canonical_solution"]) for problem in problems])
    assert len(results) == 164
    assert not others([problem["task_id"] for problem in problems], results, "pass")
    some = problems[::10]
    results = check_completions([(problem, "    return None\n") for problem in some])
    assert not others([problem["task_id"] for problem in some], results, "fail error")
