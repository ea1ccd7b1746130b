"""unmask: decoding for masked diffusion language models.

    import unmask

    model = unmask.load("exact")
    out = model.generate("a", policy="llada", steps=4)
    print(out.text, out.forwards)

Names are imported on first use, so that `import unmask` does not load torch. The import limits the threads of OpenMP to
four for the whole process, and makes them sleep while they wait. Set UNMASK_THREADS to another number, or to "keep" to
change nothing. Variables such as OMP_NUM_THREADS that you set yourself are not changed, and once torch is loaded
nothing is.
"""

__version__ = "0.8.0"  # Before the imports, because `unmask.base.environment` reads it.

from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from unmask.base.environment import configure_threads as _configure_threads
from unmask.base.errors import explain_import

if TYPE_CHECKING:
    from unmask.api.load import MODELS as MODELS
    from unmask.api.load import load as load
    from unmask.api.model import Generation as Generation
    from unmask.api.model import Model as Model
    from unmask.base.errors import ConfigError as ConfigError
    from unmask.base.errors import UnmaskError as UnmaskError
    from unmask.core import Action as Action
    from unmask.core import Noise as Noise
    from unmask.core import Policy as Policy
    from unmask.core import SamplingParams as SamplingParams
    from unmask.core import State as State
    from unmask.core import Trajectory as Trajectory
    from unmask.engine.decode import decode as decode
    from unmask.lab.calibrate import calibrate as calibrate
    from unmask.methods import METHODS as METHODS
    from unmask.methods import compose as compose

_NAMES = {
    "api.load": ("MODELS", "load"),
    "api.model": ("Generation", "Model"),
    "base.errors": ("ConfigError", "UnmaskError"),
    "core": ("Action", "Noise", "Policy", "SamplingParams", "State", "Trajectory"),
    "engine": ("decode",),
    "lab.calibrate": ("calibrate",),
    "methods": ("METHODS", "compose"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
__all__ = ["__version__", *sorted(_HOME)]

_configure_threads()


def __getattr__(name: str) -> Any:
    try:
        if name in _HOME:
            value = getattr(import_module(f"unmask.{_HOME[name]}"), name)
            # Python asks this function only for names that the module does not have.
            globals()[name] = value
            return value
        packages = [module.name for module in iter_modules(__path__)]
        if name in packages:
            return import_module(f"unmask.{name}")
    except ModuleNotFoundError as error:
        # If the missing package belongs to an extra, the error names the extra.
        raise explain_import(error) from error
    close = get_close_matches(name, [*_HOME, *packages], n=3)
    hint = f"did you mean {', '.join(close)}? " if close else ""
    raise AttributeError(f"module 'unmask' has no attribute {name!r}; {hint}public names: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
