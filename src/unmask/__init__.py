"""unmask: decoding for masked diffusion language models.

    import unmask

    model = unmask.load("exact")
    out = model.generate("a", policy="llada", steps=4)
    print(out.text, out.forwards)

Names are looked up on first use, so that importing the package does not load torch. Importing it decides how many
threads torch will use and how they wait (`unmask.threads`), unless torch is there already or the environment says so.
"""

from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from unmask.by_name import loaded_by as _loaded_by
from unmask.displayed import drawn_by as _drawn_by
from unmask.threads import settle as _settle_threads

if TYPE_CHECKING:
    from unmask.api import Generation as Generation
    from unmask.api import Model as Model
    from unmask.catalog import MODELS as MODELS
    from unmask.catalog import load as load
    from unmask.core import Action as Action
    from unmask.core import Noise as Noise
    from unmask.core import Policy as Policy
    from unmask.core import Proposal as Proposal
    from unmask.core import State as State
    from unmask.core import Trajectory as Trajectory
    from unmask.errors import ConfigError as ConfigError
    from unmask.errors import UnmaskError as UnmaskError
    from unmask.lab.calibrate_named import calibrate as calibrate
    from unmask.policies import METHODS as METHODS
    from unmask.policies import compose as compose

__version__ = "0.7.0"

_HOME = {
    "load": "catalog",
    "Model": "api",
    "Generation": "api",
    "calibrate": "lab.calibrate_named",
    "MODELS": "catalog",
    "METHODS": "policies",
    "compose": "policies",
    "Action": "core",
    "Noise": "core",
    "Policy": "core",
    "Proposal": "core",
    "State": "core",
    "Trajectory": "core",
    "UnmaskError": "errors",
    "ConfigError": "errors",
}
__all__ = ["__version__", *sorted(_HOME)]

_settle_threads()
# Above all that it draws, and loaded when somebody looks.
_drawn_by(lambda name: import_module("unmask.notebook").DISPLAYS[name])
# Above the laboratory, which loads the models of its studies.
_loaded_by(lambda name, **options: import_module("unmask.catalog").load(name, **options))


def __getattr__(name: str) -> Any:
    parts = _parts()
    if name in _HOME:
        return getattr(import_module(f"unmask.{_HOME[name]}"), name)
    if name in parts:
        return import_module(f"unmask.{name}")
    close = get_close_matches(name, [*_HOME, *parts], n=3)
    hint = f"did you mean {', '.join(close)}? " if close else ""
    raise AttributeError(f"module 'unmask' has no attribute {name!r}; {hint}public names: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _parts() -> list[str]:
    """Modules and folders of the package, loaded or not."""
    return [module.name for module in iter_modules(__path__)]
