"""Models behind one contract: a view in, logits of the wanted slots out."""

from unmask.models.cached import BlockCache
from unmask.models.codec import Codec, LetterCodec, Prompt
from unmask.models.exact import ExactDenoiser
from unmask.models.guided import GuidedDenoiser
from unmask.models.joint import JointDistribution
from unmask.models.network import Network

__all__ = [
    "BlockCache",
    "Codec",
    "ExactDenoiser",
    "GuidedDenoiser",
    "JointDistribution",
    "LetterCodec",
    "Network",
    "Prompt",
]
