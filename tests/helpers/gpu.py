"""Tests that need a CUDA device: `pytest -m gpu` runs them, and they say so where there is none."""

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch

T = TypeVar("T", bound=Callable[..., object])


def gpu(test: T) -> T:
    marked: T = pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")(test))
    return marked
