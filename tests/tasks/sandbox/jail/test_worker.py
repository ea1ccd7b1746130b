"""Honest completions get in the sandbox what they get in plain Python, or the documentation says why not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import DOCS
from tests.helpers.sandboxed import RIGHT, exceptions, judged, needs_seccomp
from unmask.tasks.sandbox import Limits, SandboxVerdict, check_completion

IMPORTS = """
import array, collections, dataclasses, datetime, decimal, enum, fractions, functools, itertools, operator, pathlib
import string, types, typing, zoneinfo

class Own(ValueError): pass
class Told(LookupError):
    def __init__(self, code): self.code = code
    def __str__(self): return f"code {self.code}"
class Word(str): pass
class Bag:
    def __init__(self, *items): self.items = items
    def __iter__(self): return iter(self.items)
class Broken:
    def __iter__(self): raise OSError(5, "broken")
class Weekday(enum.IntEnum): MONDAY = 1
class Colour(enum.Enum): RED = 1
class Named(typing.NamedTuple):
    x: int
    y: int = 2
@dataclasses.dataclass
class Point:
    x: int
Pair = collections.namedtuple("Pair", "left right")

def fail(error): raise error
def failing(*items):
    yield from items
    raise KeyError("late")
def primes():
    for n in itertools.count(2):
        if all(n % d for d in range(2, n)): yield n
