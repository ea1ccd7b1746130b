"""Models behind one contract: a view in, logits of the wanted slots out."""

from unmask.denoisers.exact import Exact
from unmask.denoisers.guided import Guided
from unmask.denoisers.joint import Joint

__all__ = ["Exact", "Guided", "Joint"]
