"""Models behind one contract: a view in, logits of the wanted slots out."""

from unmask.denoisers.codec import Codec, LetterCodec
from unmask.denoisers.exact import Exact
from unmask.denoisers.guided import Guided
from unmask.denoisers.joint import Joint

__all__ = ["Codec", "Exact", "Guided", "Joint", "LetterCodec"]
