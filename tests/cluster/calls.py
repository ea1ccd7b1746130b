"""Calls that tests make on workers. They are sent there with this module, so it imports no other of the tests."""

import os
import signal
from pathlib import Path

from unmask.base.errors import NotEnoughMemory, UnknownName


def twice(spec):
    return spec * 2


def word_and_process(model, word):
    return model + word, os.getpid()


def raise_unknown(model):
    raise UnknownName("thing", "x", ["y"])


def die_once(model, mark):
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def die(model):
    os.kill(os.getpid(), signal.SIGKILL)


def run_out_of_memory(model):
    raise MemoryError("no room")


def does_not_fit(spec):
    raise NotEnoughMemory("16 GB of weights, 8 GB of memory")
