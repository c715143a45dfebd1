"""Replay the order of a search by windows on architectures that its predictions have not seen.

    python -m benchmarks.learning.search_order
    python -m benchmarks.learning.search_order --orders constants means --table mine.npz

For every network in a table of windows, a search takes up the windows' chains one by one, in the order of `regional`
with some prior, and every timing is looked up. What a prior knows, it learns from other architectures: a part of them
is left out at a time. Told are the timings that a search needs until it has 90% of what the best chains save together.
The same table gives the same figures on one machine; there is no clock.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from agents.commands.common import stderr_console
from agents.reporting.progress import table_of
from benchmarks.learning.reports import tell_report
from benchmarks.learning.search_order.orders import ORDERS, least_timings
from benchmarks.learning.search_order.replaying import (
    Predictions,
    SearchedNetwork,
    TableFacts,
    TableSearch,
    drawn_search,
)
from benchmarks.learning.search_order.scores import (
    BASELINE,
    ENOUGH,
    LEAST_POSSIBLE,
    comparison,
    early_comparison,
    mean_score,
    possible,
    score,
)
from benchmarks.learning.window_policy import parts_of_families
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.errors import UserError
from graph_rewrite.system.commands import run_command


@dataclass(frozen=True)
class Arguments:
    """Replay the order of a search by windows on architectures that its predictions have not seen."""

    table: Path = SHIPPED
    """A table of windows."""
    orders: tuple[str, ...] = tuple(ORDERS)
    """Orders to compare, by the priors of `regional`; `constants` is what they are compared with."""
    folds: int = 3
    """Parts of the architectures; each is left out of the learning once."""
    likely: bool = False
    """Credit chains with what they are likely to save, not with the lower bound: then windows of which little is known
    count too, and much of the order is luck."""
    draws: int = 30
    """Random searches of each network."""
    seed: int = 0
    """Of learning and of drawing."""
    out: Path | None = None
    """File for the results, which are printed too."""


def network_row(
    facts: TableFacts, network: SearchedNetwork, predictions: dict[str, Predictions], draws: int, seed: int
) -> dict[str, Any]:  # fmt: skip
    """Return the scores of all orders on one network as plain values."""
    found = {name: score(facts, network, TableSearch(facts, network, one).run()) for name, one in predictions.items()}
    random = np.random.default_rng([seed, *network.windows])
    drawn = [score(facts, network, drawn_search(facts, network, random)) for _ in range(draws)]
    found["random"] = mean_score(drawn)
    return {
        "network": network.name, "family": network.family, "possible": round(possible(facts, network), 4),
        "least": least_timings(facts, network.windows, ENOUGH),
        "orders": {
            name: {entry: np.round(value, 4).tolist() for entry, value in asdict(one).items()}
            for name, one in found.items()
        },
    }  # fmt: skip


def report(rows: Sequence[dict[str, Any]], orders: Sequence[str]) -> dict[str, Any]:
    """Return the comparison of all orders over some networks."""
    return {
        "networks": len(rows), "families": sorted({row["family"] for row in rows}),
        "least": round(float(np.mean([row["least"] for row in rows])), 2),
        "orders": {
            name: {
                "timings": comparison(rows, name), "seconds": comparison(rows, name, "seconds"),
                "early": early_comparison(rows, name),
            }
            for name in orders
        },
        "rows": list(rows),
    }  # fmt: skip


def _run(arguments: Arguments) -> int:
    unknown = set(arguments.orders) - ORDERS.keys()
    if unknown:
        raise UserError(f"there is no order {', '.join(sorted(unknown))}; there are {', '.join(ORDERS)}")
    orders = dict.fromkeys((BASELINE, *arguments.orders))
    console, facts, rows = (
        stderr_console(),
        TableFacts(WindowTable.load(arguments.table), sure=not arguments.likely),
        list[dict[str, Any]](),
    )
    for families in parts_of_families(facts.table, arguments.folds):
        predictions = {name: ORDERS[name](facts, families, arguments.seed) for name in orders}
        found = [one for one in facts.networks(families) if possible(facts, one) >= LEAST_POSSIBLE]
        rows += [network_row(facts, one, predictions, arguments.draws, arguments.seed) for one in found]
        console.print(f"without {', '.join(families)}: {len(found)} networks", highlight=False, soft_wrap=True)
    if not rows:
        raise UserError(f"in no network of {arguments.table} something can be saved")
    result = {
        "folds": arguments.folds,
        "seed": arguments.seed,
        "credited": "likely" if arguments.likely else "sure",
        **report(rows, [*orders, "random"]),
    }
    columns = ("timings", "relative", "95% interval", "after 10", "after 40")
    shown = table_of(f"{result['networks']} networks", ("order",), columns)
    for name, one in result["orders"].items():
        timings = one["timings"]
        low, high = timings["ci95"]
        shown.add_row(
            name, f"{timings['mean']:.1f}", f"{timings['relative']:.2f}", f"{low:.2f} to {high:.2f}",
            *(f"{one['early']['percent'][number]:.0f}%" for number in ("10", "40")),
        )  # fmt: skip
    console.print(shown)
    tell_report(result, arguments.out)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.search_order")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
