"""Models behind one contract: a view in, logits of the wanted slots out."""

from unmask.denoisers.cached import ApproximateCache
from unmask.denoisers.codec import Codec, LetterCodec, Prompt
from unmask.denoisers.exact import Exact
from unmask.denoisers.guided import Guided
from unmask.denoisers.joint import Joint
from unmask.denoisers.network import Network

__all__ = ["ApproximateCache", "Codec", "Exact", "Guided", "Joint", "LetterCodec", "Network", "Prompt"]
