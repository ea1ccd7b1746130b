"""Which walls work here: found out by trying what they should stop."""

import os
import sys
import threading

from unmask.base.errors import UnknownName
from unmask.tasks.sandbox.limits import DEFAULT
from unmask.tasks.sandbox.process import SandboxRun
from unmask.tasks.sandbox.run import run_jail
from unmask.tasks.sandbox.walls import KINDS, SandboxTrouble, Walls, candidates

PROBES: dict[str, Walls | str] = {}
"""By kind: walls that hold, or why none do."""
VARIABLE = "UNMASK_SANDBOX"
"""In the environment: the kind of walls to use where none is asked for."""
_PROBE_LOCK = threading.Lock()


def find_walls(mode: str | None) -> Walls:
    """The walls to use: those of the kind asked for, here or by `UNMASK_SANDBOX`, else the strongest that work here."""
    mode = mode or os.environ.get(VARIABLE) or None
    if mode is not None and mode not in KINDS:
        raise UnknownName("sandbox mode", mode, KINDS)
    reasons = []
    for kind in KINDS if mode is None else (mode,):
        try:
            walls = probe(kind)
        except SandboxTrouble as trouble:
            reasons.append(f"{kind}: {trouble}")
            continue
        if mode is not None or not walls.by_name_only:
            return walls
        reasons.append(f"{walls.text}: does not keep your processes and files apart; set {VARIABLE}={kind} to use it")
    # Perhaps the disk was full for a moment: what found nothing is not remembered.
    PROBES.clear()
    raise SandboxTrouble(f"no sandbox works here ({'; '.join(reasons)})")


def probe(kind: str) -> Walls:
    """The strongest walls of a kind that hold when tried; found out once per process."""
    with _PROBE_LOCK:
        outcome = PROBES.get(kind) or _try_walls(kind)
        PROBES[kind] = outcome
    if isinstance(outcome, str):
        raise SandboxTrouble(outcome)
    return outcome


def _try_walls(kind: str) -> Walls | str:
    """Walls that hold, or the reason why the first ones tried do not."""
    reason = ""
    for walls in candidates(kind):
        run = run_jail({"kind": "program", "program": PROBE_PROGRAM}, {}, DEFAULT, walls)
        if holds(run, walls):
            return walls
        reason = reason or run.trouble or f"does not hold: {run.stdout}{run.stderr[-300:]}"
    return reason or ("bwrap is not installed" if kind == "bubblewrap" else f"not possible on {sys.platform}")


def holds(run: SandboxRun, walls: Walls) -> bool:
    """Whether the probe ran to its end and did nothing that the walls should have stopped."""
    excused = {"end"}
    if "seccomp" not in walls.layers:
        excused |= {"socket", "kill"}
    if walls.kind == "weak" and "landlock" not in walls.layers:
        excused |= {"read", "write"}
    done = run.stdout.split()
    return not run.trouble and run.events.get("exit") == 0 and done[-1:] == ["end"] and set(done) <= excused


# Prints what it could do and should not; an exception means that honest programs would not run either.
PROBE_PROGRAM = """
import bisect, collections, copy, datetime, functools, hashlib, heapq, itertools, json, math, operator, os, random
import re, statistics, string, sys, typing, zlib

with open("file", "w") as file:
    file.write("x")
os.mkdir("folder")
if os.environ or sys.stdin.read():
    print("environment")

def attempt(name, action):
    try:
        action()
        print(name)
    except (OSError, ImportError):
        pass

def connect():
    import socket
    socket.socket()

def fork():
    if not os.fork():
        os._exit(0)

def outside():
    name = "../unmask-probe-" + os.urandom(8).hex()
    open(name, "w").close()
    os.remove(name)

attempt("socket", connect)
attempt("fork", fork)
attempt("read", lambda: open("/etc/passwd").close())
attempt("write", outside)
attempt("kill", lambda: os.kill(os.getppid(), 0) if os.getppid() > 1 else os.kill(-1, 0))
print("end")
"""
