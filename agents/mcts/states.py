"""States of a tree search over whole graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.core.base import Action, Search, action_of
from agents.regional.sites import RewriteStep
from envs import GraphRewriteEnv
from envs.observation import Observation
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.rewriting.candidates import Candidate

Chain = tuple[RewriteStep, ...]


@dataclass(frozen=True, slots=True)
class EnvState:
    """A node's state: the environment there, what it observes, and the actions that lead there."""

    env: GraphRewriteEnv
    observation: Observation
    actions: tuple[Action, ...] = ()
    over: bool = False
    chains: Mapping[int, Chain] = field(default_factory=dict)
    """The rewrites, one upon the other, that led to a node of the graph, by its id; the model's own nodes have none."""

    @property
    def key(self) -> str:
        """The hash of the graph."""
        return self.env.graph.hash

    def chain_at(self, candidate: Candidate) -> Chain:
        """Return the rewrites that led to what a candidate matches at its first site; the longest of several."""
        if not candidate.sites:
            return ()
        return max((self.chains.get(node.id, ()) for node in candidate.site.match.nodes), key=len, default=())

    def step(self, search: Search, action: int) -> EnvState | None:
        """Return the state after an action; None where it gives no valid graph."""
        search.count_applications()
        candidate, before = self.env.candidates[action], self.env.graph
        env, actions = self.env.fork(), (*self.actions, action_of(candidate))
        observation, _, terminated, truncated, info = env.step(action)
        if info["failure"]:
            return None
        return EnvState(env, observation, actions, terminated or truncated, self._after(candidate, before, env.graph))

    def _after(self, candidate: Candidate, before: Graph, after: Graph) -> dict[int, Chain]:
        chains = {node: chain for node, chain in self.chains.items() if node in after.nodes}
        if candidate.sites:
            rule = candidate.site.rule
            chain = (*self.chain_at(candidate), RewriteStep(candidate.site.class_key, rule.name, rule.family))
            chains |= dict.fromkeys(after.nodes.keys() - before.nodes.keys(), chain)
        return chains

    def measured(self, latency: Latency) -> EnvState:
        """Return the state as observed after its measurement."""
        return dataclasses.replace(self, observation=self.env.give_feedback(latency), over=self.over or not latency.ok)


@dataclass(frozen=True, slots=True)
class GraphGame:
    """Rewrites and measurements of whole graphs, which a search is charged for."""

    search: Search

    @property
    def can_measure(self) -> bool:
        """True while the budget has a measurement left."""
        return self.search.can_measure

    @property
    def can_step(self) -> bool:
        """True while the budget has a rewrite left."""
        return self.search.can_apply

    def step(self, state: EnvState, action: int) -> EnvState | None:
        """Return the state after an action; None where it gives no valid graph."""
        return state.step(self.search, action)

    def measure(self, state: EnvState) -> Latency:
        """Return the latency of a state's graph."""
        return self.search.measure(state.env.graph, state.actions)
