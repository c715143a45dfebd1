"""Monte Carlo tree search as functions of an immutable tree: select, expand, backup.

Made for one player who may stop anywhere and keeps the best state passed: what is backed up to an edge is the best
value from there on, not that of a final state. States that are reached in several ways are one node (a transposition),
so the tree is a graph and may have cycles; a path never enters a node twice. Wide nodes are opened little by little
(progressive widening, Coulom 2007), in an order that is given with the node.

Selection is UCT (Kocsis and Szepesvari 2006) or PUCT (Silver et al. 2017). Values of all sizes are scaled to 0..1 by
the range seen so far, so that the exploration constant means the same for every problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Edge:
    """An action that was tried: the node it leads to, and what came back."""

    child: str
    visits: int = 0
    total: float = 0.0
    best: float = -math.inf

    def quality(self, best_share: float) -> float:
        """Between the mean (0.0) and the best (1.0) of what came back."""
        return (1.0 - best_share) * self.total / self.visits + best_share * self.best


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A state: its own value, its actions in the order in which they are opened, and the edges opened so far."""

    value: float
    actions: tuple[int, ...] = ()
    priors: Mapping[int, float] = field(default_factory=dict)
    """Prior probability by action; actions that are missing count as equally likely."""
    edges: Mapping[int, Edge] = field(default_factory=dict)

    @property
    def visits(self) -> int:
        """Simulations that passed or ended here."""
        return 1 + sum(edge.visits for edge in self.edges.values())

    @property
    def is_open(self) -> bool:
        """Return whether an action was never tried."""
        return len(self.edges) < len(self.actions)

    @property
    def known_value(self) -> float:
        """The best value known at or after this state."""
        return max(self.value, max((edge.best for edge in self.edges.values()), default=-math.inf))

    def prior(self, action: int) -> float:
        """The action's prior probability."""
        return self.priors.get(action, 1.0 / len(self.actions))


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes by the key of their state, and the range of values that were backed up."""

    root: str
    nodes: Mapping[str, TreeNode]
    low: float
    high: float
    closed: frozenset[str] = frozenset()
    """Nodes from which no untried action can be reached: nothing new is to be found there."""

    def scaled(self, value: float) -> float:
        """A value in the range seen so far, 0..1; 0.5 while there is no range."""
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5


class Selection(NamedTuple):
    """The end of a descent: edges taken as (node, action), the last node, and the action to try there.

    `action` is None where there is nothing to try: at the depth limit, or where all that follows was seen on the way.
    """

    path: tuple[tuple[str, int], ...]
    node: str
    action: int | None


class Score(Protocol):
    """Ranks the edges of a node; the highest is followed."""

    def __call__(self, *, tree: Tree, node: TreeNode, action: int) -> float: ...


def plant(*, key: str, node: TreeNode) -> Tree:
    """A tree of one node."""
    return Tree(key, {key: node}, node.value, node.value)


def uct(*, exploration: float, best_share: float) -> Score:
    """Upper confidence bound: quality + exploration * sqrt(ln(visits of the node) / visits of the edge)."""

    def score(*, tree: Tree, node: TreeNode, action: int) -> float:
        edge = node.edges[action]
        bonus = math.sqrt(math.log(node.visits) / edge.visits)
        return tree.scaled(edge.quality(best_share)) + exploration * bonus

    return score


def puct(*, exploration: float, best_share: float) -> Score:
    """AlphaGo Zero's: quality + exploration * prior * sqrt(visits of the node) / (1 + visits of the edge)."""

    def score(*, tree: Tree, node: TreeNode, action: int) -> float:
        edge = node.edges[action]
        bonus = node.prior(action) * math.sqrt(node.visits) / (1 + edge.visits)
        return tree.scaled(edge.quality(best_share)) + exploration * bonus

    return score


def widen(*, visits: int, width: float, exponent: float) -> int:
    """Return how many actions of a node may be open after that many visits: ceil(width * visits ** exponent)."""
    return math.ceil(width * math.pow(visits, exponent))


def select(*, tree: Tree, score: Score, allowed: Callable[[int], int], depth: int) -> Selection:
    """Descend from the root by the highest score to an action that was not tried, at most `depth` edges deep.

    Args:
        allowed: how many actions may be open at a node, by its visits.
    """
    key, path, passed = tree.root, list[tuple[str, int]](), {tree.root}
    while True:
        node = tree.nodes[key]
        if len(path) >= depth:
            return Selection(tuple(path), key, None)
        going_on = [
            action
            for action, edge in node.edges.items()
            if edge.child not in passed and edge.child not in tree.closed
        ]  # fmt: skip
        if node.is_open and (len(node.edges) < allowed(node.visits) or not going_on):
            return Selection(tuple(path), key, node.actions[len(node.edges)])
        if not going_on:
            return Selection(tuple(path), key, None)
        action = max(going_on, key=lambda action: score(tree=tree, node=node, action=action))
        path.append((key, action))
        key = node.edges[action].child
        passed.add(key)


def expand(*, tree: Tree, parent: str, action: int, key: str, node: TreeNode) -> Tree:
    """The tree with an edge from `parent` to the state `key`. A state that is there already keeps its node.

    Raises:
        ValueError: the action was tried before, or is not the next one to be opened.
    """
    before = tree.nodes[parent]
    if not before.is_open or before.actions[len(before.edges)] != action:
        raise ValueError(f"action {action} is not the next one to be opened at {parent}")
    nodes = {**tree.nodes, parent: replace(before, edges={**before.edges, action: Edge(key)})}
    nodes.setdefault(key, node)
    return replace(tree, nodes=nodes)


def discard(*, tree: Tree, parent: str, action: int) -> Tree:
    """The tree without an action that turned out to lead nowhere."""
    node = tree.nodes[parent]
    left = tuple(other for other in node.actions if other != action)
    return replace(tree, nodes={**tree.nodes, parent: replace(node, actions=left)})


def backup(*, tree: Tree, path: tuple[tuple[str, int], ...], value: float) -> Tree:
    """The tree after a simulation: each edge of the path gets the best of `value`, which was found at or after the
    path's end, and of the values of the nodes between."""
    nodes = dict(tree.nodes)
    low, high = min(tree.low, value), max(tree.high, value)
    for key, action in reversed(path):
        node = nodes[key]
        edge = node.edges[action]
        value = max(value, nodes[edge.child].value)
        high = max(high, value)
        updated = Edge(edge.child, edge.visits + 1, edge.total + value, max(edge.best, value))
        nodes[key] = replace(node, edges={**node.edges, action: updated})
    return replace(tree, nodes=nodes, low=low, high=high)


def close(*, tree: Tree) -> Tree:
    """The tree with `closed` brought up to date. When the root is closed, every reachable state was visited."""
    parents: dict[str, list[str]] = {}
    for key, node in tree.nodes.items():
        for edge in node.edges.values():
            parents.setdefault(edge.child, []).append(key)
    pending = [key for key, node in tree.nodes.items() if node.is_open]
    reached = set(pending)
    while pending:
        for parent in parents.get(pending.pop(), ()):
            if parent not in reached:
                reached.add(parent)
                pending.append(parent)
    return replace(tree, closed=frozenset(tree.nodes.keys() - reached))
