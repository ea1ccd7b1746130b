"""The models that pages decode with: each loaded once, when it is first needed, by whichever thread needs it."""

import threading
from collections.abc import Callable, Mapping

from unmask.api import Model
from unmask.base.errors import UnknownName

Loader = Callable[[], Model]


class LoadedModels:
    """Models by name."""

    def __init__(self, loaders: Mapping[str, Loader]):
        self._loaders = dict(loaders)
        self._loaded: dict[str, Model] = {}
        self._locks = {name: threading.Lock() for name in loaders}

    @property
    def names(self) -> list[str]:
        return list(self._loaders)

    def there(self, name: str) -> bool:
        """Whether it is loaded already."""
        return name in self._loaded

    def get(self, name: str) -> Model:
        """The model; whoever asks first waits for it, and whoever asks meanwhile waits along."""
        if name not in self._loaders:
            raise UnknownName("model", name, self._loaders)
        with self._locks[name]:
            if name not in self._loaded:
                self._loaded[name] = self._loaders[name]()
            return self._loaded[name]
