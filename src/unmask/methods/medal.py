"""MEDAL (Huang et al. 2026): tree search over the first commitments."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unmask.axes import score
from unmask.core import NO_LOOK_AHEAD, BlockLength, Count, Needs, SearchContext, State, Trajectory
from unmask.methods.blocks import block_clock, check_blocks
from unmask.methods.llada import LLaDA
from unmask.methods.search_tools import (
    Budget,
    ForwardBudget,
    ScheduledSearch,
    annotate,
    has_masks,
    mean_over,
    merge_paths,
    predict_paths,
    reveal,
    start_paths,
)


@dataclass(eq=False)
class Node:
    """A canvas of the search tree, and the action that led there; its path is the parent's until it is visited."""

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


@dataclass(frozen=True)
class MEDAL(ScheduledSearch):
    """Search a tree of first commitments for one that makes the rest confident; let LLaDA finish from there."""

    name: ClassVar[str] = "medal"
    simulations: Count = 16
    """Nodes visited, a forward each."""
    positions: Count = 3
    """Surest positions that a node tries."""
    tokens: Count = 2
    """Most probable tokens tried at each."""
    actions: Count = 4
    """The most probable of those pairs that become children."""
    explore: Annotated[float, Field(ge=0, lt=math.inf)] = 1.0
    """c of UCT."""
    depth: Count = 4
    """Tokens of the start that is searched for."""
    start: Literal["visits", "confidence"] = "visits"
    """"visits": down the most visited children; "confidence": the deepest node that leaves the rest most confident."""
    block_length: BlockLength | None = None
    budget: Budget = "4x"

    @property
    def needs(self) -> Needs:
        return Needs(top_k=max(2, self.tokens))

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=True)
        ForwardBudget(self.budget, self.baseline_forwards(state))

    def decode(self, context: SearchContext, traj: Trajectory) -> Trajectory:
        roots = [self._expanded(Node(path), 0) for path in start_paths(context, traj, self.needs)]
        budget = ForwardBudget(self.budget, self.baseline_forwards(traj.state), context)
        self._grow(context, roots, [min(self.simulations, spare) for spare in budget.left(1)])
        lines = [self._chosen(root) for root in roots]
        paths = [self._begun(context, root, line) for root, line in zip(roots, lines, strict=True)]
        base = LLaDA(self.block_length)
        while going := [row for row, path in enumerate(paths) if has_masks(path)]:
            for row, path in zip(going, predict_paths(context, [paths[row] for row in going], self.needs), strict=True):
                taken = context.apply_action(path, self.name, base.act(path, NO_LOOK_AHEAD))
                paths[row] = _annotate(taken, roots[row], lines[row], first=not path.steps)
            context.report_paths([paths[row] for row in going])
        return merge_paths(traj, paths)

    def _grow(self, context: SearchContext, roots: Sequence[Node], most: Sequence[int]) -> None:
        """Visit as many nodes of every tree, one of each in a pass, until the trees are known whole."""
        for turn in range(max(most)):
            lines = [line for root, n in zip(roots, most, strict=True) if turn < n and (line := self._selected(root))]
            if not lines:
                return
            made = [self._made(context, line) for line in lines]
            for line, path in zip(lines, predict_paths(context, made, self.needs), strict=True):
                line[-1].path = path
                self._expanded(line[-1], len(line) - 1)
                back_up(line, reward(line[-2].path, path))
            context.report_paths([_annotate(line[-1].path, line[0], line, first=False) for line in lines])

    def _selected(self, root: Node) -> list[Node]:
        """From the root to a node that nobody has visited; empty where none is left."""
        if root.known:
            return []
        line = [root]
        while line[-1] is root or line[-1].visits:
            parent = line[-1]
            open_children = [child for child in parent.children if not child.known]
            line.append(max(open_children, key=lambda child: uct(child, parent.visits, self.explore)))
        return line

    def _made(self, context: SearchContext, line: Sequence[Node]) -> Trajectory:
        node, path = line[-1], line[-2].path
        chosen_BL = torch.zeros_like(path.state.masked_BL)
        chosen_BL[0, node.at] = True
        return reveal(context, path, self.name, chosen_BL, torch.full_like(path.state.tokens_BL, node.token))

    def _expanded(self, node: Node, depth: int) -> Node:
        """The node with its actions, surest first; none at the searched depth or where nothing is masked."""
        if depth < self.depth and has_masks(node.path):
            now = node.path.current_prediction.clean
            open_L = block_clock(node.path.state, self.block_length).open_BL[0]
            tops = {
                at: list(zip(now.top_BNK[0, at].tolist(), now.p_BNK[0, at].tolist(), strict=True))
                for at in open_L.nonzero().flatten().tolist()
            }
            kept = actions(tops, self.positions, self.tokens, self.actions)
            node.children = [Node(node.path, at, token) for at, token in kept]
        return node

    def _chosen(self, root: Node) -> list[Node]:
        """The start that was found, from the root's child on; empty where nothing was visited."""
        if self.start == "confidence":
            ends = [(line, line[-1].path if line else root.path) for line in root.lines()]
            return max(ends, key=lambda end: (len(end[0]), confidence(end[1], end[1].state.masked_BL)))[0]
        line, node = [], root
        while seen := [child for child in node.children if child.visits]:
            node = max(seen, key=lambda child: (child.visits, child.value))
            line.append(node)
        return line

    def _begun(self, context: SearchContext, root: Node, line: Sequence[Node]) -> Trajectory:
        """The row with that start written, as many positions a step as the base reveals; it fills up the last step."""
        path, at = root.path, 0
        while at < len(line):
            clock = block_clock(path.state, self.block_length)
            taken = len(line[at : at + max(1, int(clock.quota_B))])
            at, there = at + taken, line[at + taken - 1].path
            tokens_BL, more_BL = there.state.tokens_BL, torch.zeros_like(clock.open_BL)
            if has_masks(there):
                rest_BL = clock.open_BL & there.state.masked_BL
                more_BL = score.best(there.confidence_BL, rest_BL, clock.quota_B - taken)
                tokens_BL = torch.where(more_BL, there.token_BL, tokens_BL)
            after = reveal(
                context, path, self.name, more_BL | (path.state.masked_BL & ~there.state.masked_BL), tokens_BL
            )
            known = None if bool(more_BL.any()) else there.prediction
            path = replace(_annotate(after, root, line, first=not path.steps), prediction=known)
        return path


