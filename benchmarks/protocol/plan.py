"""The plan of a table: which runs, controls and peers of which models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from agents.core.registry import agent_names
from benchmarks.protocol.judging.judge import Protocol
from benchmarks.protocol.preparing import Prepare
from benchmarks.protocol.searches.faster_runtime import FASTER_RUNTIME
from benchmarks.protocol.searches.held_out import HELD_OUT, PPO_HELD_OUT
from benchmarks.protocol.searches.replaying import REPLAY
from benchmarks.protocol.searches.runs import Run
from graph_rewrite.errors import UserError

AGENTS = ("regional", "ppo", "mcts", "taso", "greedy", "random", "tensat", "egraph-mcts")
CONTROLS: Mapping[str, str] = {
    "policy-untrained": "ppo:untrained=true",
    "policy-unsampled": "ppo:sampled=false",
    "regional-no-climb": "regional:climb=false",
    "regional-unlearnt": "regional:prior=constants,draft=false",
    "regional-held-out": HELD_OUT,
    "ppo-held-out": PPO_HELD_OUT,
    "replay": REPLAY,
    FASTER_RUNTIME: FASTER_RUNTIME,
}
"""Controls by name: agents with options, recorded rewrites replayed without search, and a search in two runtimes."""
ONCE = frozenset({"replay"})
"""Controls in which nothing is random and nothing measured: one seed is enough."""
MEASUREMENTS = {60.0: 100}
"""Measurements of a budget in seconds; others have no limit but time."""
ALL = "all"

Peers = Mapping[str, Prepare]


@dataclass(frozen=True)
class TablePlan:
    """All that one table is made of."""

    models: tuple[str, ...]
    agents: tuple[str, ...] = AGENTS
    """Agents as `make_agent` takes them; `@SECONDS` behind one gives it a budget of its own."""
    controls: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    budgets: tuple[float, ...] = (60.0,)
    seeds: int = 3
    threads: int = 1
    batch: int = 1
    provider: str = "cpu"
    """Runs originals and results: `cpu`, or `cuda`, a device on which one thing at a time is timed."""
    aa: int = 0
    """Judgements of originals against themselves, over the models in turn."""
    at_once: int = 1
    """Searches, and sessions of a judgement, side by side, at most."""
    protocol: Protocol = field(default_factory=Protocol)

    def __post_init__(self) -> None:
        unknown = [name for name in self.controls if name not in CONTROLS]
        if unknown:
            raise UserError(f"there is no control {', '.join(unknown)}; there are {', '.join(CONTROLS)}")
        strangers = [one for one in self.agents if one.partition("@")[0].partition(":")[0] not in agent_names()]
        if strangers:
            raise UserError(f"there is no agent {', '.join(strangers)}; there are {', '.join(agent_names())}")
        if min(self.seeds, self.batch, self.at_once) < 1 or self.aa < 0 or min(self.budgets, default=1.0) <= 0.0:
            raise UserError(
                "seeds, batch, budgets and searches at once must be 1 or more, judgements of the original 0 or more"
            )
        if self.protocol.sessions < 2 or self.protocol.rounds < 1 or self.protocol.inputs < 1:
            raise UserError("a judgement needs at least two sessions, one round and one input")

    def runs(self, model: str) -> Iterator[Run]:
        """Yield the runs of a model, seeds outermost, so that an interrupted table has some of every agent.

        Raises:
            UserError: a budget behind an agent that is no number.
        """
        for seed in range(self.seeds):
            for text in self.agents:
                agent, budgets = self._budgeted(text)
                for budget in budgets:
                    yield self._run(model, agent, agent, seed, budget, "agent")
            for name in self.controls:
                if seed == 0 or name not in ONCE:
                    yield self._run(model, name, CONTROLS[name], seed, self.budgets[0], "control")

    def _run(self, model: str, name: str, agent: str, seed: int, budget: float, kind: str) -> Run:
        limit = MEASUREMENTS.get(budget)
        return Run(model, name, agent, seed, budget, limit, self.threads, self.batch, kind, self.provider)

    def _budgeted(self, text: str) -> tuple[str, tuple[float, ...]]:
        agent, _, own = text.partition("@")
        if not own:
            return agent, self.budgets
        try:
            return agent, (float(own),)
        except ValueError:
            raise UserError(f"--agents {text}: write a budget of its own as {agent}@SECONDS") from None


def known_peers(package: str = "benchmarks.peers") -> Peers:
    """Return the peers that this clone can prepare, by name; none where the package is not there."""
    if find_spec(package) is None:
        return {}
    peers: Peers = import_module(package).PEERS
    return peers


def chosen_peers(asked: Sequence[str], known: Peers) -> list[str]:
    """Return the names of peers that are asked for: a name stands for all that begin with it and a hyphen, `all` for
    every one. One that there is not stays in the list, so that it is reported."""
    found: dict[str, None] = {}
    for name in asked:
        group = [peer for peer in known if peer == name or peer.startswith(f"{name}-")]
        found.update(dict.fromkeys(list(known) if name == ALL else group or [name]))
    return list(found)


def settings_of(plan: TablePlan) -> dict[str, Any]:
    """Return what all rows of a table share."""
    return {"threads": plan.threads, "batch": plan.batch}
