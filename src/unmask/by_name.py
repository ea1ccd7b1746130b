"""A model by its name, for parts that lie below the catalog: the package says in its `__init__` who loads it."""

from collections.abc import Callable
from typing import Any

from unmask.errors import ContractError

_loader: list[Callable[..., Any]] = []


def loaded_by(load: Callable[..., Any]) -> None:
    """Say who does; `load` is called as `unmask.load` is."""
    _loader[:] = [load]


def load_by_name(name: str, **options: Any) -> Any:
    """`unmask.load(name, **options)`."""
    if not _loader:
        raise ContractError("nobody has said who loads models; import unmask first")
    return _loader[0](name, **options)