def actions(
    tops: Mapping[int, Sequence[tuple[int, float]]], positions: int, tokens: int, most: int
) -> list[tuple[int, int]]:
    """Return position and token of the most probable pairs, among the best tokens of the surest positions."""
    surest = sorted(tops, key=lambda at: -tops[at][0][1])[:positions]
    pairs = [(p, at, token) for at in surest for token, p in tops[at][:tokens] if p > 0]
    return [(at, token) for _, at, token in sorted(pairs, key=lambda pair: -pair[0])[:most]]


def reward(before: Trajectory, after: Trajectory) -> float:
    """Return the confidence gained, on average, on the positions that are still masked; 0 where none is."""
    masked_BL = after.state.masked_BL
    return confidence(after, masked_BL) - confidence(before, masked_BL) if has_masks(after) else 0.0


def confidence(path: Trajectory, masked_BL: Tensor) -> float:
    """Return the mean of the largest probabilities of these positions; 1 where there is none."""
    return mean_over(path.top_p_BL, masked_BL) if bool(masked_BL.any()) else 1.0


def _annotate(path: Trajectory, root: Node, line: Sequence[Node], first: bool) -> Trajectory:
    """With the start's value and the nodes of the tree; the first step has all that was visited beside it."""
    visited = [other[-1] for other in root.lines() if other] if first else []
    dropped = [node.path for node in visited if all(node is not kept for kept in line)]
    return annotate(path, line[-1].value if line else root.value, 1 + root.visits, dropped)


def uct(child: Node, parent_visits: int, explore: Annotated[float, Field(ge=0, lt=math.inf)]) -> float:
    """Return the mean value of a node, and more for what was seldom visited; infinite where never."""
    if child.visits == 0:
        return math.inf
    return child.value + explore * math.sqrt(math.log(parent_visits) / child.visits)


def back_up(line: Sequence[Node], value: float) -> None:
    """Count the visit and its reward all the way up."""
    for node in line:
        node.visits, node.total = node.visits + 1, node.total + value