"""
# What the completion returns, and what a test may find out about it.
VALUES = {
    "list": ("[1, [2, (3,)]]", "answer == [1, [2, (3,)]]"),
    "tuple": ("(1, 2)", "answer == (1, 2) and answer != [1, 2]"),
    "complex": ("1 + 2j", "answer == 1 + 2j and answer.imag == 2"),
    "minus zero": ("-0.0", "str(answer) == '-0.0'"),
    "not a number": ("float('nan')", "answer != answer"),
    "infinity": ("-float('inf')", "answer == -float('inf')"),
    "huge number": ("10 ** 5000", "answer == 10 ** 5000"),
    "half a character": ("'\\ud800'", "answer == '\\ud800'"),
    "bytes": ("b'a\\xff'", "answer == b'a\\xff'"),
    "bytearray": ("bytearray(b'ab')", "answer == b'ab' and isinstance(answer, bytearray)"),
    "memoryview": ("memoryview(b'ab')", "answer == b'ab' and answer[0] == 97"),
    "memoryview of numbers": ("memoryview(array.array('i', [1, 2]))", "answer.tolist() == [1, 2]"),
    "set": ("{1, 2}", "answer == {2, 1}"),
    "frozenset": ("frozenset('ab')", "answer == {'a', 'b'} and hash(answer) == hash(frozenset('ab'))"),
    "range": ("range(1, 9, 2)", "answer == range(1, 9, 2) and answer[1] == 3"),
    "slice": ("slice(1, None)", "[0, 1, 2][answer] == [1, 2]"),
    "ellipsis": ("...", "answer is ..."),
    "dict": ("{1: 'a', (2, 3): None}", "answer == {1: 'a', (2, 3): None} and list(answer) == [1, (2, 3)]"),
    "dict keys": ("{'a': 1}.keys()", "answer == {'a'} and answer & {'a'} == {'a'}"),
    "dict values": ("{'a': 1}.values()", "list(answer) == [1]"),
    "dict items": ("{'a': 1}.items()", "list(answer) == [('a', 1)]"),
    "counter": ("collections.Counter('aab')", "answer == {'a': 2, 'b': 1} and answer.most_common(1) == [('a', 2)]"),
    "counter with zeros": ("collections.Counter(a=0)", "answer == collections.Counter()"),
    "ordered dict": (
        "collections.OrderedDict(a=1, b=2)",
        "answer != collections.OrderedDict(b=2, a=1) and answer == dict(b=2, a=1)",
    ),
    "default dict": ("collections.defaultdict(list, a=[1])", "answer == {'a': [1]} and answer['x'] == []"),
    "deque": ("collections.deque([1, 2])", "answer == collections.deque([1, 2]) and answer != [1, 2]"),
    "user list": ("collections.UserList([1, 2])", "answer == [1, 2] and answer + [3] == [1, 2, 3]"),
    "user dict": ("collections.UserDict(a=1)", "answer == {'a': 1} and answer['a'] == 1"),
    "user string": ("collections.UserString('ab')", "answer == 'ab' and answer.upper() == 'AB'"),
    "chain of maps": ("dict(collections.ChainMap({'a': 1}, {'b': 2}))", "answer == {'a': 1, 'b': 2}"),
    "mapping proxy": ("types.MappingProxyType({'a': 1})", "answer == {'a': 1} and answer['a'] == 1"),
    "array": ("array.array('d', [1.5])", "answer == array.array('d', [1.5]) and answer.tolist() == [1.5]"),
    "array of letters": ("array.array('u', 'ab')", "answer.tounicode() == 'ab'"),
    "fraction": ("fractions.Fraction(1, 3)", "answer == fractions.Fraction(2, 6) and answer * 3 == 1"),
    "decimal": ("decimal.Decimal('1.10')", "answer == decimal.Decimal('1.1') and str(answer) == '1.10'"),
    "date": ("datetime.date(2024, 2, 29)", "answer == datetime.date(2024, 2, 29) and answer.weekday() == 3"),
    "time": ("datetime.time(1, 2, 3, 4)", "answer.isoformat() == '01:02:03.000004'"),
    "point in time": ("datetime.datetime(2024, 1, 2, 3)", "answer == datetime.datetime(2024, 1, 2, 3)"),
    "point in time with a zone": (
        "datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc)",
        "answer.utcoffset() == datetime.timedelta(0) and answer.tzinfo is not None",
    ),
    "zone": ("datetime.timezone(datetime.timedelta(hours=2), 'X')", "answer.tzname(None) == 'X'"),
    "zone by name": (
        "datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo('UTC'))",
        "answer.tzinfo.key == 'UTC'",
    ),
    "span of time": ("datetime.timedelta(1, 2, 3)", "answer == datetime.timedelta(1, 2, 3) and answer.days == 1"),
    "path": ("pathlib.Path('a/b')", "answer == pathlib.Path('a/b') and answer.name == 'b'"),
    "named tuple": (
        "Pair(1, 2)",
        "answer == (1, 2) and answer.right == 2 and answer._asdict() == dict(left=1, right=2)",
    ),
    "typed named tuple": ("Named(1)", "answer == (1, 2) and answer.y == 2"),
    "class": ("[int, ValueError]", "answer == [int, ValueError]"),
    "own text": ("Word('ab')", "answer == 'ab' and answer + 'c' == 'abc'"),
    "number of an enumeration": ("Weekday.MONDAY", "answer == 1 and answer + 1 == 2"),
    "generator": ("(n * n for n in range(3))", "list(answer) == [0, 1, 4]"),
    "generator, used once": ("(n for n in [1])", "[*answer, *answer] == [1]"),
    "map": ("map(int, '12')", "sum(answer) == 3"),
    "zip": ("zip('ab', [1, 2])", "dict(answer) == {'a': 1, 'b': 2}"),
    "reversed": ("reversed([1, 2])", "next(answer) == 2 and next(answer) == 1"),
    "iterators in a list": ("[iter([1]), iter([2])]", "[list(each) for each in answer] == [[1], [2]]"),
    "endless counter": ("itertools.count(5)", "list(itertools.islice(answer, 3)) == [5, 6, 7]"),
    "endless and slow": ("primes()", "[next(answer) for _ in range(5)] == [2, 3, 5, 7, 11]"),
    "endless texts": ("itertools.repeat('x' * 10 ** 5)", "len(next(answer)) == 10 ** 5"),
    "own collection": ("Bag(1, 2)", "sorted(answer) == list(answer) == [1, 2] and answer != [1, 2]"),
    "own collection in a dict": ("{'a': Bag(1)}", "[*answer['a']] == [1]"),
    "an object": ("object()", "answer != 1 and answer != object()"),
    "exception as a value": ("ValueError('x')", "isinstance(answer, ValueError) and answer.args == ('x',)"),
}
# What it raises, and what a test may find out about the exception.
RAISED = {
    "value error": ("ValueError('no', 3)", "error.args == ('no', 3)"),
    "key error": ("KeyError('k')", "str(error) == \"'k'\" and error.args == ('k',)"),
    "no arguments": ("ValueError()", "error.args == () and str(error) == ''"),
    "a dict as argument": ("ValueError({'a': [1]})", "error.args[0]['a'] == [1]"),
    "file not found": (
        "FileNotFoundError(2, 'none', 'name')",
        "isinstance(error, OSError) and error.errno == 2 and error.filename == 'name' and error.strerror == 'none'",
    ),
    "class by number": ("OSError(13, 'no')", "type(error) is PermissionError and error.errno == 13"),
    "broken pipe": ("BrokenPipeError(32, 'x')", "error.errno == 32 and isinstance(error, ConnectionError)"),
    "bad bytes": (
        "UnicodeDecodeError('utf-8', b'\\xff', 0, 1, 'invalid')",
        "error.object == b'\\xff' and (error.start, error.end, error.reason) == (0, 1, 'invalid')",
    ),
    "bad text": ("UnicodeEncodeError('ascii', '\\xe4', 0, 1, 'x')", "error.object == '\\xe4'"),
    "syntax": ("SyntaxError('bad', ('file', 1, 2, 'text'))", "(error.lineno, error.text) == (1, 'text')"),
    "import": ("ImportError('no', name='x')", "error.name == 'x' and str(error) == 'no'"),
    "no such name": ("NameError('no', name='x')", "error.name == 'x'"),
    "stop": ("StopIteration(7)", "error.value == 7"),
    "exit": ("SystemExit(3)", "error.code == 3 and not isinstance(error, Exception)"),
    "division": ("ZeroDivisionError('z')", "isinstance(error, ArithmeticError)"),
    "assertion": ("AssertionError('a')", "type(error) is AssertionError"),
    "group": (
        "ExceptionGroup('g', [ValueError(1), KeyError(2)])",
        "error.message == 'g' and [type(e) for e in error.exceptions] == [ValueError, KeyError]",
    ),
    "own": ("Own('x')", "isinstance(error, ValueError) and type(error).__name__ == 'Own' and error.args == ('x',)"),
    "own with words": ("Told(7)", "str(error) == 'code 7' and error.code == 7 and isinstance(error, LookupError)"),
    "huge number": ("ValueError(10 ** 5000)", "error.args == (10 ** 5000,)"),
    "long message": ("ValueError('x' * 10 ** 6)", "len(str(error)) == 10 ** 6"),
    "decimal": ("decimal.InvalidOperation()", "isinstance(error, ArithmeticError)"),
}
HARNESS = """
def check(candidate):
    wrong = []
    for name, question in VALUES.items():
        answer = candidate("values", name)
        try:
            right = eval(question, {**globals(), "answer": answer})
        except Exception as error:
            right = repr(error)
        if right is not True: wrong.append((name, right))
    for name, question in RAISED.items():
        try:
            wrong.append((name, candidate("raised", name)))
        except BaseException as caught:
            try:
                right = eval(question, {**globals(), "error": caught})
            except Exception as error:
                right = repr(error)
            if right is not True: wrong.append((name, right, repr(caught)[:100]))
    assert not wrong, wrong
