"""Which path runs the pass over the vocabulary, and what is said when it is not the fast one."""

import builtins
import sys
import warnings
from dataclasses import replace

import pytest
import torch

from tests.helpers.fresh_python import environment, fresh_python
from tests.helpers.kernel_cases import gumbel, inverse, logits
from unmask import core
from unmask.base.errors import warn_once
from unmask.core import Edit, TokenDraw, vocab_statistics, vocab_statistics_triton
from unmask.core.vocab_statistics import VARIABLE, StatsRequest, compute_vocab_stats, compute_vocab_stats_in_torch
from unmask.core.vocab_statistics_triton import kernels_support

ASKED = StatsRequest(edit=Edit((2,), (float("-inf"),)))


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """Nothing is remembered from one test to the next."""
    monkeypatch.setattr(vocab_statistics, "_failures", {})
    warn_once.cache_clear()
    yield
    warn_once.cache_clear()


def same(one, other):
    return all(torch.equal(a, b) for a, b in ((one.top_RK, other.top_RK), (one.p_RK, other.p_RK)))


def never(*arguments):
    raise AssertionError("the kernels were asked")


@pytest.mark.parametrize("choice", [None, "auto", "plain"])
def test_a_cpu_runs_the_plain_path(choice, monkeypatch):
    monkeypatch.setattr(vocab_statistics_triton, "run_kernels", never)
    monkeypatch.delenv(VARIABLE, raising=False)
    if choice:
        monkeypatch.setenv(VARIABLE, choice)
    z_RV = logits(0, 3, 20)
    assert same(compute_vocab_stats(z_RV, ASKED), compute_vocab_stats_in_torch(z_RV, ASKED))


@pytest.fixture
def without_triton(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.partition(".")[0] == "triton":
            raise ImportError("No module named 'triton'")
        return real(name, *arguments, **keywords)

    # The module is imported anew, and afterwards the one that was loaded before is back.
    monkeypatch.delattr(core, "vocab_statistics_triton")
    monkeypatch.delitem(sys.modules, "unmask.core.vocab_statistics_triton")
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setenv(VARIABLE, "fused")


def said_once(z_RV):
    """What is said in three passes that are the plain ones."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert same(compute_vocab_stats(z_RV, ASKED), compute_vocab_stats_in_torch(z_RV, ASKED))
    (said,) = (str(warning.message) for warning in caught)
    return said


def test_without_triton_the_plain_path_runs_and_says_so_once(without_triton):
    said = said_once(logits(0, 3, 20))
    assert said.startswith("statistics: the plain path runs, since Triton cannot be loaded (No module named 'triton');")


def test_a_cpu_never_imports_triton():
    """It takes long, and a broken installation of Triton must not break a machine without a GPU."""
    code = """
import sys, torch
from unmask.core.vocab_statistics import StatsRequest
from unmask.core.vocab_statistics import choose_statistics_path, compute_vocab_stats
compute_vocab_stats(torch.zeros(2, 5), StatsRequest())
choose_statistics_path(torch.device("cpu"))
print("triton" in sys.modules)
"""
    done = fresh_python(code, env={k: v for k, v in environment().items() if k != VARIABLE})
    assert done.stdout.split() == ["False"], done.stderr


def test_kernels_that_cannot_run_are_left_and_that_is_said_once(monkeypatch):
    """Compiled for a GPU, as here without the interpreter, they cannot run on a CPU."""
    asked = []

    def broken(*arguments):
        asked.append(arguments)
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(vocab_statistics_triton, "run_kernels", broken)
    monkeypatch.setenv(VARIABLE, "fused")
    said = said_once(logits(0, 3, 20))
    assert len(asked) == 1
    assert "cannot run on cpu (RuntimeError: no kernel image is available)" in said


def test_too_little_memory_is_no_reason_to_go_on(monkeypatch):
    def full(*arguments):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(vocab_statistics_triton, "run_kernels", full)
    monkeypatch.setenv(VARIABLE, "fused")
    with pytest.raises(torch.OutOfMemoryError):
        compute_vocab_stats(logits(0, 3, 20), ASKED)


def test_what_the_kernels_leave_to_the_plain_path():
    z_RV = logits(0, 3, 20)
    drawn = inverse(0.7, 0, 3, 1)
    assert kernels_support(z_RV, ASKED)
    assert kernels_support(z_RV, replace(ASKED, draw=drawn, filtered=True))
    assert kernels_support(z_RV, replace(ASKED, draw=gumbel(0.7, 3, 20, 2)))
    # At temperature 0 filters act on the filtered statistics only.
    assert kernels_support(z_RV, replace(ASKED, draw=TokenDraw(0.0, 0.9)))
    assert not kernels_support(z_RV, replace(ASKED, draw=TokenDraw(0.0, 0.9), filtered=True))
    assert not kernels_support(z_RV, replace(ASKED, draw=replace(drawn, top_p=0.9)))
    assert not kernels_support(z_RV, replace(ASKED, draw=replace(drawn, top_k=3)))
    assert not kernels_support(z_RV, replace(ASKED, draw=TokenDraw(0.7, uniform_vocab=lambda row_C: z_RV[row_C])))
    assert not kernels_support(z_RV, replace(ASKED, top_k=17))
    assert not kernels_support(z_RV.double(), ASKED)
