"""Replay tree search over whole models on architectures that its prior has not seen.

    python -m benchmarks.learning.tree_order

For every network in a table of windows, tree search rewrites the windows of a whole model and looks up what that saves.
`uniform` knows nothing (UCT with rollouts), `means` is PUCT with the means of what steps saved in other architectures
as its prior and as what is still to be gained, `prior` the same without the latter. Told are the timings of whole
models until a search has what `uniform` has in the end. The same table gives the same figures; there is no clock.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from agents.commands.common import stderr_console
from agents.mcts import tree as mcts
from agents.mcts.agent import MCTSAgent
from agents.mcts.simulations import TreeSearch
from benchmarks.learning.reports import tell_report
from benchmarks.learning.search_order.orders import by_means
from benchmarks.learning.search_order.replaying import Predictions, SearchedNetwork, TableFacts
from benchmarks.learning.search_order.scores import EARLY, LEAST_POSSIBLE, comparison, early_comparison, possible
from benchmarks.learning.search_order.trees import ForecastTableGuide, ModelState, TableGame, UniformTableGuide
from benchmarks.learning.window_policy import parts_of_families
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.system.commands import run_command

BASELINE = "uniform"
ORDERS = (BASELINE, "prior", "means")


@dataclass(frozen=True)
class Arguments:
    """Replay tree search over whole models on architectures that its prior has not seen."""

    table: Path = SHIPPED
    """A table of windows."""
    folds: int = 3
    """Parts of the architectures; each is left out of the learning once."""
    timings: int = 100
    """Timings of whole models in each search."""
    draws: int = 3
    """Seeds of the search that knows nothing."""
    out: Path | None = None
    """File for the results, which are printed too."""


def replayed(
    facts: TableFacts, network: SearchedNetwork, order: str, predictions: Predictions, timings: int, seed: int
) -> list[float]:
    """Return what the fastest model so far is credited with, as a share of the model's time, after each timing."""
    game, agent = TableGame(facts, network, timings), MCTSAgent()
    uniform = UniformTableGuide(game)
    guided = order != BASELINE
    guide = ForecastTableGuide(game, predictions, critic=order == "means") if guided else uniform
    score, rollouts = agent.score("puct" if guided else "uct"), "none" if guided else "random"
    search = TreeSearch[ModelState](
        game, game.root, guide, rollouts, agent.rollout_depth, np.random.default_rng(seed), uniform
    )
    depth = max(agent.depth, 3 * len(network.windows))
    search.run(partial(mcts.select, score=score, allowed=agent.allowed, depth=depth))
    return game.had + [game.had[-1] if game.had else 0.0] * (timings - len(game.had))


def network_row(
    facts: TableFacts, network: SearchedNetwork, predictions: Predictions, timings: int, draws: int
) -> dict[str, Any]:  # fmt: skip
    """Return the scores of all orders on one network as plain values."""
    whole = possible(facts, network)
    found = {
        order: [replayed(facts, network, order, predictions, timings, seed) for seed in range(draws)]
        if order == BASELINE else [replayed(facts, network, order, predictions, timings, 0)]
        for order in ORDERS
    }  # fmt: skip
    goal = float(np.mean([had[-1] for had in found[BASELINE]]))
    return {
        "network": network.name, "family": network.family, "possible": round(whole, 4), "goal": round(goal / whole, 4),
        "orders": {order: _score(several, goal, whole) for order, several in found.items()},
    }  # fmt: skip


def _score(several: Sequence[Sequence[float]], goal: float, whole: float) -> dict[str, Any]:
    """Return the mean score of several searches; one that never has the goal counts as twice as long as it was."""
    needed = [next((n for n, one in enumerate(had, 1) if one >= goal - 1e-9), 2 * len(had)) for had in several]
    early = [[had[min(number, len(had)) - 1] / whole for number in EARLY] for had in several]
    return {
        "timings": round(float(np.mean(needed)), 2),
        "at_end": round(float(np.mean([had[-1] for had in several])) / whole, 4),
        "early": np.round(np.mean(early, axis=0), 4).tolist(),
    }  # fmt: skip


def report(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the comparison of all orders over some networks."""
    return {
        "networks": len(rows), "families": sorted({row["family"] for row in rows}),
        "orders": {
            name: {
                "timings": comparison(rows, name, baseline=BASELINE),
                "early": early_comparison(rows, name, baseline=BASELINE),
            }
            for name in ORDERS
        },
        "rows": list(rows),
    }  # fmt: skip


def _run(arguments: Arguments) -> int:
    console, facts, rows = stderr_console(), TableFacts(WindowTable.load(arguments.table)), list[dict[str, Any]]()
    for families in parts_of_families(facts.table, arguments.folds):
        predictions = by_means(facts, families, 0)
        found = [one for one in facts.networks(families) if possible(facts, one) >= LEAST_POSSIBLE]
        rows += [network_row(facts, one, predictions, arguments.timings, arguments.draws) for one in found]
        console.print(f"without {', '.join(families)}: {len(found)} networks", highlight=False, soft_wrap=True)
    tell_report({"folds": arguments.folds, "timings": arguments.timings, **report(rows)}, arguments.out)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.tree_order")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