"""


def problem() -> dict[str, str]:
    tests = {kind: {name: question for name, (_, question) in table.items()} for kind, table in _tables().items()}
    return {
        "prompt": f"{IMPORTS}\ndef give(kind, name):\n",
        "entry_point": "give",
        "test": f"VALUES = {tests['values']!r}\nRAISED = {tests['raised']!r}\n{HARNESS}",
    }


def _tables() -> dict[str, dict[str, tuple[str, str]]]:
    return {"values": VALUES, "raised": RAISED}


def completion() -> str:
    answers = ", ".join(f"{name!r}: lambda: {answer}" for name, (answer, _) in VALUES.items())
    errors = ", ".join(f"{name!r}: lambda: fail({error})" for name, (error, _) in RAISED.items())
    return f"    return {{'values': {{{answers}}}, 'raised': {{{errors}}}}}[kind][name]()\n"


def test_answers_and_exceptions_are_those_of_plain_python():
    """The same questions are asked in this interpreter: a wrong question would fail here."""
    names: dict[str, object] = {"__name__": "plain"}
    given = problem()
    exec(given["prompt"] + completion() + given["test"], names)
    names["check"](names["give"])  # type: ignore[operator]
    verdict = check_completion(given, completion(), Limits(wall_s=60, cpu_s=30))
    assert verdict.status == "pass", verdict.detail


def asked(body: str, question: str) -> SandboxVerdict:
    given = {"prompt": f"{IMPORTS}\ndef give():\n", "entry_point": "give"}
    return check_completion({**given, "test": f"def check(candidate):\n    {question}\n"}, body, Limits(wall_s=60))


# What differs: what is returned, what plain Python says yes to, and a word of docs/sandbox.md.
DIFFERENT = {
    "data class": ("Point(1)", "assert candidate().x == 1", "data classes"),
    "enumeration": ("Colour.RED", "assert candidate().value == 1", "enumerations"),
    "function": ("lambda: 1", "assert candidate()() == 1", "functions"),
    "own attribute": ("Bag(1)", "assert candidate().items == (1,)", "attributes"),
    "same object": ("[[]] * 2", "a, b = candidate()\n    assert a is b", "the same object"),
    "list in itself": ("(lambda x: x.append(x) or x)([])", "assert candidate()[0]", "levels"),
    "way of an exception": (
        "fail(ValueError())",
        "try: candidate()\n    except ValueError as e: way = e.__traceback__.tb_next\n"
        "    assert way.tb_frame.f_code.co_name == 'give'",
        "traceback",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_fails_and_is_documented(name):
    answer, question, word = DIFFERENT[name]
    names: dict[str, object] = {"__name__": "plain"}
    exec(f"{IMPORTS}\ndef give():\n    return {answer}\ndef check(candidate):\n    {question}\n", names)
    verdict = asked(f"    return {answer}\n", question)
    assert verdict.status in ("fail", "error"), verdict
    assert word in (DOCS / "sandbox.md").read_text(encoding="utf-8")


def test_an_endless_iterator_says_where_it_was_left():
    verdict = asked("    return itertools.count()\n", "assert list(candidate())")
    assert verdict.status == "fail"
    assert "asked for 100000 values and no more" in verdict.detail
    verdict = asked("    return primes()\n", "assert list(candidate())")
    assert "asked for the values of 1 s of processor time and no more" in verdict.detail
    verdict = asked("    return failing(1, 2)\n", "assert [*zip('ab', candidate())] == [('a', 1), ('b', 2)]")
    assert verdict.status == "pass", verdict
    verdict = asked("    return failing(1, 2)\n", "assert list(candidate()) == [1, 2]")
    assert "KeyError: 'late'" in verdict.detail


def test_iterators_can_be_arguments():
    given = {"prompt": "def give(x):\n", "entry_point": "give"}
    test = "def check(candidate):\n    assert candidate(iter([1, 2])) == candidate(map(int, '12')) == [1, 2]\n"
    assert check_completion({**given, "test": test}, "    return list(x)\n").status == "pass"


WORKS = {
    "shelve": """
