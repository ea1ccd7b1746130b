"""Triton kernels without a GPU: a module of them imported anew under Triton's interpreter, and nothing else changed."""

import importlib
import os
import sys
from types import ModuleType

import torch


def kernels_of(name: str) -> ModuleType:
    """The module as it is where there is a GPU; else a copy whose kernels run on the CPU, one program at a time.

    Kernels of other modules stay what they are, those of Triton itself too: call builtins, `tl.reduce`, not `tl.sum`.
    """
    if torch.cuda.is_available():
        return importlib.import_module(name)
    importlib.import_module("triton")  # itself as ever: only the kernels of the module are interpreted
    before, was = sys.modules.pop(name, None), os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        return importlib.import_module(name)
    finally:
        if was is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = was
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
