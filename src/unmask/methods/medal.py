"""MEDAL (Huang et al. 2026): tree search over the first tokens of an answer."""

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
    annotate_last_step,
    has_masks,
    mean_at_positions,
    merge_paths,
    predict_paths,
    reveal_positions,
    start_paths,
)


@dataclass(eq=False)
class Node:
    """A node of the search tree: a canvas, and the position and token that led to it from its parent."""

    path: Trajectory
    """The node's path; its parent's until the node is visited."""
    at: int = -1
    token: int = -1
    visits: int = 0
    total: float = 0.0
    """Sum of the rewards of all visits."""
    children: "list[Node]" = field(default_factory=list)

    @property
    def value(self) -> float:
        return self.total / max(1, self.visits)

    @property
    def is_explored(self) -> bool:
        """Whether this node and all nodes below it have been visited; the root counts as visited."""
        return (self.visits > 0 or self.at < 0) and all(child.is_explored for child in self.children)

    def visited_lines(self) -> "Iterator[list[Node]]":
        """Yield every line of visited nodes that starts at a child of this node, and the empty line."""
        yield []
        for child in self.children:
            if child.visits:
                yield from ([child, *line] for line in child.visited_lines())


@dataclass(frozen=True)
class MEDAL(ScheduledSearch):
    """Search a tree of first tokens for a start that makes the rest confident; LLaDA finishes the answer."""

    name: ClassVar[str] = "medal"
    simulations: Count = 16
    """Number of nodes to visit, one forward each."""
    positions: Count = 3
    """Number of surest positions that a node tries."""
    tokens: Count = 2
    """Number of most probable tokens that are tried at each position."""
    actions: Count = 4
    """Number of these pairs, the most probable ones, that become children."""
    explore: Annotated[float, Field(ge=0, lt=math.inf)] = 1.0
    """Weight c of exploration in UCT."""
    depth: Count = 4
    """Number of tokens of the start that is searched for."""
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
        roots = [Node(path) for path in start_paths(context, traj, self.needs)]
        for root in roots:
            self._add_children(root, 0)
        budget = ForwardBudget(self.budget, self.baseline_forwards(traj.state), context)
        self._grow_trees(context, roots, [min(self.simulations, spare) for spare in budget.remaining_passes(1)])
        starts = [self._choose_start(root) for root in roots]
        paths = [self._write_start(context, root, line) for root, line in zip(roots, starts, strict=True)]
        base = LLaDA(self.block_length)
        while going := [row for row, path in enumerate(paths) if has_masks(path)]:
            for row, path in zip(going, predict_paths(context, [paths[row] for row in going], self.needs), strict=True):
                after = context.apply_action(path, self.name, base.act(path, NO_LOOK_AHEAD))
                paths[row] = _annotate_start(after, roots[row], starts[row], first=not path.steps)
            context.report_paths([paths[row] for row in going])
        return merge_paths(traj, paths)

    def _grow_trees(self, context: SearchContext, roots: Sequence[Node], most: Sequence[int]) -> None:
        """Visit at most that many nodes of each tree, one node of every tree in a pass."""
        for turn in range(max(most)):
            growing = [root for root, n in zip(roots, most, strict=True) if turn < n and not root.is_explored]
            lines = [self._descend(root) for root in growing]
            if not lines:
                return
            paths = []
            for *_, parent, node in lines:
                chosen_BL = torch.zeros_like(parent.path.state.masked_BL)
                chosen_BL[0, node.at] = True
                tokens_BL = torch.full_like(parent.path.state.tokens_BL, node.token)
                paths.append(reveal_positions(context, parent.path, self.name, chosen_BL, tokens_BL))
            for line, path in zip(lines, predict_paths(context, paths, self.needs), strict=True):
                parent, node = line[-2:]
                node.path = path
                self._add_children(node, len(line) - 1)
                # The reward is the mean gain of confidence on the positions that are still masked: the same positions
                # before and after, or revealing an unsure one would look like a gain.
                masked_BL, gain = path.state.masked_BL, 0.0
                if has_masks(path):
                    gain = mean_confidence(path, masked_BL) - mean_confidence(parent.path, masked_BL)
                add_visit(line, gain)
            context.report_paths([_annotate_start(line[-1].path, line[0], line, first=False) for line in lines])

    def _descend(self, root: Node) -> list[Node]:
        """Return the line of nodes from the root to an unvisited node, by the largest UCT at every level."""
        line = [root]
        while line[-1] is root or line[-1].visits:
            parent = line[-1]
            open_children = [child for child in parent.children if not child.is_explored]
            line.append(max(open_children, key=lambda child: uct(child, parent.visits, self.explore)))
        return line

    def _add_children(self, node: Node, depth: int) -> None:
        """Give a node its children, the most probable first; none at the full depth or without masks."""
        if depth == self.depth or not has_masks(node.path):
            return
        clean = node.path.current_prediction.clean
        open_L = block_clock(node.path.state, self.block_length).open_BL[0]
        tops = {
            at: list(zip(clean.top_BNK[0, at].tolist(), clean.p_BNK[0, at].tolist(), strict=True))
            for at in open_L.nonzero().flatten().tolist()
        }
        kept = most_probable_actions(tops, self.positions, self.tokens, self.actions)
        node.children = [Node(node.path, at, token) for at, token in kept]

    def _choose_start(self, root: Node) -> list[Node]:
        """Return the line of nodes of the start that is kept, without the root; empty if nothing was visited."""
        if self.start == "confidence":
            ends = [(line, line[-1].path if line else root.path) for line in root.visited_lines()]
            return max(ends, key=lambda end: (len(end[0]), mean_confidence(end[1], end[1].state.masked_BL)))[0]
        line, node = [], root
        while visited := [child for child in node.children if child.visits]:
            node = max(visited, key=lambda child: (child.visits, child.value))
            line.append(node)
        return line

    def _write_start(self, context: SearchContext, root: Node, line: Sequence[Node]) -> Trajectory:
        """Write the start at the pace of LLaDA's schedule; LLaDA's own choice fills up the last of these steps."""
        path, at = root.path, 0
        while at < len(line):
            clock = block_clock(path.state, self.block_length)
            written = len(line[at : at + max(1, int(clock.quota_B))])
            at, there = at + written, line[at + written - 1].path
            tokens_BL, more_BL = there.state.tokens_BL, torch.zeros_like(clock.open_BL)
            if has_masks(there):
                rest_BL = clock.open_BL & there.state.masked_BL
                more_BL = score.best(there.confidence_BL, rest_BL, clock.quota_B - written)
                tokens_BL = torch.where(more_BL, there.token_BL, tokens_BL)
            chosen_BL = more_BL | (path.state.masked_BL & ~there.state.masked_BL)
            after = reveal_positions(context, path, self.name, chosen_BL, tokens_BL)
            # Without further positions the canvas is the node's own, and its prediction is known already.
            known = None if bool(more_BL.any()) else there.prediction
            path = replace(_annotate_start(after, root, line, first=not path.steps), prediction=known)
        return path


