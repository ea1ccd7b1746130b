"""Networks behind one contract: tokens in, logits of the wanted slots out."""

from unmask.models.attention_readout import default_layers
from unmask.models.cached import BlockCache
from unmask.models.codec import Codec, LetterCodec, Prompt
from unmask.models.exact import ExactDenoiser, JointDistribution
from unmask.models.execution import compile_layers
from unmask.models.guidance import GuidedDenoiser
from unmask.models.network import Network, pad_input
from unmask.models.transformer import Fused, Transformer, TransformerSpec

__all__ = [
    "BlockCache",
    "Codec",
    "ExactDenoiser",
    "Fused",
    "GuidedDenoiser",
    "JointDistribution",
    "LetterCodec",
    "Network",
    "Prompt",
    "Transformer",
    "TransformerSpec",
    "compile_layers",
    "default_layers",
    "pad_input",
]
