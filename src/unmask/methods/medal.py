"""MEDAL (Huang et al.). Taxonomy: confidence / search value | search-dependent | full | search-delayed | MCTS."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from unmask.axes import score
from unmask.base.errors import require
from unmask.core import NO_LOOK_AHEAD, Needs, SearchContext, State, Trajectory
from unmask.methods.blocks import check_block_length, check_blocks, clock
from unmask.methods.card import RECONSTRUCTION, Card
from unmask.methods.llada import LLaDA, quota
from unmask.methods.paths import (
    LookBudget,
    ScheduledSearch,
    check_budget,
    ended,
    first_looks,
    is_open,
    looked,
    mean_over,
    noted,
    revealed,
)
from unmask.methods.tree import Node, back_up, uct


@dataclass(frozen=True)
class MEDAL(ScheduledSearch):
    """Search a tree of first commitments for one that makes the rest confident; let LLaDA finish from there."""

    name: ClassVar[str] = "medal"
    card: ClassVar[Card] = Card(
        "Huang et al. 2026, MEDAL (arXiv 2512.12168)",
        "confidence / search value",
        "search-dependent",
        "full",
        "search-delayed",
        planning="MCTS",
        label=RECONSTRUCTION,
        differs=(
            "a standard tree search around the abstract's idea: numbers, reward and choice of the start are ours",
            "a node is run once, when it is first visited; a subtree that is known whole is not visited again",
            "end-of-text actions are not kept out of the tree; use eos_penalty where they dominate",
        ),
    )
    simulations: int = 16
    """Nodes visited, a forward each."""
    positions: int = 3
    """Surest positions that a node tries."""
    tokens: int = 2
    """Most probable tokens tried at each."""
    actions: int = 4
    """The most probable of those pairs that become children."""
    explore: float = 1.0
    """c of UCT."""
    depth: int = 4
    """Tokens of the start that is searched for."""
    start: str = "visits"
    """"visits": down the most visited children; "confidence": the deepest node that leaves the rest most confident."""
    block_length: int | None = None
    budget: int | str = "4x"
    """Forwards per row at most: a number, or times a base decode."""

    def __post_init__(self) -> None:
        check_block_length(self.block_length, "leave it out for one block")
        check_budget(self.budget)
        for name in ("simulations", "positions", "tokens", "actions", "depth"):
            value = getattr(self, name)
            require(1 <= value <= 1_000_000, name, value, "1 to 1000000", "see the defaults")
        require(0 <= self.explore < math.inf, "explore", self.explore, "0 or more", "1 is the default")
        require(self.start in ("visits", "confidence"), "start", self.start, "visits or confidence", "pick one")

    @property
    def needs(self) -> Needs:
        return Needs(top_k=max(2, self.tokens))

    def check(self, state: State) -> None:
        check_blocks(state, self.block_length, even=True)
        LookBudget(self.budget, self.baseline_forwards(state))

    def decode(self, context: SearchContext, traj: Trajectory) -> Trajectory:
        roots = [self._expanded(Node(path), 0) for path in first_looks(context, traj, self.needs)]
        budget = LookBudget(self.budget, self.baseline_forwards(traj.state), context)
        self._grow(context, roots, [min(self.simulations, spare) for spare in budget.left(1)])
        lines = [self._chosen(root) for root in roots]
        paths = [self._begun(context, root, line) for root, line in zip(roots, lines, strict=True)]
        base = LLaDA(self.block_length)
        while going := [row for row, path in enumerate(paths) if is_open(path)]:
            for row, path in zip(going, looked(context, [paths[row] for row in going], self.needs), strict=True):
                taken = context.apply_action(path, self.name, base.act(path, NO_LOOK_AHEAD))
                paths[row] = _noted(taken, roots[row], lines[row], first=not path.steps)
            context.report_paths([paths[row] for row in going])
        return ended(traj, paths)

    def _grow(self, context: SearchContext, roots: "Sequence[Node]", most: Sequence[int]) -> None:
        """Visit as many nodes of every tree, one of each in a pass, until the trees are known whole."""
        for turn in range(max(most)):
            lines = [line for root, n in zip(roots, most, strict=True) if turn < n and (line := self._selected(root))]
            if not lines:
                return
            made = [self._made(context, line) for line in lines]
            for line, path in zip(lines, looked(context, made, self.needs), strict=True):
                line[-1].path = path
                self._expanded(line[-1], len(line) - 1)
                back_up(line, reward(line[-2].path, path))
            context.report_paths([_noted(line[-1].path, line[0], line, first=False) for line in lines])

    def _selected(self, root: "Node") -> "list[Node]":
        """From the root to a node that nobody has visited; empty where none is left."""
        if root.known:
            return []
        line = [root]
        while line[-1] is root or line[-1].visits:
            parent = line[-1]
            open_children = [child for child in parent.children if not child.known]
            line.append(max(open_children, key=lambda child: uct(child, parent.visits, self.explore)))
        return line

    def _made(self, context: SearchContext, line: "Sequence[Node]") -> Trajectory:
        node, path = line[-1], line[-2].path
        chosen_BL = torch.zeros_like(path.state.masked_BL)
        chosen_BL[0, node.at] = True
        return revealed(context, path, self.name, chosen_BL, torch.full_like(path.state.tokens_BL, node.token))

    def _expanded(self, node: "Node", depth: int) -> "Node":
        """The node with its actions, surest first; none at the searched depth or where nothing is masked."""
        if depth < self.depth and is_open(node.path):
            now = node.path.current_prediction.clean
            open_L = clock(node.path.state, self.block_length).open_BL[0]
            tops = {
                at: list(zip(now.top_BNK[0, at].tolist(), now.p_BNK[0, at].tolist(), strict=True))
                for at in open_L.nonzero().flatten().tolist()
            }
            kept = actions(tops, self.positions, self.tokens, self.actions)
            node.children = [Node(node.path, at, token) for at, token in kept]
        return node

    def _chosen(self, root: "Node") -> "list[Node]":
        """The start that was found, from the root's child on; empty where nothing was visited."""
        if self.start == "confidence":
            ends = [(line, line[-1].path if line else root.path) for line in root.lines()]
            return max(ends, key=lambda end: (len(end[0]), confidence(end[1], end[1].state.masked_BL)))[0]
        line, node = [], root
        while seen := [child for child in node.children if child.visits]:
            node = max(seen, key=lambda child: (child.visits, child.value))
            line.append(node)
        return line

    def _begun(self, context: SearchContext, root: "Node", line: "Sequence[Node]") -> Trajectory:
        """The row with that start written, as many positions a step as the base reveals; it fills up the last step."""
        path, at = root.path, 0
        while at < len(line):
            now = clock(path.state, self.block_length)
            taken = len(line[at : at + max(1, int(quota(now)))])
            at, there = at + taken, line[at + taken - 1].path
            tokens_BL, more_BL = there.state.tokens_BL, torch.zeros_like(now.open_BL)
            if is_open(there):
                rest_BL, seen = now.open_BL & there.state.masked_BL, there.current_prediction
                more_BL = score.best(seen.confidence_BN[:, : rest_BL.shape[1]], rest_BL, quota(now) - taken)
                tokens_BL = torch.where(more_BL, seen.token_BN[:, : rest_BL.shape[1]], tokens_BL)
            after = revealed(
                context, path, self.name, more_BL | (path.state.masked_BL & ~there.state.masked_BL), tokens_BL
            )
            known = None if bool(more_BL.any()) else there.prediction
            path = replace(_noted(after, root, line, first=not path.steps), prediction=known)
        return path