import shelve
with shelve.open("notes") as notes: notes["a"] = [1]
assert shelve.open("notes")["a"] == [1]
""",
    "dbm": "import dbm.dumb\nwith dbm.dumb.open('numbers', 'c') as numbers: numbers['a'] = 'b'",
    "sqlite": "import sqlite3\nwith sqlite3.connect('base') as base: base.execute('create table t (x)')",
    "sqlite in memory": "import sqlite3\nassert sqlite3.connect(':memory:').execute('select 1').fetchone() == (1,)",
    "temporary files": "import tempfile, os\nwith tempfile.TemporaryDirectory() as f: open(f + '/x', 'w').close()",
    "named temporary file": "import tempfile\nwith tempfile.NamedTemporaryFile() as f: f.write(b'x')",
    "copies": "import shutil\nopen('a', 'w').write('x')\nshutil.copy2('a', 'b')\nassert open('b').read() == 'x'",
    "archives": "import zipfile\nzipfile.ZipFile('z', 'w').writestr('a', 'x')\nzipfile.ZipFile('z').extractall('out')",
    "tar": """
import tarfile
open("a", "w").close()
with tarfile.open("t", "w") as archive: archive.add("a")
with tarfile.open("t") as archive: archive.extractall("out")
""",
    "logging": "import logging\nlogging.basicConfig(filename='log')\nlogging.warning('x')",
    "pickle": "import pickle\nassert pickle.loads(pickle.dumps([1])) == [1]",
    "csv and json": "import csv, json, io\ncsv.writer(io.StringIO()).writerow([1])\njson.dumps({})",
    "locks on files": "import fcntl\nwith open('a', 'w') as f: fcntl.lockf(f, fcntl.LOCK_EX)",
    "terminal": "import os, shutil\nassert not os.isatty(1)\nshutil.get_terminal_size()",
    "pipes": "import os\nr, w = os.pipe()\nos.set_blocking(r, False)\nos.write(w, b'x')\nassert os.read(r, 1) == b'x'",
    "pairs of sockets": "import socket\na, b = socket.socketpair()\na.sendall(b'x')\nassert b.recv(1) == b'x'",
    "asyncio": """
