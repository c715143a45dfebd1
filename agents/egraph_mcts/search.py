"""Monte Carlo tree search over the order in which rules build an e-graph. Knows nothing of problems and latencies.

Hartmann, He, Yoneki, "Optimizing Tensor Computation Graphs with Equality Saturation and Monte Carlo Tree Search",
PACT'24, section 4.1 and algorithm 1. A node is an e-graph, an edge the application of a rule. Three things are done
otherwise than the paper's text says: whether a rule can change an e-graph is found out when the rule is drawn, not for
all rules as a node is made; a node is credited with what its own application gained as well as with the simulation
behind it, so that the first rule of a good order is not passed over; and several simulations are on their way at once,
each of them counted as a visit while it is (Liu et al., "Watch the Unobserved: A Simple Approach to Parallelizing Monte
Carlo Tree Search", ICLR'20, equation 4), in a fixed order, so that what is found does not depend on who runs them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from agents.egraph_mcts.simulation import (
    ConstructionState,
    RulePath,
    SimulationJob,
    SimulationLimits,
    Simulator,
    StateFacts,
)
from agents.egraph_mcts.workers import Executor, Inline, Pool
from graph_rewrite.egraph import EGraph
from graph_rewrite.egraph.costs import NodeCost
from graph_rewrite.egraph.extract import Method
from graph_rewrite.latency import OperatorSpec
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rewriting.rule import Rule

EXPLORATION = 2.0 * math.sqrt(2.0)
"""Exploration constant of the published code; rewards are percent of the first cost."""


@dataclass(frozen=True, slots=True)
class ConstructionOptions:
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
    in_flight: int = 4
    """Simulations that are on their way at once; 1, as published, leaves other cores without work."""


@dataclass(slots=True, eq=False)
class ConstructionNode:
    """A node of the tree: value and visits as in section 4.1, children by rule, and the blacklist."""

    path: RulePath
    facts: StateFacts
    gain: float = 0.0
    """Saving of the application that led here, in percent of the first cost."""
    value: float = 0.0
    visits: int = 0
    in_flight: int = 0
    """Simulations on their way below."""
    exhausted: bool = False
    """True where nothing below can change any more: the node limit is reached, or every rule has saturated."""
    children: dict[int, ConstructionNode] = field(default_factory=dict)
    blacklist: set[int] = field(default_factory=set)
    """Rules that leave this e-graph as it is."""
    tried: list[int] = field(default_factory=list)
    """Rules that simulations on their way try first."""

    @property
    def average(self) -> float:
        return self.value / self.visits if self.visits else 0.0

    def untried(self) -> Iterator[int]:
        """Rules that were not found useless here, and have led to no child."""
        return (rule for rule in self.facts.present if rule not in self.blacklist and rule not in self.children)


class ConstructionSearch:
    """Algorithm 1: search, apply the best rule, repeat until the e-graph has saturated or reached the limit.

    Use as a context manager, or `close` it: the processes that simulate end then.

    Args:
        start: the e-graph; not changed.
        rules: what can be applied.
        cost: of an e-node alone.
        rng: makes rollouts and stops reproducible.
        matches_left: matches that may still be applied; 0 ends the search, None does not. With a number simulations
            run one by one.
        on_applied: told how many matches each simulation applied.
        on_move: told of the start and of the state that each applied rule leads to.
        seconds_left: asked before every simulation or application; 0 ends the search with what was built. The time for
            one rule is up where `move_over`, called with the number of rules applied so far, says so.
        workers: processes that simulate; this one if there is 1. More where the system can fork.
        price: what `cost` asks for the time of an operator, so that workers ask this process.
        needs_timing: whether `price` would have to time an operator.
        faults: collects exceptions that rules raise; with None they go through.
    """

    def __init__(
        self,
        start: EGraph,
        rules: Sequence[Rule],
        cost: NodeCost,
        options: ConstructionOptions,
        rng: np.random.Generator,
        *,
        matches_left: Callable[[], int | None] = lambda: None,
        on_applied: Callable[[int], None] = lambda applied: None,
        on_move: Callable[[ConstructionState], None] = lambda state: None,
        seconds_left: Callable[[], float] = lambda: math.inf,
        move_over: Callable[[int], bool] = lambda moves: False,
        workers: int = 1,
        price: Callable[[OperatorSpec], float] | None = None,
        needs_timing: Callable[[OperatorSpec], bool] = lambda spec: False,
        faults: RuleFaults | None = None,
    ) -> None:
        self.options, self._rng = options, rng
        self._matches_left, self._on_applied, self._on_move = matches_left, on_applied, on_move
        self._seconds_left, self._move_over = seconds_left, move_over
        limits = SimulationLimits(options.depth, options.node_limit, options.main)
        self._own = Simulator(start, rules, cost, limits, lambda: seconds_left() <= 0.0, faults)
        self._executor: Executor = Inline(self._own)
        if workers > 1 and matches_left() is None and Pool.is_possible():
            self._executor = Pool(self._own, min(workers, options.in_flight), price, needs_timing)
        self.simulations = 0
        self.first = self._own.state(())
        self._best: tuple[float, RulePath] = (self.first.cost, ())
        self.root = ConstructionNode((), self._own.facts(self.first))

    def __enter__(self) -> ConstructionSearch:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes that simulate."""
        self._executor.close()

    @property
    def best(self) -> ConstructionState:
        """The state of least cost that any simulation passed, the earliest of several."""
        return self._own.state(self._best[1])

    def run(self) -> ConstructionState:
        """Build the e-graph; the state reached. `best` may cost less: what was only simulated counts there too."""
        moves = 0
        self._on_move(self.first)
        while not self.root.facts.full:
            self.search(moves)
            children = [child for child in self.root.children.values() if child.visits]
            if not children:
                break
            best = max(children, key=lambda child: child.average)
            self.root = best if self.options.reuse else ConstructionNode(best.path, best.facts, best.gain)
            self._executor.move(self.root.path)
            self._on_move(self._own.state(self.root.path))
            moves += 1
        return self._own.state(self.root.path)

    def search(self, moves: int = 0) -> None:
        """Simulations from the root until its budget is used up; none are started when time is over."""
        waiting: deque[tuple[int, list[ConstructionNode], SimulationJob]] = deque()
        at_once = self.options.in_flight if self._matches_left() is None else 1
        while True:
            while len(waiting) < at_once and self._may_start(moves):
                path = self._select()
                job = self._job(path[-1])
                waiting.append((self._executor.start(job), path, job))
                for node in path:
                    node.in_flight += 1
            if not waiting:
                return
            self._finish(*waiting.popleft())

    def _may_start(self, moves: int) -> bool:
        root = self.root
        if root.exhausted or root.visits + root.in_flight >= self.options.budget:
            return False
        if self._seconds_left() <= 0.0 or self._matches_left() == 0:
            return False
        return not (root.children and self._move_over(moves))

    def _select(self) -> list[ConstructionNode]:
        path = [self.root]
        while True:
            node = path[-1]
            open_children = [child for child in node.children.values() if not child.exhausted]
            untried = any(rule not in node.tried for rule in node.untried())
            if not open_children or (untried and self._rng.random() < self.options.stop_probability):
                return path
            log_visits = math.log(max(1, node.visits + node.in_flight))
            path.append(
                max(
                    open_children,
                    key=lambda child: (
                        child.average
                        + self.options.exploration * math.sqrt(log_visits / (child.visits + child.in_flight))
                    ),
                )
            )

    def _job(self, node: ConstructionNode) -> SimulationJob:
        """An expansion by a random rule, another one than those that are tried already as far as there are others."""
        untried = list(node.untried())
        order = [untried[place] for place in self._rng.permutation(len(untried))]
        order.sort(key=lambda rule: rule in node.tried)
        node.tried += order[:1]
        seed = int(self._rng.integers(2**63))
        return SimulationJob(node.path, tuple(order), seed, self._matches_left(), self._seconds_left())

    def _finish(self, ticket: int, path: list[ConstructionNode], job: SimulationJob) -> None:
        """Propagate the outcome of a simulation back along its path."""
        outcome = self._executor.finish(ticket)
        self._on_applied(outcome.applied)
        leaf = path[-1]
        for rule in job.untried[:1]:
            leaf.tried.remove(rule)
        for node in path:
            node.in_flight -= 1
        leaf.blacklist.update(outcome.useless)
        if outcome.best[0] < self._best[0]:
            self._best = outcome.best
        if outcome.child is not None and outcome.facts is not None:
            child = leaf.children.get(outcome.child)
            if child is None:
                gain = self._own.saved(leaf.facts.cost, outcome.facts.cost)
                child = leaf.children[outcome.child] = ConstructionNode(
                    (*leaf.path, outcome.child), outcome.facts, gain
                )
            path = [*path, child]
            reward = outcome.reward
            for node in reversed(path):
                reward += node.gain
                node.value += reward
                node.visits += 1
            self.simulations += 1
        self._close(path)

    def _close(self, path: list[ConstructionNode]) -> None:
        """Mark what cannot change any more, from the end of the path upwards."""
        for node in reversed(path):
            if node.facts.full:
                node.exhausted = True
            elif not any(node.untried()):
                node.exhausted = all(child.exhausted for child in node.children.values())