def most_probable_actions(
    tops: Mapping[int, Sequence[tuple[int, float]]], positions: int, tokens: int, most: int
) -> list[tuple[int, int]]:
    """Return the most probable (position, token) pairs among the best tokens of the surest positions."""
    surest = sorted(tops, key=lambda at: -tops[at][0][1])[:positions]
    pairs = [(p, at, token) for at in surest for token, p in tops[at][:tokens] if p > 0]
    return [(at, token) for _, at, token in sorted(pairs, key=lambda pair: -pair[0])[:most]]


def mean_confidence(path: Trajectory, masked_BL: Tensor) -> float:
    """Return the mean largest probability at these positions; 1 without positions."""
    return mean_at_positions(path.top_p_BL, masked_BL) if bool(masked_BL.any()) else 1.0


def _annotate_start(path: Trajectory, root: Node, line: Sequence[Node], first: bool) -> Trajectory:
    """Note the start's value and the tree's size on the last step; on a first step also the nodes that were dropped."""
    visited = [other[-1] for other in root.visited_lines() if other] if first else []
    dropped = [node.path for node in visited if all(node is not kept for kept in line)]
    return annotate_last_step(path, line[-1].value if line else root.value, 1 + root.visits, dropped)


def uct(child: Node, parent_visits: int, explore: float) -> float:
    """Return a node's upper confidence bound (UCT): its mean value plus a bonus for few visits."""
    if child.visits == 0:
        return math.inf
    return child.value + explore * math.sqrt(math.log(parent_visits) / child.visits)


def add_visit(line: Sequence[Node], value: float) -> None:
    """Add a visit with this reward to every node of the line."""
    for node in line:
        node.visits, node.total = node.visits + 1, node.total + value
