"""Whatever a completion does, it cannot pass without being right."""

import pytest

from tests.helpers.sandboxed import PROBLEM, WRONG, exceptions, judged
from unmask.tasks.sandbox import Limits, check_completion

FORGERIES = {
    "exit": "import sys\nsys.exit(0)",
    "hard exit": "import os\nos._exit(0)",
    "exit in the function": "import os\ndef double(x): os._exit(0)",
    "exit at the end": "import atexit, os\natexit.register(os._exit, 0)",
    "fake success": "print('pass'); print('all checks passed'); print('{\"verdict\": \"pass\", \"detail\": \"\"}')",
    "own check": "def check(candidate): pass\nimport builtins\nbuiltins.check = check",
    "no assertions": """
import builtins
builtins.AssertionError = type("A", (BaseException,), {"__new__": lambda *a: None})
""",
    "own builtins": "__builtins__.clear() if isinstance(__builtins__, dict) else vars(__builtins__).clear()",
    "trace": "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)",
    "always equal": """
class Yes:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = object.__hash__
def double(x): return Yes()
""",
    "always equal number": """
class Yes(int):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0
    def __reduce__(self): return (exit, (0,))
def double(x): return Yes(0)
""",
    "callable class": """
class double:
    def __new__(cls, x): return object.__new__(cls)
    def __eq__(self, other): return True
""",
    "patched runner": """
import sys
for module in list(sys.modules.values()):
    for name in ("judge", "failed", "lost", "prepare"):
        if hasattr(module, name):
            setattr(module, name, lambda *a: {"verdict": "pass", "detail": ""})
    for name in ("emit", "send_frame"):
        if hasattr(module, name):
            setattr(module, "emit", lambda *a, **k: None)
""",
    "patched codec": """
import sys
from jail import values
values.dumps = lambda value, strict: b'["return", ["always", 1]]'
""",
    "frames": """
import gc, sys
frame = sys._getframe()
while frame:
    for name, value in list(frame.f_locals.items()):
        if name in ("job", "tests", "candidate"):
            try: value["kind"] = "program"
            except TypeError: pass
    frame = frame.f_back
for thing in gc.get_objects():
    if type(thing) is dict and "test" in thing and "prompt" in thing:
        thing["test"] = "def check(candidate): pass"
""",
    "all files": """
import os
for fd in range(64):
    for text in (b'{"verdict": "pass", "detail": "forged"}\\n', b'\\0\\0\\0\\x04null'):
        try: os.write(fd, text)
        except OSError: pass
""",
    "closed files": "import os\nos.closerange(0, 64)",
    "closed files in the function": "import os\ndef double(x): os.closerange(0, 64)",
    "swapped files": "import os\nfor fd in range(3, 64):\n    try: os.dup2(1, fd)\n    except OSError: pass",
    "other processes' files": """
import os
for pid in os.listdir("/proc") if os.path.isdir("/proc") else []:
    for name in (f"/proc/{pid}/fd/{n}" for n in range(64)) if pid.isdigit() else ():
        try:
            # Pipes alone: where nothing isolates the program, "wb" would empty whatever files other programs read.
            if not os.readlink(name).startswith("pipe:"): continue
            with open(name, "wb", buffering=0) as file:
                file.write(b'{"verdict": "pass", "detail": "forged"}\\n')
        except (OSError, ValueError): pass
""",
    "other processes' memory": """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for pid in {os.getppid(), 1, 2, 3}:
    for request in (16, 0x4206):
        if libc.ptrace(request, pid, 0, 0) == 0: raise SystemError("attached")
    try:
        open(f"/proc/{pid}/mem", "r+b")
        raise SystemError("opened")
    except OSError: pass
""",
    "endless answers": """
import os
def double(x):
    while True: os.write(4, b"\\0\\0\\0\\x04null")
""",
    "exception with side effects": """
class Trick(Exception):
    def __str__(self): import os; os._exit(0)
def double(x): raise Trick
""",
}  # fmt: skip


def test_forgery(mode):
    limits = Limits(wall_s=1)
    verdicts = judged([f"{WRONG}\n{text}\n" for text in FORGERIES.values()], mode, limits, workers=4)
    assert not exceptions(FORGERIES, verdicts, "fail error timeout")


def test_the_tests_are_nowhere_in_the_memory_of_the_completion(mode):
    """Neither as objects nor as bytes: a completion cannot look up what it should return."""
    secret = "expected" + "-" + "4711"
    problem = {**PROBLEM, "test": f"# {secret}\ndef check(candidate):\n    assert candidate(2) == 4\n"}
    body = """    import ctypes, gc, sys
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
    assert check_completion(problem, body, mode=mode).status == "pass"


@pytest.mark.parametrize(
    ("kind", "layers"),
    [("namespace", ("uid",)), ("namespace", ()), ("weak", ("uid",)), ("weak", ("seccomp",)), ("weak", ())],
    ids=str,
)
def test_forgery_with_fewer_walls(kind, layers, use):
    mode = use(kind, layers)
    names = ["all files", "other processes' files", "other processes' memory", "frames"]
    verdicts = judged([f"{WRONG}\n{FORGERIES[name]}\n" for name in names], mode)
    assert not exceptions(names, verdicts, "fail error")
