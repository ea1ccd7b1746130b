"""The fused kernels against the plain path: on a GPU where there is one, and always under Triton's interpreter."""

import json
import subprocess
import sys

import pytest
import torch

from tests.helpers import kernel_cases
from tests.helpers.fresh_python import environment
from tests.helpers.paths import ROOT


@pytest.fixture(scope="module")
def interpreted():
    """What went wrong in each case. In a process of its own: the interpreter must be chosen before Triton is loaded."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.helpers.kernel_cases"]
    done = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", kernel_cases.CASES)
def test_under_the_interpreter(case, interpreted):
    assert not interpreted[case]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", kernel_cases.CASES)
def test_on_the_gpu(case):
    kernel_cases.CASES[case]("cuda")
