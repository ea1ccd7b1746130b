"""How many tensor operations some work takes, without those of its denoiser."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from unmask.core import Denoiser, DenoiserWrapper, ModelInput, ModelOutput, Needs


class Counted(TorchDispatchMode):
    """Counts while it is entered, and not while a denoiser runs."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.forwards, self.inside = 0, 0, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not self.inside
        return func(*args, **(kwargs or {}))


class Uncounted(DenoiserWrapper):
    """A denoiser whose operations are left out."""

    def __init__(self, denoiser: Denoiser, counted: Counted) -> None:
        self.denoiser, self.counted = denoiser, counted

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        self.counted.inside = True
        self.counted.forwards += 1
        try:
            return self.denoiser(inputs, needs)
        finally:
            self.counted.inside = False
