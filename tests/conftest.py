"""Settings and fixtures shared by all tests."""

import os
from pathlib import Path
from types import ModuleType

# Before anything imports torch; the Makefile says why. Here too, so that a bare `pytest` is safe.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import pytest
import torch
from hypothesis import settings

from tests.helpers import scaled as scaled_checkpoints
from tests.helpers.made_once import made_once
from tests.helpers.paths import ROOT

# Tensors in tests are tiny: a second thread only waits. What must hold with several threads sets them itself.
torch.set_num_threads(1)

# The same commit gives the same verdict, on a slow or busy machine too.
# `pytest --hypothesis-profile=explore` draws new examples instead.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the checkout: reference data too large or too foreign to keep in it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the reference data: there is no folder 'shared' beside the checkout")
    return folder


@pytest.fixture(scope="session")
def scaled() -> ModuleType:
    """tests/helpers/scaled.py: `scaled.llada(folder)` and `scaled.dream(folder)` write a small checkpoint."""
    return scaled_checkpoints


@pytest.fixture(scope="session")
def view_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study of the package's own model, for pages and commands that show one; to be read only."""
    from tests.helpers.view_server import run_small_study

    return made_once(tmp_path_factory, "view-study", run_small_study)


@pytest.fixture
def run(capsys):
    """The command line, called: exit code, output, errors."""

    def call(*arguments):
        from unmask.cli.app import main

        code = main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call
