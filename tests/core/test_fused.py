"""Which path runs the pass over the vocabulary, and what is said when it is not the fast one."""

import builtins
import sys
import warnings
from dataclasses import replace

import pytest
import torch

from tests.helpers.kernel_cases import gumbel, inverse, logits
from unmask.base.errors import ConfigError, warn_once
from unmask.core import Edit, fused
from unmask.core.fused import StatisticsChoice, choose_statistics
from unmask.core.statistics import PassOptions, Sampling, one_pass

ASKED = PassOptions(edit=Edit((2,), (float("-inf"),)))


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """Nothing is remembered from one test to the next."""
    monkeypatch.setattr(fused, "_proven", set())
    monkeypatch.setattr(fused, "_broken", {})
    for remembered in (fused._kernels, warn_once):
        remembered.cache_clear()
    yield
    for remembered in (fused._kernels, warn_once):
        remembered.cache_clear()


def same(one, other):
    return all(torch.equal(a, b) for a, b in ((one.top_RK, other.top_RK), (one.p_RK, other.p_RK)))


def never(*arguments):
    raise AssertionError("the kernels were asked")


@pytest.mark.parametrize("choice", [None, "auto", "plain"])
def test_a_cpu_runs_the_plain_path(choice, monkeypatch):
    monkeypatch.setattr(fused, "run", never)
    monkeypatch.delenv(fused.VARIABLE, raising=False)
    if choice:
        monkeypatch.setenv(fused.VARIABLE, choice)
    z_RV = logits(0, 3, 20)
    assert same(fused.statistics(z_RV, ASKED), one_pass(z_RV, ASKED))


def test_a_choice_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv(fused.VARIABLE, "fast")
    with pytest.raises(ConfigError, match="UNMASK_STATISTICS is 'fast'; allowed: auto or plain or fused"):
        fused.statistics(logits(0, 3, 20), ASKED)


@pytest.fixture
def without_triton(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.partition(".")[0] == "triton":
            raise ImportError("No module named 'triton'")
        return real(name, *arguments, **keywords)

    for name in ("unmask.core.statistics_kernel", "unmask.core.pieces_kernel"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setenv(fused.VARIABLE, "fused")


def said_once(z_RV):
    """What is said in three passes that are the plain ones."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert same(fused.statistics(z_RV, ASKED), one_pass(z_RV, ASKED))
    (said,) = (str(warning.message) for warning in caught)
    return said


def test_without_triton_the_plain_path_runs_and_says_so_once(without_triton):
    said = said_once(logits(0, 3, 20))
    assert said.startswith("statistics: the plain path runs, since Triton cannot be loaded (No module named 'triton');")


def test_the_choice_without_triton(without_triton):
    with pytest.warns(UserWarning, match="the plain path runs, since Triton cannot be loaded"):
        found = choose_statistics(torch.device("cpu"))
    assert found == StatisticsChoice("plain", "Triton cannot be loaded (No module named 'triton')")


@pytest.mark.parametrize(
    ("choice", "why"),
    [("auto", "cpu is not a CUDA device: no kernels there"), ("plain", "UNMASK_STATISTICS=plain")],
)
def test_the_choice_on_a_cpu(choice, why, monkeypatch):
    monkeypatch.setenv(fused.VARIABLE, choice)
    assert choose_statistics(torch.device("cpu")) == StatisticsChoice("plain", why)


def test_the_choice_where_kernels_cannot_run(monkeypatch):
    """Asked for on a CPU without the interpreter: one small pass shows it."""
    monkeypatch.setenv(fused.VARIABLE, "fused")
    with pytest.warns(UserWarning, match="the plain path runs, since the fused kernels cannot run on cpu"):
        found = choose_statistics(torch.device("cpu"))
    assert found.path == "plain"
    assert found.why.startswith("the fused kernels cannot run on cpu (")


def test_kernels_that_cannot_run_are_left_and_that_is_said_once(monkeypatch):
    """Compiled for a GPU, as here without the interpreter, they cannot run on a CPU."""
    asked = []

    def broken(*arguments):
        asked.append(arguments)
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(fused, "run", broken)
    monkeypatch.setenv(fused.VARIABLE, "fused")
    said = said_once(logits(0, 3, 20))
    assert len(asked) == 1
    assert "cannot run on cpu (RuntimeError: no kernel image is available)" in said


def test_too_little_memory_is_no_reason_to_go_on(monkeypatch):
    def full(*arguments):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(fused, "run", full)
    monkeypatch.setenv(fused.VARIABLE, "fused")
    with pytest.raises(torch.OutOfMemoryError):
        fused.statistics(logits(0, 3, 20), ASKED)


def test_no_rows(monkeypatch):
    monkeypatch.setattr(fused, "run", never)
    monkeypatch.setenv(fused.VARIABLE, "fused")
    assert fused.statistics(torch.zeros(0, 7), PassOptions(top_k=3)).top_RK.shape == (0, 3)


def test_what_the_kernels_leave_to_the_plain_path():
    z_RV = logits(0, 3, 20)
    drawn = inverse(0.7, 0, 3, 1)
    assert fused.fits(z_RV, ASKED)
    assert fused.fits(z_RV, replace(ASKED, draw=drawn, filtered=True))
    assert fused.fits(z_RV, replace(ASKED, draw=gumbel(0.7, 3, 20, 2)))
    # At temperature 0 filters act on the filtered statistics only.
    assert fused.fits(z_RV, replace(ASKED, draw=Sampling(0.0, 0.9)))
    assert not fused.fits(z_RV, replace(ASKED, draw=Sampling(0.0, 0.9), filtered=True))
    assert not fused.fits(z_RV, replace(ASKED, draw=replace(drawn, top_p=0.9)))
    assert not fused.fits(z_RV, replace(ASKED, draw=replace(drawn, top_k=3)))
    assert not fused.fits(z_RV, replace(ASKED, draw=Sampling(0.7, uniform_vocab=lambda row_C: z_RV[row_C])))
    assert not fused.fits(z_RV, replace(ASKED, top_k=17))
    assert not fused.fits(z_RV.double(), ASKED)
