"""Looks that all plots share: colours, marks, captions, and how a plot is saved."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.figures.rows import Results, Series
from graph_rewrite.system.atomic_files import replace_file

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F7F7F", "#882255")
"""Okabe and Ito's palette, which readers with any colour vision tell apart; grey and wine for its black and yellow."""
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "////", "....", "xxxx")
GREY = "#555555"
DPI = 100
_BELOW = 0.22
"""Inches below a plot for its caption."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SOURCE = "Source"
"""Entry of a PNG's metadata that holds the digest of the results file."""


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def bar_style(place: int) -> Mapping[str, Any]:
    """Return colour and hatch of a series' bars, by its place in the legend."""
    hatch = HATCHES[place // len(COLOURS) % len(HATCHES)]
    return {
        "facecolor": colour(place),
        "hatch": hatch,
        "edgecolor": "white" if hatch else colour(place),
        "linewidth": 0,
    }


def line_style(place: int) -> Mapping[str, Any]:
    """Return colour and dashes of a series' line, by its place in the legend."""
    return {
        "color": colour(place),
        "linestyle": DASHES[(place + place // len(COLOURS)) % len(DASHES)],
        "linewidth": 1.8,
    }


def legend_label(results: Results, series: Series) -> str:
    """Return a series' label, and that it failed where no run of it counts."""
    return series.label + ("" if any(row.counts for row in results.of(series)) else " (failed)")


def tidy(axes: Axes, grid: str = "y") -> None:
    """Leave a plot without frame at the top and the right, with a light grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color="#dddddd", linewidth=0.7)  # type: ignore[arg-type]


def log_seconds(axes: Axes) -> None:
    """Give the horizontal axis a logarithmic scale with plain numbers."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda second, _: f"{second:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, whose parts make room for each other."""
    return Figure(
        figsize=(width, height), layout=ConstrainedLayoutEngine(rect=(0, _BELOW / height, 1, 1 - _BELOW / height))
    )


def save(figure: Figure, results: Results, path: Path) -> Path:
    """Save a plot as PNG with the file's caption below it."""
    figure.text(
        0.995, 0.04 / figure.get_figheight(), results.caption, ha="right", va="bottom", fontsize=6.5, color=GREY
    )
    drawn = io.BytesIO()
    told = {_SOURCE: results.digest, "Software": None}
    figure.savefig(drawn, dpi=DPI, format="png", metadata=told, pil_kwargs={"optimize": True})
    replace_file(path, drawn.getvalue())
    return path


def drawn_from(path: Path) -> str:
    """Return the digest of the results file that a plot was drawn from; empty where it names none or is missing."""
    if not path.is_file():
        return ""
    content, place = path.read_bytes(), len(_SIGNATURE)
    while content.startswith(_SIGNATURE) and place + 8 <= len(content):
        (length,) = struct.unpack_from(">I", content, place)
        name, _, text = content[place + 8 : place + 8 + length].partition(b"\0")
        if content[place + 4 : place + 8] == b"tEXt" and name.decode("latin-1") == _SOURCE:
            return text.decode("latin-1")
        place += length + 12
    return ""


def places(results: Results) -> dict[Series, int]:
    """Return the place of each series, which decides its colour in every plot: the default agent first, then the other
    agents. Peers follow the default agent too, since they are drawn beside it alone."""
    leader = results.leader()
    first = [leader] if leader else []
    agents = [series for series in results.series("agent") if series != leader]
    ordered = ([*first, *agents], [*first, *results.series("peer")])
    return {series: place for group in ordered for place, series in enumerate(group)}
