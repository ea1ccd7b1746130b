"""Completions whose answers are wrong and that try not to count as failed."""

WRONG = "    return 0\n"
# A frame is four bytes of length and JSON; descriptor 4 leads to the process that checks.
_FRAME = """    import os
    def say(text):
        os.write(4, len(text).to_bytes(4, "big") + text)
"""
_FORGED = {
    "a raised nothing": rb"""["list",["raise",["list",[["list",[]],"m"]]]]""",
    "raised in three parts": rb"""["list",["raise",["list",[1,2,3]]]]""",
    "raised names that are numbers": rb"""["list",["raise",["list",[["list",[1]],"m"]]]]""",
    "raised no text": rb"""["list",["raise",["list",[["list",["ValueError"]],["opaque","x"]]]]]""",
    "neither returned nor raised": rb"""["list",["perhaps",1]]""",
    "one part": rb"""["list",["return"]]""",
    "a number": rb"""7""",
    "no JSON": rb"""}{""",
    "no text": rb"""\xff\xfe""",
    "nothing": rb"",
    "an unhashable key": rb"""["list",["return",["dict",[["list",[]],1]]]]""",
    "an opaque of opaques": rb"""["list",["return",["opaque",["opaque","x"]]]]""",
    "an endless range": rb"""["list",["return",["range",[0,["integer","0xffffffffffffffffffff"],1]]]]""",
}
FORGED = {
    f"frame by hand: {name}": f"{_FRAME}    say({text!r})\n    while True: pass\n" for name, text in _FORGED.items()
}
FRAMES = {
    "frame too long": "    import os\n    os.write(4, b'\\xff\\xff\\xff\\xff')\n    while True: pass\n",
    "frame cut short": "    import os\n    os.write(4, b'\\0\\0\\1\\0abc')\n    os._exit(0)\n",
    "frame that never ends": "    import os\n    os.write(4, b'\\0\\0\\1\\0abc')\n    while True: pass\n",
    "frames without end": "    import os\n    while True: os.write(4, b'\\0\\0\\0\\x04null')\n",
    "frame at load": WRONG + "import os\nos.write(4, b'\\0\\0\\0\\2[]')\nos.write(4, b'\\0\\0\\0\\4null')\n",
}
ENDINGS = {
    "exits": "    import os\n    os._exit(0)\n",
    "exits politely": "    raise SystemExit(0)\n",
    "kills itself": "    import os\n    os.kill(os.getpid(), 9)\n",
    "stops itself": "    import os, signal\n    os.kill(os.getpid(), signal.SIGSTOP)\n",
    "crashes": "    import ctypes\n    ctypes.string_at(0)\n",
    "runs another program": "    import os\n    os.execv('/bin/true', ['true'])\n",
    "closes its files": "    import os\n    os.closerange(0, 64)\n",
    "closes its answers": "    import os\n    os.close(4)\n    while True: pass\n",
    "swaps its files": "    import os\n    for fd in range(3, 64): os.dup2(1, fd)\n    while True: pass\n",
    "answers into its questions": "    import os\n    os.dup2(3, 4)\n    return 4\n",
    "takes all memory": "    x = []\n    while True: x.append(bytes(1 << 20))\n",
    "takes all memory and goes on": """    x = []
    try:
        while True: x.append(bytes(1 << 16))
    except MemoryError:
        return x
""",
    "runs for ever": "    while True: pass\n",
    "writes for ever": "    while True: print('x' * 65536)\n",
    "kills the process that checks": "    import os\n    os.kill(os.getppid(), 9)\n    return 0\n",
    "takes the checker's time": """    import os, resource
    resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))
    return 0
""",
    "patches the runner": """    import sys
    for module in list(sys.modules.values()):
        for name in ("send_frame", "attempt", "dumps"):
            if hasattr(module, name): setattr(module, name, lambda *a, **k: b"")
    return 0
""",
    "dies between calls": "    import os, threading\n    threading.Timer(0.01, os._exit, [0]).start()\n    return 4\n",
}
ANSWERS = {
    "an object": "    return object()\n",
    "an object that equals everything": """    class Yes:
        def __eq__(self, other): return True
        def __ne__(self, other): return False
        def __sub__(self, other): return 0
        __hash__ = object.__hash__
    return Yes()
""",
    "a number that equals everything": """    class Yes(int):
        def __eq__(self, other): return True
        __hash__ = int.__hash__
    return Yes(0)
""",
    "a huge number": "    return 10 ** 5000\n",
    "a list that holds itself": "    x = []\n    x.append(x)\n    return x\n",
    "a very deep list": "    x = []\n    for _ in range(10 ** 5): x = [x]\n    return x\n",
    "a very long text": "    return 'x' * (1 << 24)\n",
    "an endless iterator": "    import itertools\n    return itertools.count()\n",
    "an iterator that exits": "    import os\n    return iter(lambda: os._exit(0), 1)\n",
    "a class": "    return int\n",
    "half a character": "    return '\\ud800'\n",
    "a dict whose order lies": """    class D(dict):
        def items(self): return [(2, 4)]
        def __iter__(self): yield 4
    return D()
""",
    "a type with a hostile name": """    class Meta(type):
        @property
        def __name__(cls): import os; os._exit(0)
    return Meta('x', (), {})()
""",
}
RAISED = {
    "StopIteration": "    raise StopIteration\n",
    "StopAsyncIteration": "    raise StopAsyncIteration\n",
    "GeneratorExit": "    raise GeneratorExit\n",
    "KeyboardInterrupt": "    raise KeyboardInterrupt\n",
    "half a character raised": "    raise ValueError('\\ud800')\n",
    "a huge number raised": "    raise ValueError(10 ** 5000)\n",
    "a huge number in an assertion": "    assert False, 10 ** 5000\n",
    "a group of exceptions": "    raise ExceptionGroup('x', [ValueError(1)])\n",
    "an exception that cannot be shown": """    class E(Exception):
        def __str__(self): raise E
        __repr__ = __str__
    raise E(E)
""",
    "an exception that exits": """    class E(Exception):
        def __str__(self): import os; os._exit(0)
    raise E
""",
    "an exception that holds itself": "    error = ValueError()\n    error.args = (error,)\n    raise error\n",
    "a very long message": "    raise ValueError('x' * (1 << 24))\n",
    "a name that is no name": "    raise type('\\n\\0', (ValueError,), {})('x')\n",
    "a class with a hostile order": """    class Meta(type):
        def mro(cls): return [cls, *ValueError.__mro__]
        @property
        def __mro__(cls): import os; os._exit(0)
    class E(ValueError, metaclass=Meta): pass
    raise E
""",
    "an assertion": "    assert False, 'mine'\n",
    "the sandbox's own": "    import sys\n    raise sys.modules['sandbox.child'].CheckEnded\n",
}
_STOPS = "    raise StopIteration\n"
_ASKED = {
    "all(map())": "assert all(map(candidate, [1, 2]))",
    "list(map())": "assert list(map(candidate, [])) == list(map(candidate, [1, 2]))",
    "any(map())": "assert not any(map(candidate, [1, 2]))",
    "sum(map())": "assert sum(map(candidate, [1, 2])) == 0",
    "zip(map())": "assert all(a == b for a, b in zip(map(candidate, [1, 2]), [2, 4]))",
    "next(map(), default)": "assert next(map(candidate, [2]), 4) == 4",
    "filter": "assert not list(filter(candidate, [1, 2]))",
    "iter(candidate, end)": "import functools\n    assert not list(iter(functools.partial(candidate, 2), 4))",
    "a loop over map()": "for answer in map(candidate, [1, 2]):\n        assert answer in (2, 4)",
    "unpacking": "assert [*map(candidate, [1, 2])] == []",
    "set(map())": "assert set(map(candidate, [1, 2])) <= {2, 4}",
    "map() over a function that calls": "assert all(map(lambda x: candidate(x) == 2 * x, [1, 2]))",
    "starmap": "import itertools\n    assert not list(itertools.starmap(candidate, [(1,), (2,)]))",
}
SWALLOWED = {
    f"StopIteration in {name}": (_STOPS, f"def check(candidate):\n    {line}\n") for name, line in _ASKED.items()
}
_PROPERTY = """def check(candidate):
    holder = type("Holder", (), {"double": property(lambda self: candidate(2))})()
    assert not hasattr(holder, "double") and getattr(holder, "double", 4) == 4
"""
ASKED = {
    **SWALLOWED,
    "AttributeError in hasattr": ("    raise AttributeError\n", _PROPERTY),
    "an object fed back": ("    return object()\n", "def check(candidate):\n    assert candidate(candidate(2)) == 8\n"),
    "an object fed back, whatever comes of it": (
        "    return object()\n",
        "def check(candidate):\n    try:\n        candidate(candidate(2))\n    except BaseException:\n        pass\n",
    ),
    "a deep list fed back": (
        "    for _ in range(97): x = [x]\n    return x\n",
        "def check(candidate):\n    assert candidate([[[[candidate(2)]]]]) == 8\n",
    ),
    "a huge number in the message of a test": (
        "    return 10 ** 5000\n",
        "def check(candidate):\n    assert candidate(2) == 4, candidate(2)\n",
    ),
    "a huge number in a text of a test": (
        "    return 10 ** 5000\n",
        "def check(candidate):\n    assert candidate(2) == 4, f'{candidate(2)}'\n",
    ),
    "death while every exception is caught": (
        "    import os\n    os._exit(0)\n",
        "def check(candidate):\n    try:\n        candidate(2)\n    except BaseException:\n        pass\n",
    ),
    "a range that the test spreads": (
        "    return range(10 ** 15)\n",
        "def check(candidate):\n    assert list(candidate(2)) == [4]\n",
    ),
    "a text that the test multiplies": (
        "    return 'x' * (1 << 20)\n",
        "def check(candidate):\n    assert len(candidate(2) * 10 ** 9) == 4\n",
    ),
    "an endless iterator that the test reads": (
        "    import itertools\n    return itertools.count()\n",
        "def check(candidate):\n    assert list(candidate(2)) == [4]\n",
    ),
}
"""By name, a completion and a test that comes to grief over it."""
COMPLETIONS = {**FORGED, **FRAMES, **ENDINGS, **ANSWERS, **RAISED}
"""By name, what follows `def double(x):`."""
