"""Where golden, contract and batch tests run: with `UNMASK_TEST_DEVICE=cuda` on a GPU, with its default engine."""

import os

import torch

VARIABLE = "UNMASK_TEST_DEVICE"
DEVICE = torch.device(os.environ.get(VARIABLE) or "cpu")
