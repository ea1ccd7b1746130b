"""A tree of canvases, and the rules of Monte-Carlo tree search."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from unmask.core import Trajectory


@dataclass(eq=False)
class Node:
    """A canvas of the tree, and the action that led there; its path is the parent's until it is visited."""

    path: Trajectory
    at: int = -1
    token: int = -1
    visits: int = 0
    total: float = 0.0
    children: "list[Node]" = field(default_factory=list)

    @property
    def value(self) -> float:
        return self.total / max(1, self.visits)

    @property
    def known(self) -> bool:
        """Whether nothing below is left to visit."""
        return (self.visits > 0 or self.at < 0) and all(child.known for child in self.children)

    def lines(self) -> "Iterator[list[Node]]":
        """Every way down through visited nodes, this one not counted."""
        yield []
        for child in self.children:
            if child.visits:
                yield from ([child, *line] for line in child.lines())


def uct(child: Node, parent_visits: int, explore: float) -> float:
    """Mean value, and more for what was seldom visited; infinite where never."""
    if child.visits == 0:
        return math.inf
    return child.value + explore * math.sqrt(math.log(parent_visits) / child.visits)


def back_up(line: Sequence[Node], value: float) -> None:
    """Count the visit and its reward all the way up."""
    for node in line:
        node.visits, node.total = node.visits + 1, node.total + value
