"""A model that is on workers, as the driver sees it: everything but its network, which nothing here may call."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from unmask.base.environment import machine_name
from unmask.base.errors import ConfigError
from unmask.core import ModelInput, ModelOutput, Needs, Vocabulary
from unmask.models import ExactDenoiser


@dataclass(frozen=True)
class Elsewhere:
    """Stands where the network would: its vocabulary, its device, and the machine it was seen on."""

    vocabulary: Vocabulary
    device: torch.device
    machine: str
    device_name: str

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        raise ConfigError(
            "the network is on the workers of a cluster; allowed: generate and infill of the model, compare and "
            "calibrate with where=; load it here for anything else"
        )


def stand_in(model: Any) -> Any:
    """A loaded model as it is sent to the driver. A table of probabilities is small, and goes as it is."""
    denoiser = model.denoiser
    if isinstance(denoiser, ExactDenoiser):
        return model
    device = denoiser.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return replace(model, denoiser=Elsewhere(denoiser.vocabulary, device, machine_name(device), name))
