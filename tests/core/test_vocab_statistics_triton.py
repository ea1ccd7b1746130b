"""The fused kernels against the plain path: on a GPU where there is one, and always under Triton's interpreter."""

import gc
import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tests.helpers import kernel_cases
from tests.helpers.fresh_python import environment
from tests.helpers.gpu import gpu
from tests.helpers.paths import ROOT
from unmask.core.vocab_statistics_triton import KernelVariant, run_kernels
from unmask.models import build_graph


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


@gpu
@pytest.mark.parametrize("case", kernel_cases.CASES)
def test_on_the_gpu(case):
    kernel_cases.CASES[case]("cuda")


@gpu
@pytest.mark.parametrize("sampler", ["inverse", "gumbel"])
def test_a_graph_keeps_its_settings(sampler):
    """Replayed after any number of other temperatures and after memory was reused: the same bits."""
    rows, vocab = 4, 300
    draw = kernel_cases.inverse(0.7, 0, rows, 2) if sampler == "inverse" else kernel_cases.gumbel(0.7, rows, vocab, 2)
    z_RV, request = kernel_cases.everything(0, rows, vocab, torch.bfloat16, draw)
    z_RV, request = z_RV.cuda(), kernel_cases.moved(request, "cuda")
    variant = KernelVariant.of(z_RV, request)
    plain = run_kernels(variant, z_RV, request)
    graph = build_graph(lambda: run_kernels(variant, z_RV, request), z_RV.device, rehearsals=1)
    for step in range(300):
        other = replace(request, draw=replace(request.draw, temperature=1.0 + step / 100))
        run_kernels(variant, z_RV, other)
    gc.collect()
    torch.cuda.empty_cache()
    junk = [torch.full((size,), 1e9, dtype=torch.float64, device="cuda") for size in range(1, 300)]
    kernel_cases.same(graph(), plain, torch.arange(rows, device="cuda"))
    del junk
