"""Simulations: from a node of the tree, named by the rules that lead there, to a new child and on by random rules.

What a simulation gives depends on the e-graph, its job and nothing else, so any process may run it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graph_rewrite.egraph import Application, EGraph, apply_rule
from graph_rewrite.egraph.costs import NodeCost, SharedCostTracker, TreeCostTracker, costed
from graph_rewrite.egraph.extract import Method, extract
from graph_rewrite.egraph.matching import SharedMatches
from graph_rewrite.egraph.saturation import MATCH_LIMIT
from graph_rewrite.egraph.structure import fingerprint
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rewriting.rule import Rule

RulePath = tuple[int, ...]
"""The rules, by number, that an e-graph was built by from the first one."""


@dataclass(frozen=True, slots=True)
class SimulationLimits:
    """Limits that all simulations of a search have in common."""

    depth: int
    """Applications behind the new node."""
    node_limit: int
    main: Method
    """The extraction that gives costs."""


@dataclass(slots=True, eq=False)
class ConstructionState:
    """An e-graph under construction with its cost by the main extraction; what it holds never changes."""

    egraph: EGraph
    tracker: TreeCostTracker | SharedCostTracker | None
    cost: float = math.inf
    applications: tuple[Application, ...] = ()


@dataclass(frozen=True, slots=True)
class StateFacts:
    """The facts about a state that the tree uses."""

    cost: float
    full: bool
    """True where the node limit is reached."""
    present: tuple[int, ...]
    """Rules whose operators are all in the e-graph: the others need not be tried."""


@dataclass(frozen=True, slots=True)
class SimulationJob:
    """A simulation to run: the first of the `untried` rules that changes the e-graph at `path` makes the child."""

    path: RulePath
    untried: tuple[int, ...]
    seed: int
    """Seed of the rollout."""
    applications: int | None = None
    """Matches that may be applied; None for any number."""
    seconds: float = math.inf
    """Time for it, for processes that cannot ask."""


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """The outcome of a simulation. Rewards are percent of the first cost."""

    useless: tuple[int, ...]
    """Rules that leave the e-graph at the job's path as it is."""
    child: int | None
    """The rule that made the child; None where there is none."""
    facts: StateFacts | None
    """Facts of the child."""
    reward: float
    """Reward of the rollout behind the child, equation 3: the sum of all improvements."""
    best: tuple[float, RulePath]
    """The least cost on the way, and where it was first met."""
    applied: int
    """Matches applied on the way."""
    faults: RuleFaults | None = None
    """Exceptions that rules raised on the way, where another process counted them."""


