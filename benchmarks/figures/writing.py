"""Everything that a results file becomes: files beside it, and whether they are as they would be made now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.figures.bars import draw_speedups
from benchmarks.figures.headroom_tables import read_headroom, rests_of
from benchmarks.figures.lines import draw_over_time, draw_profiles, has_curves
from benchmarks.figures.maps import draw_rules, draw_search_times, rule_sites
from benchmarks.figures.overview import draw_overview, overview
from benchmarks.figures.page import page
from benchmarks.figures.rows import Results, read_results
from benchmarks.figures.style import drawn_from, save
from benchmarks.figures.tables import summary
from graph_rewrite.system.atomic_files import replace_file


def write(path: Path) -> list[Path]:
    """Write page, summary, overview and plots beside a results file, each as a whole. Return the files.

    Raises:
        UserError: the file is no results file.
    """
    results = read_results(path)
    written = [save(draw(), results, _beside(path, f"-{name}.png")) for name, draw in _plots(results).items()]
    for target, text in _texts(results).items():
        replace_file(target, text)
        written.append(target)
    return written


def stale(path: Path) -> list[Path]:
    """Return the files beside a results file that are missing, or not what `write` would make of it now.

    A plot is compared by the results that it was drawn from.

    Raises:
        UserError: the file is no results file.
    """
    results = read_results(path)
    texts = _texts(results)
    old = [file for file, text in texts.items() if not file.is_file() or file.read_text("utf-8") != text]
    plots = [_beside(path, f"-{name}.png") for name in _plots(results)]
    return [*old, *(plot for plot in plots if drawn_from(plot) != results.digest)]


def _texts(results: Results) -> dict[Path, str]:
    path = results.path
    names = {name: _beside(path, f"-{name}.png").name for name in _plots(results)}
    headroom = _beside(path, "-headroom.json")
    whole = page(results, names, read_headroom(headroom), rests_of(headroom))
    texts = {_beside(path, ".md"): whole, _beside(path, "-summary.md"): summary(results)}
    if (leader := results.leader()) is not None:
        texts[_beside(path, "-overview.md")] = overview(results, leader)
    return texts


def _plots(results: Results) -> dict[str, Callable[[], Figure]]:
    """Return what draws each plot that the file has data for, by the keys of `page.PLOTS`."""
    agents, peers, leader = results.series("agent"), results.series("peer"), results.leader()
    found: dict[str, Callable[[], Figure]] = {}
    if agents:
        found["speedups"] = lambda: draw_speedups(results, agents)
    if peers:
        found["peers"] = lambda: draw_speedups(results, [leader, *peers] if leader else peers)
    if leader is not None and peers:
        found["overview"] = lambda: draw_overview(results, leader)
    if agents or peers:
        found["profiles"] = lambda: draw_profiles(results)
    if has_curves(results):
        found["over-time"] = lambda: draw_over_time(results)
    if leader is not None and rule_sites(results, leader):
        found["rules"] = lambda: draw_rules(results, leader)
    if any(row.kind == "agent" and row.seconds is not None for row in results.rows):
        found["search-time"] = lambda: draw_search_times(results)
    return found


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.stem + end)
