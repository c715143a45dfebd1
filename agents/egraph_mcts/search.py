"""Monte Carlo tree search over the order in which rules build an e-graph. Knows nothing of problems and latencies.

Hartmann, He, Yoneki, "Optimizing Tensor Computation Graphs with Equality Saturation and Monte Carlo Tree Search",
PACT'24, section 4.1 and algorithm 1. A node is an e-graph, an edge the application of a rule. Two things are done
otherwise than the paper's text says, neither of which changes what is searched: whether a rule can change an e-graph is
found out when the rule is drawn, not for all rules as a node is made; and a node is credited with what its own
application gained as well as with the simulation behind it, so that the first rule of a good order is not passed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from graph_rewrite.egraph import Application, EGraph, apply_rule
from graph_rewrite.egraph.base import Base
from graph_rewrite.egraph.costs import NodeCost, TreeCostTracker, costed
from graph_rewrite.egraph.extract import Method, extract
from graph_rewrite.egraph.fingerprint import fingerprint
from graph_rewrite.egraph.tracker import SharedCostTracker
from graph_rewrite.rule import Rule

EXPLORATION = 2.0 * math.sqrt(2.0)
"""Exploration constant of the published code; rewards are percent of the first cost."""


@dataclass(frozen=True, slots=True)
class Options:
    """Parameters of the search, by default as published.

    `main` is the extraction that gives the rewards: `shared` and `tree` follow the e-graph step by step, `dag` and
    `ilp` extract anew, once per distinct e-graph.
    """

    budget: int = 128
    """Simulations per applied rule, those of a subtree that is used again among them."""
    depth: int = 10
    """Applications per simulation behind the new node."""
    node_limit: int = 2000
    exploration: float = EXPLORATION
    stop_probability: float = 0.5
    main: Method = "shared"
    reuse: bool = True
    """Keep the subtree below the best child."""


@dataclass(slots=True, eq=False)
class State:
    """An e-graph under construction with its cost by the main extraction; what it holds never changes."""

    egraph: EGraph
    tracker: TreeCostTracker | SharedCostTracker | None
    cost: float = math.inf
    applications: tuple[Application, ...] = ()
    present: list[Rule] | None = None
    """Rules whose operators are all in the e-graph, once they were asked for."""


@dataclass(slots=True, eq=False)
class Node:
    """A node of the tree: value and visits as in section 4.1, children by rule, and the blacklist."""

    state: State
    gain: float = 0.0
    """What the application that led here saved, in percent of the first cost."""
    value: float = 0.0
    visits: int = 0
    exhausted: bool = False
    """Whether nothing below can change any more: the node limit is reached, or every rule has saturated."""
    children: dict[Rule, Node] = field(default_factory=dict)
    blacklist: set[Rule] = field(default_factory=set)
    """Rules that leave this e-graph as it is."""

    @property
    def average(self) -> float:
        return self.value / self.visits if self.visits else 0.0


def rebase(root: Node) -> None:
    """Make what rules match at a node known to all below it, which have grown from its e-graph."""
    base = Base(root.state.egraph)
    waiting = [root]
    while waiting:
        node = waiting.pop()
        node.state.egraph.base = base
        waiting.extend(node.children.values())


class ConstructionSearch:
    """Algorithm 1: search, apply the best rule, repeat until the e-graph has saturated or reached the limit.

    Args:
        start: the e-graph; not changed.
        rules: what can be applied.
        cost: of an e-node alone.
        rng: makes rollouts and stops reproducible.
        match_limit: most matches of the next application; 0 ends the search.
        on_application: told of every application, simulated ones among them.
        on_move: told of the start and of the state that each applied rule leads to.
        out_of_time: asked before every application; true ends the search with what was built. The time for one rule
            is up where `move_over`, called with the number of rules applied so far, says so.
    """

    def __init__(
        self,
        start: EGraph,
        rules: Sequence[Rule],
        cost: NodeCost,
        options: Options,
        rng: np.random.Generator,
        *,
        match_limit: Callable[[], int | None] = lambda: 1000,
        on_application: Callable[[Application], None] = lambda application: None,
        on_move: Callable[[State], None] = lambda state: None,
        out_of_time: Callable[[], bool] = lambda: False,
        move_over: Callable[[int], bool] = lambda moves: False,
    ) -> None:
        self._rules, self._cost, self.options, self._rng = tuple(rules), cost, options, rng
        self._match_limit, self._on_application, self._on_move = match_limit, on_application, on_move
        self._out_of_time, self._move_over = out_of_time, move_over
        self._costs: dict[int, float] = {}
        self._by_operators: dict[frozenset[tuple[str, str]], list[Rule]] = {}
        self.simulations = 0
        self.first = self._measured(State(start.fork(), None))
        self.first.egraph.base = Base(self.first.egraph)
        self.best = self.first
        """The state of least cost that any simulation passed, the earliest of several."""
        self.root = Node(self.first)

    def run(self) -> State:
        """Build the e-graph; the state reached. `best` may cost less: what was only simulated counts there too."""
        moves = 0
        self._on_move(self.root.state)
        while not self._full(self.root.state):
            self._search(moves)
            children = [child for child in self.root.children.values() if child.visits]
            if not children:
                break
            best = max(children, key=lambda child: child.average)
            self.root = best if self.options.reuse else Node(best.state, best.gain)
            rebase(self.root)
            self._on_move(self.root.state)
            moves += 1
        return self.root.state

    def _search(self, moves: int) -> None:
        """Simulations from the root until its budget is used up; none are started when time is over."""
        while self.root.visits < self.options.budget and not self.root.exhausted:
            if self._out_of_time() or (self.root.children and self._move_over(moves)):
                return
            if not self.simulate():
                return

    def simulate(self) -> bool:
        """One round of selection, expansion, simulation and update; False where there was nothing left to try."""
        path = self._select()
        child = self._expand(path[-1])
        if child is None:
            self._close(path)
            return bool(path[0].visits) and not path[0].exhausted
        path.append(child)
        reward = self._roll_out(child.state)
        for node in reversed(path):
            reward += node.gain
            node.value += reward
            node.visits += 1
        self.simulations += 1
        self._close(path)
        return True

    def _select(self) -> list[Node]:
        path = [self.root]
        while True:
            node = path[-1]
            open_children = [child for child in node.children.values() if not child.exhausted]
            untried = any(self._untried(node))
            if not open_children or (untried and self._rng.random() < self.options.stop_probability):
                return path
            log_visits = math.log(max(1, node.visits))
            path.append(
                max(
                    open_children,
                    key=lambda child: child.average + self.options.exploration * math.sqrt(log_visits / child.visits),
                )
            )

    def _expand(self, node: Node) -> Node | None:
        """A new child by a random rule that changes the e-graph; rules that do not go on the blacklist."""
        if self._full(node.state):
            return None
        untried = list(self._untried(node))
        for place in self._rng.permutation(len(untried)):
            if self._out_of_time():
                return None
            rule = untried[place]
            after = self._applied(node.state, rule)
            if after is None:
                node.blacklist.add(rule)
                continue
            child = node.children[rule] = Node(after, self._saved(node.state, after))
            return child
        return None

    def _roll_out(self, state: State) -> float:
        """The reward of random rules, equation 3: the sum of all improvements."""
        reward, useless = 0.0, set[Rule]()
        for _ in range(self.options.depth):
            after = None
            rules = [] if self._full(state) else [rule for rule in self._present(state) if rule not in useless]
            for place in self._rng.permutation(len(rules)):
                if self._out_of_time():
                    return reward
                after = self._applied(state, rules[place])
                if after is not None:
                    break
                # In a rollout a rule is not tried again, although a later one may enable it.
                useless.add(rules[place])
            if after is None:
                break
            reward += self._saved(state, after)
            state = after
        return reward

    def _close(self, path: list[Node]) -> None:
        """Mark what cannot change any more, from the end of the path upwards."""
        for node in reversed(path):
            if self._full(node.state):
                node.exhausted = True
            elif not any(self._untried(node)):
                node.exhausted = all(child.exhausted for child in node.children.values())

    def _full(self, state: State) -> bool:
        return state.egraph.size >= self.options.node_limit

    def _untried(self, node: Node) -> Iterator[Rule]:
        if self._full(node.state):
            return
        for rule in self._present(node.state):
            if rule not in node.blacklist and rule not in node.children:
                yield rule

    def _present(self, state: State) -> list[Rule]:
        """Rules whose operators are all in the e-graph: the others need not be tried."""
        if state.present is not None:
            return state.present
        entries = state.egraph.operators.entries
        operators = frozenset((entries[op].domain, entries[op].op) for op in set(state.egraph.node_op))
        if operators not in self._by_operators:
            self._by_operators[operators] = [
                rule
                for rule in self._rules
                if all(any((p.domain, op) in operators for op in p.operators) for p in rule.pattern.nodes)
            ]
        state.present = self._by_operators[operators]
        return state.present

    def _applied(self, state: State, rule: Rule) -> State | None:
        """The state after a rule; None where it leaves the e-graph as it is."""
        matches = self._match_limit()
        if matches == 0:
            return None
        egraph = state.egraph.fork()
        report = apply_rule(egraph, rule, match_limit=matches)
        self._on_application(report)
        if not report.changed:
            # The fork knows which matches were looked at in vain, so that what comes after does not look again.
            state.egraph = egraph
            return None
        after = self._measured(State(egraph, state.tracker, applications=(*state.applications, report)))
        if after.cost < self.best.cost:
            self.best = after
        return after

    def _saved(self, before: State, after: State) -> float:
        if not self.first.cost:
            return 0.0
        return 100.0 * max(0.0, before.cost - after.cost) / self.first.cost

    def _measured(self, state: State) -> State:
        """Set a state's cost; its tracker is that of the state before, or none."""
        egraph, main = state.egraph, self.options.main
        if main in ("tree", "shared"):
            if state.tracker is None:
                state.tracker = (TreeCostTracker if main == "tree" else SharedCostTracker)(egraph, self._cost)
            else:
                state.tracker = state.tracker.fork(egraph)
                state.tracker.update()
            state.cost = state.tracker.root_cost()
            return state
        key = fingerprint(egraph)
        if key not in self._costs:
            self._costs[key] = extract(costed(egraph, self._cost).graph, main, time_limit=5.0).cost
        state.cost = self._costs[key]
        return state