class Simulator:
    """Runs simulations, and remembers the e-graphs of the nodes that they began at.

    Args:
        start: the e-graph; not changed.
        rules: what can be applied.
        cost: of an e-node alone.
        out_of_time: asked before every application; true ends the simulation.
        faults: collects exceptions that rules raise; with None they go through.
    """

    def __init__(
        self,
        start: EGraph,
        rules: Sequence[Rule],
        cost: NodeCost,
        limits: SimulationLimits,
        out_of_time: Callable[[], bool] = lambda: False,
        faults: RuleFaults | None = None,
    ) -> None:
        self.faults = faults
        self._rules, self._cost, self._limits, self.out_of_time = tuple(rules), cost, limits, out_of_time
        self._costs: dict[int, float] = {}
        self._present: dict[frozenset[tuple[str, str]], tuple[int, ...]] = {}
        self._left: int | None = None
        self._applied = 0
        first = self._measured(ConstructionState(start.fork(), None))
        first.egraph.base = SharedMatches(first.egraph)
        self.first_cost = first.cost
        self._states: dict[RulePath, ConstructionState] = {(): first}
        self._best: tuple[float, RulePath, ConstructionState] = (first.cost, (), first)

    def use(self, cost: NodeCost) -> None:
        """Ask another function for the costs of e-nodes that are met from now on; it must give the same."""
        self._cost = cost

    def state(self, path: RulePath) -> ConstructionState:
        """Return the e-graph at a path, built from the nearest one that is known."""
        if path == self._best[1]:
            return self._best[2]
        known = len(path)
        while path[:known] not in self._states:
            known -= 1
        state = self._states[path[:known]]
        for place in range(known, len(path)):
            after = self._after(state, path[place], MATCH_LIMIT)
            if after is None:
                raise AssertionError(f"{self._rules[path[place]].name} changed this e-graph once, and does not again")
            state = self._states[path[: place + 1]] = after
        return state

    def facts(self, state: ConstructionState) -> StateFacts:
        full = state.egraph.size >= self._limits.node_limit
        return StateFacts(state.cost, full, () if full else self._rules_of(state))

    def move(self, path: RulePath) -> None:
        """From now on all jobs are at this path or below: forget all others but the first e-graph, and make what rules
        match here known to all that grows from it."""
        root, first = self.state(path), self._states[()]
        self._states = {other: state for other, state in self._states.items() if other[: len(path)] == path}
        self._states[path] = root
        base = SharedMatches(root.egraph)
        for state in self._states.values():
            state.egraph.base = base
        self._states.setdefault((), first)

    def run(self, job: SimulationJob) -> SimulationOutcome:
        """Run one expansion and the rollout behind it."""
        state = self.state(job.path)
        self._left, self._applied = job.applications, 0
        useless: list[int] = []
        best: tuple[float, RulePath] = (state.cost, job.path)
        for rule in job.untried:
            if self.out_of_time() or self._left == 0:
                break
            after = self._tried(state, rule)
            if after is None:
                useless.append(rule)
                continue
            path = (*job.path, rule)
            # Another job may have made the same child.
            after = self._states.setdefault(path, after)
            best = self._better(best, after, path)
            facts = self.facts(after)
            reward, best = self._roll_out(after, path, best, np.random.default_rng(job.seed))
            return SimulationOutcome(tuple(useless), rule, facts, reward, best, self._applied)
        return SimulationOutcome(tuple(useless), None, None, 0.0, best, self._applied)

    def saved(self, before: float, after: float) -> float:
        """Return the gain of a step from one cost to another, in percent of the first cost."""
        return 100.0 * max(0.0, before - after) / self.first_cost if self.first_cost else 0.0

    def _roll_out(
        self, state: ConstructionState, path: RulePath, best: tuple[float, RulePath], rng: np.random.Generator
    ) -> tuple[float, tuple[float, RulePath]]:
        reward, useless = 0.0, set[int]()
        for _ in range(self._limits.depth):
            after = None
            rules = [rule for rule in self.facts(state).present if rule not in useless]
            for place in rng.permutation(len(rules)):
                if self.out_of_time() or self._left == 0:
                    return reward, best
                after = self._tried(state, rules[place])
                if after is not None:
                    path = (*path, rules[place])
                    break
                # In a rollout a rule is not tried again, although a later one may enable it.
                useless.add(rules[place])
            if after is None:
                break
            reward += self.saved(state.cost, after.cost)
            best = self._better(best, after, path)
            state = after
        return reward, best

    def _better(self, best: tuple[float, RulePath], state: ConstructionState, path: RulePath) -> tuple[float, RulePath]:
        if state.cost < self._best[0]:
            self._best = (state.cost, path, state)
        return (state.cost, path) if state.cost < best[0] else best

    def _tried(self, state: ConstructionState, rule: int) -> ConstructionState | None:
        """Return the state after a rule, within what may be applied; None where it leaves the e-graph as it is."""
        limit = MATCH_LIMIT if self._left is None else min(MATCH_LIMIT, self._left)
        after = self._after(state, rule, limit)
        if after is not None:
            applied = after.applications[-1].applied
            self._applied += applied
            self._left = None if self._left is None else self._left - applied
        return after

    def _after(self, state: ConstructionState, rule: int, match_limit: int) -> ConstructionState | None:
        egraph = state.egraph.fork()
        report = apply_rule(egraph, self._rules[rule], match_limit=match_limit, faults=self.faults)
        if not report.changed:
            if report.complete:
                # The fork knows which matches were looked at in vain, so that what comes after does not look again.
                state.egraph = egraph
            return None
        return self._measured(ConstructionState(egraph, state.tracker, applications=(*state.applications, report)))

    def _rules_of(self, state: ConstructionState) -> tuple[int, ...]:
        entries = state.egraph.operators.entries
        operators = frozenset((entries[op].domain, entries[op].op) for op in set(state.egraph.node_op))
        if operators not in self._present:
            self._present[operators] = tuple(
                number
                for number, rule in enumerate(self._rules)
                if all(any((p.domain, op) in operators for op in p.operators) for p in rule.pattern.nodes)
            )
        return self._present[operators]

    def _alone(self, egraph: EGraph, node: int) -> float:
        return self._cost(egraph, node)

    def _measured(self, state: ConstructionState) -> ConstructionState:
        """Set a state's cost; its tracker is that of the state before, or none."""
        egraph, main = state.egraph, self._limits.main
        if main in ("tree", "shared"):
            if state.tracker is None:
                state.tracker = (TreeCostTracker if main == "tree" else SharedCostTracker)(egraph, self._alone)
            else:
                state.tracker = state.tracker.fork(egraph)
                state.tracker.update()
            state.cost = state.tracker.root_cost()
            return state
        key = fingerprint(egraph)
        if key not in self._costs:
            self._costs[key] = extract(costed(egraph, self._alone).graph, main, time_limit=5.0).cost
        state.cost = self._costs[key]
        return state
