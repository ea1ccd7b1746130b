"""Models behind one contract: a view in, logits of the wanted slots out."""

from unmask.denoisers.cached import BlockCache
from unmask.denoisers.codec import Codec, LetterCodec, Prompt
from unmask.denoisers.exact import ExactDenoiser
from unmask.denoisers.guided import GuidedDenoiser
from unmask.denoisers.joint import JointDistribution
from unmask.denoisers.network import Network

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
