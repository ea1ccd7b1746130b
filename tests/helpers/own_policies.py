"""Files with policies as a user would write them: one that works, and some that do not."""

HEAD = """
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from unmask.core import Policy
from unmask.methods import fixed_action
"""

GOOD = (
    HEAD
    + '''

@dataclass(frozen=True)
class Counted(Policy):
    """So many positions at a time."""

    name: ClassVar[str] = "counted"
    count: int = 2
    order: Literal["left", "any"] = "any"
    shares: tuple[float, ...] = ()

    def act(self, traj, look_ahead):
        region = "full" if self.order == "any" else f"window:{self.count}"
        return fixed_action(region=region, cardinality=f"count:{self.count}").act(traj, look_ahead)


@dataclass(frozen=True)
class Needy(Counted):
    name: ClassVar[str] = "needy"
    needed: int = field(kw_only=True)


@dataclass(frozen=True)
class Raises(Counted):
    name: ClassVar[str] = "raises"

    def act(self, traj, look_ahead):
        raise KeyError("half a character: \\ud800")


@dataclass(frozen=True)
class Refuses(Counted):
    name: ClassVar[str] = "refuses"

    def __post_init__(self):
        raise RuntimeError("not today")


@dataclass(frozen=True)
class Abstract(Policy):
    name: ClassVar[str] = "abstract"


@dataclass(frozen=True)
class Nameless(Policy):
    def act(self, traj, look_ahead):
        return fixed_action().act(traj, look_ahead)


class Plain(Policy):
    name = "plain"

    def act(self, traj, look_ahead):
        return fixed_action().act(traj, look_ahead)


class Other:
    pass


number = 3
'''
)
