"""Models behind one contract: a view in, logits of the wanted slots out."""

from unmask.models.cached import BlockCache
from unmask.models.codec import Codec, LetterCodec, Prompt
from unmask.models.exact import ExactDenoiser
from unmask.models.graphs import compile_layers
from unmask.models.guided import GuidedDenoiser
from unmask.models.joint import JointDistribution
from unmask.models.network import Network, pad_view
from unmask.models.readout import default_layers
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
    "pad_view",
]
