"""Tables of judged results: speed-ups, search times and rules by agent and model, out of `benchmarks.results`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.figures.rows import Results, Row, read_results
from benchmarks.papers.table import NOT_RUN, Published, Show, grid

Agents = Mapping[str, str]
"""Agents as the command names them, by the heading of their column."""
Cell = Callable[[Sequence[Row]], str]
"""Writes what some runs of an agent on a model found; all of them count."""
PUBLISHED_METHODS = ("tree/tree", "tree/ilp", "shared/shared", "shared/ilp", "ilp/ilp")
"""Main and final extraction of PACT'24's tree search, by our names of the methods."""


def speedup(rows: Sequence[Row]) -> str:
    """Write the geometric mean of the speed-ups over seeds, and the lowest and the highest of them."""
    found = [row.speedup for row in rows if row.speedup is not None]
    if len(found) == 1:
        return f"{found[0]:.3f}"
    return f"{statistics.geometric_mean(found):.3f} ({min(found):.3f} to {max(found):.3f})"


def interval(rows: Sequence[Row]) -> str:
    """Write the speed-up of the first run, and its 95% interval."""
    first = rows[0]
    low, high = first.ci95 or (math.nan, math.nan)
    return f"{first.speedup:.3f} ({low:.3f} to {high:.3f})"


def seconds(rows: Sequence[Row]) -> str:
    """Write the mean of the seconds of the searches."""
    found = [row.seconds for row in rows if row.seconds is not None]
    return f"{statistics.fmean(found):.0f} s" if found else NOT_RUN


def rules(rows: Sequence[Row]) -> str:
    """Write how many different rules the first run applied, at how many sites."""
    sites = rows[0].sites
    return f"{len(sites)} rules, {sum(sites.values())} sites" if sites else "none"


def shown_agents(entry: str, models: Sequence[str], agents: Agents, *cells: tuple[str, Cell]) -> Show:
    """Return what shows agents on models, after what the paper says in words.

    Args:
        entry: the table's name in the paper's file.
        models: names of the zoo, with parameters where the command gives some.
        cells: for each agent a column for each of these, by the end of its heading.
    """

    def show(published: Published, path: Path | None) -> list[str]:
        results = None if path is None else read_results(path)
        headings = ["model", *(f"{heading}{end}" for heading in agents for end, _ in cells)]
        lines = [
            [model, *(_cell(results, agent, model, cell) for agent in agents.values() for _, cell in cells)]
            for model in models
        ]
        return [published[entry]["said"], "", *grid(headings, lines), *_caption(results)]

    return show


def show_methods(agents: Agents) -> Show:
    """Return what shows PACT'24's figure 5: speed-up and time by main and final extraction, over all models. Theirs are
    means over the rows of their table 2."""

    def show(published: Published, path: Path | None) -> list[str]:
        results = None if path is None else read_results(path)
        lines = []
        for method in PUBLISHED_METHODS:
            rows = [row for row in published["table 2"]["rows"] if row["method"] == method]
            gain = statistics.fmean(row["speedup_pct"][0] for row in rows)
            time = statistics.fmean(row["seconds"][0] for row in rows)
            ours = [] if results is None else _runs(results, agents[method])
            cells = [speedup(ours), seconds(ours)] if ours else [NOT_RUN, NOT_RUN]
            lines.append([method, f"{gain:.1f}%", f"{time:.0f} s", *cells])
        headings = ("main/final extraction", "theirs: saved", "search", "ours: speed-up", "search")
        return [*grid(headings, lines), *_caption(results)]

    return show


def show_breakdown(agents: Agents) -> Show:
    """Return what shows PACT'24's table 2 for some methods: by model, what they saved in per cent of the original's
    time, and the speed-up that this is, beside ours. `agents` has the methods as headings."""

    def show(published: Published, path: Path | None) -> list[str]:
        results, rows = None if path is None else read_results(path), published["table 2"]["rows"]
        theirs = {(row["zoo"], row["method"]): row for row in rows}
        lines = []
        for model in dict.fromkeys(row["zoo"] for row in rows):
            cells = []
            for method, agent in agents.items():
                saved, spread = theirs[model, method]["speedup_pct"]
                cells += [f"{saved:.2f} ± {spread:.2f}% ({1 / (1 - saved / 100):.2f})"]
                cells += [f"{theirs[model, method]['seconds'][0]:.1f} s"]
                cells += [_cell(results, agent, model, speedup), _cell(results, agent, model, seconds)]
            lines.append([model, *cells])
        headings = [f"{m}{end}" for m in agents for end in (", theirs: saved", " in", ", ours: speed-up", " in")]
        return [*grid(["model", *headings], lines), *_caption(results)]

    return show


def _cell(results: Results | None, agent: str, model: str, cell: Cell) -> str:
    runs = [] if results is None else [row for row in _of_budget(results, agent) if row.model == model]
    if not runs:
        return NOT_RUN
    failed = [row for row in runs if not row.counts]
    if failed:
        return f"{len(failed)} of {len(runs)} failed: {failed[0].failure.replace('|', '/')}"
    return cell(runs)


def _runs(results: Results, agent: str) -> list[Row]:
    return [row for row in _of_budget(results, agent) if row.counts]


def _of_budget(results: Results, agent: str) -> list[Row]:
    """Return the runs of an agent with the budget of the file's most runs: some agents may have others beside it."""
    usual = statistics.multimode(row.budget_s for row in results.rows if row.kind == "agent")[:1]
    return [row for row in results.rows if row.agent == agent and row.budget_s in usual]


def _caption(results: Results | None) -> list[str]:
    return [] if results is None else ["", f"{results.caption}."]