import asyncio
async def f():
    await asyncio.sleep(0)
    return await asyncio.to_thread(int)
asyncio.run(f())
""",
    "signals to itself": """
import os, signal
signal.signal(signal.SIGUSR1, lambda *a: None)
os.kill(os.getpid(), signal.SIGUSR1)
""",
    "alarm": """
import signal, time
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 0.001)
time.sleep(0.05)
""",
    "memory maps": "import mmap\nm = mmap.mmap(-1, 100)\nm[0] = 1",
    "ctypes": "import ctypes\nassert ctypes.CDLL(None).abs(-3) == 3",
    "random": "import random, secrets, uuid\nuuid.uuid4()\nsecrets.token_hex(4)",
    "pool of threads": "from concurrent.futures import ThreadPoolExecutor as P\nlist(P(32).map(int, range(1000)))",
    "32 threads": """
import threading
ready, go = threading.Semaphore(0), threading.Event()
threads = [threading.Thread(target=lambda: (ready.release(), go.wait())) for _ in range(32)]
for thread in threads: thread.start()
for thread in threads: ready.acquire()
assert threading.active_count() == 33
go.set()
for thread in threads: thread.join()
""",
}
REFUSED = {
    "subprocess": "import subprocess\nsubprocess.run(['true'])",
    "processes": "import multiprocessing\np = multiprocessing.Process(target=int)\np.start()",
    "pool of processes": "from concurrent.futures import ProcessPoolExecutor as P\nP(1).submit(int).result()",
    "shared memory": "from multiprocessing import shared_memory\nshared_memory.SharedMemory(create=True, size=1)",
    "sockets": "import socket\nsocket.socket()",
    "packages": "import numpy",
}


def plain(source: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-c", source], cwd=folder, check=True, capture_output=True)


def test_what_works(mode, tmp_path):
    """In plain Python as well."""
    needs_seccomp(mode, "without it neither threads nor sockets work")
    if mode is None:
        for number, source in enumerate(WORKS.values()):
            (tmp_path / str(number)).mkdir()
            plain(source, tmp_path / str(number))
    verdicts = judged([f"{RIGHT}\n{source}\n" for source in WORKS.values()], mode, Limits(wall_s=60))
    assert not exceptions(WORKS, verdicts, "pass")


def test_what_is_refused(mode):
    needs_seccomp(mode, "without it some of it works")
    verdicts = judged([f"{RIGHT}\n{source}\n" for source in REFUSED.values()], mode, Limits(wall_s=60))
    assert not exceptions(REFUSED, verdicts, "error")