def actions(
    tops: Mapping[int, Sequence[tuple[int, float]]], positions: int, tokens: int, most: int
) -> list[tuple[int, int]]:
    """Position and token of the most probable pairs, among the best tokens of the surest positions."""
    surest = sorted(tops, key=lambda at: -tops[at][0][1])[:positions]
    pairs = [(p, at, token) for at in surest for token, p in tops[at][:tokens] if p > 0]
    return [(at, token) for _, at, token in sorted(pairs, key=lambda pair: -pair[0])[:most]]


def reward(before: Trajectory, after: Trajectory) -> float:
    """Confidence gained, on average, on the positions that are still masked; 0 where none is."""
    masked_BL = after.state.masked_BL
    return confidence(after, masked_BL) - confidence(before, masked_BL) if is_open(after) else 0.0


def confidence(path: Trajectory, masked_BL: Tensor) -> float:
    """Mean of the largest probabilities of these positions; 1 where there is none."""
    return mean_over(path.current_prediction.clean.p_BNK[..., 0], masked_BL) if bool(masked_BL.any()) else 1.0


def _noted(path: Trajectory, root: Node, line: Sequence[Node], first: bool) -> Trajectory:
    """With the start's value and the nodes of the tree; the first step has all that was visited beside it."""
    visited = [other[-1] for other in root.lines() if other] if first else []
    dropped = [node.path for node in visited if all(node is not kept for kept in line)]
    return noted(path, line[-1].value if line else root.value, 1 + root.visits, dropped)
