"""Classifier-free guidance around any denoiser: u + (w + 1)(z - u), where u are logits with the prompt hidden."""

from dataclasses import dataclass, replace

import torch

from unmask.base.errors import require
from unmask.core import Denoiser, DenoiserWrapper, ModelInput, ModelOutput, Needs


@dataclass(frozen=True)
class GuidedDenoiser(DenoiserWrapper):
    """A denoiser with classifier-free guidance: its logits are pushed away from those without the prompt.

    The two forwards of a step run apart, each of the usual shape, so that the conditional logits keep their bits.
    """

    denoiser: Denoiser
    scale: float

    def __post_init__(self) -> None:
        ok = 0 < self.scale < float("inf")
        require(ok, "cfg_scale", self.scale, "above 0, finite", "0 means no guidance: use the denoiser itself")

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        conditional = self.denoiser(inputs, needs)
        hidden_BN = torch.where(inputs.fixed_BN, self.vocabulary.mask_id, inputs.tokens_BN)
        free = self.denoiser(replace(inputs, tokens_BN=hidden_BN), replace(needs, attention=False, hidden=False))
        z_RV, u_RV = conditional.logits_RV, free.logits_RV
        return replace(
            conditional,
            # Where both agree the mixture must agree, too: at -inf the difference below would be NaN.
            logits_RV=torch.where(z_RV == u_RV, z_RV, u_RV + (self.scale + 1) * (z_RV - u_RV)),
            forwards=conditional.forwards + free.forwards,
        )
