"""Time and space: endless and greedy completions end, and what they may use is what was asked for."""

import pytest

from tests.helpers.sandboxed import PROBLEM, RIGHT, WRONG, code, exceptions, judged, needs_seccomp, run
from unmask.tasks.sandbox import Limits, check_completion, probe

ENDLESS = {
    "loop": "while True: pass",
    "signals ignored": """
        import signal
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        while True: pass
        """,
    "sleep": "import time\ntime.sleep(100)",
    "stopped": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "huge number": "10 ** 10 ** 9",
    "threads": """
        import threading
        for _ in range(4):
            threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()
        threading.Event().wait()
        """,
    "output": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
    "errors": "import sys\nwhile True: sys.stderr.write('x' * 65536)",
    "fork bomb": """
        import os
        while True:
            try: os.fork()
            except OSError: pass
        """,
}


def test_endless(mode):
    needs_seccomp(mode, "without it threads do not work")
    limits = Limits(wall_s=0.5, memory_mb=128)
    verdicts = judged([f"{WRONG}\n{code(attack)}" for attack in ENDLESS.values()], mode, limits, workers=len(ENDLESS))
    assert not exceptions(ENDLESS, verdicts, "timeout")


def test_as_many_threads_as_are_allowed_start(mode):
    """Whatever they wait for: neither their stacks nor the allocator's arenas use the memory limit up."""
    needs_seccomp(mode, "without it threads do not work")
    threads = """
        import threading
        go, lists = threading.Event(), []
        def fill():
            lists.append([bytes(1000) for _ in range(1000)])
            go.wait()
        threads = [threading.Thread(target=fill) for _ in range(COUNT)]
        for thread in threads: thread.start()
        while len(lists) < COUNT: pass
        go.set()
        for thread in threads: thread.join()
        """
    few, many = (f"{RIGHT}\n{code(threads.replace('COUNT', count))}" for count in ("4", "32"))
    small, usual = Limits(wall_s=20, cpu_s=20, memory_mb=128), Limits(wall_s=20, cpu_s=20)
    assert not exceptions(["4"], judged([few], mode, small), "pass")
    assert not exceptions(["32"], judged([many], mode, usual), "pass")


def test_processor_time():
    """Also if the signal that announces the limit is ignored."""
    body = "    import signal\n    signal.signal(signal.SIGXCPU, signal.SIG_IGN)\n    while True: pass\n"
    verdict = check_completion(PROBLEM, body, Limits(wall_s=30, cpu_s=0.5))
    assert verdict.status == "timeout"
    assert "0.5 s of processor time" in verdict.detail


MEMORY = {
    "block": "x = bytearray(1 << 40)",
    "list": "x = []\nwhile True: x.append(' ' * (1 << 20))",
    "string": "x = 'ab'\nwhile True: x += x",
    "mmap": "import mmap\nx = mmap.mmap(-1, 1 << 33)",
    "ulimit": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))",
    "recursion": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()",
    "plain recursion": "f = lambda: f()\nf()",
    "nesting": "x = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)",
    "many files": "x = [open('/dev/null') for _ in range(1000)]",
    "threads": "import threading\nfor _ in range(10 ** 4): threading.Thread(target=threading.Event().wait).start()",
}


def test_memory(mode):
    limits = Limits(wall_s=1, memory_mb=128)
    verdicts = judged([f"{WRONG}\n{attack}\n" for attack in MEMORY.values()], mode, limits, workers=5)
    assert not exceptions(MEMORY, verdicts, "error timeout")


def test_memory_outside_the_address_space_is_refused(mode):
    needs_seccomp(mode, "without it there is more memory to be had")
    result = run(
        """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        print(libc.shmget(0, 1 << 20, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600))
        os.memfd_create("x")
        """,
        mode,
    )
    assert result.stdout == "-1 -1 -1\n"
    assert "PermissionError" in result.stderr


def test_limits_cannot_be_raised_but_are_what_was_asked_for(mode):
    needs_seccomp(mode, "without it the limits of other processes can be lowered")
    result = run(
        """
        import os, resource
        for name in ("AS", "CPU", "FSIZE", "NOFILE", "CORE", "NPROC"):
            kind = getattr(resource, "RLIMIT_" + name)
            soft, hard = resource.getrlimit(kind)
            print(name, hard)
            try:
                resource.setrlimit(kind, (hard + 1, hard + 1))
                print(name, "raised")
            except (ValueError, OSError):
                pass
        try:
            resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))
            print("limited the checker")
        except OSError:
            pass
        """,
        mode,
    )
    words = dict(line.split() for line in result.stdout.split("\n")[:-1])
    assert result.exit_code == 0, result
    assert "raised" not in result.stdout
    assert (words["AS"], words["FSIZE"]) == (str(256 << 20), str(4 << 20))
    assert (words["CPU"], words["CORE"], words["NOFILE"]) == ("2", "0", "64")


def test_files_are_small_and_few(mode):
    result = run(
        """
        import errno
        def fill(name):
            try:
                with open(name, "wb", buffering=0) as file:
                    for _ in range(16):
                        file.write(bytes(1 << 20))
            except OSError as error:
                return error.errno
        print(fill("one") in (errno.EFBIG, errno.ENOSPC))
        print(fill("two") in (errno.EFBIG, errno.ENOSPC), flush=True)
        """,
        mode,
    )
    assert result.stdout.split() == ["True", "True"], result


def test_memory_for_files_is_bounded_too():
    if probe.find_walls(None).kind != "namespace":
        pytest.skip("this mode says that it is not")
    result = run(
        """
        import errno, os
        def fill(name):
            with open(name, "wb") as file:
                file.write(bytes(1 << 20))
        try:
            for number in range(100):
                fill(str(number))
        except OSError as error:
            print(number, error.errno == errno.ENOSPC)
        os.remove("0")
        try:
            for number in range(100_000):
                open("x" + str(number), "w").close()
        except OSError as error:
            print(number < 2000, error.errno == errno.ENOSPC)
        """,
        None,
    )
    assert result.stdout.split() == ["4", "True", "True", "True"], result


@pytest.mark.parametrize("where", ["stdout", "stderr"])
def test_output_is_cut(where, mode):
    result = run(f"import sys\nfor _ in range(100): sys.{where}.write('x' * 65536)\nsys.exit(3)", mode)
    assert (result.exit_code, len(result.stdout) + len(result.stderr)) == (3, 16 << 10)


ANSWERS = {
    "long": "x = 'x' * (1 << 23)",
    "many": "x = [10 ** 9] * 500_000",
    "nested": "x = []\n    for _ in range(10 ** 5): x = [x]",
    "cyclic": "x = []\n    x.append(x)",
    "shared": "x = []\n    for _ in range(40): x = [x, x]",
}


def test_answers_that_are_too_large():
    verdicts = judged(
        (f"    {answer}\n    return x\n" for answer in ANSWERS.values()), limits=Limits(wall_s=1), workers=5
    )
    assert not exceptions(ANSWERS, verdicts, "error timeout")
