"""Viewers of episodes: a table of the steps as text, or a drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.graph_rewrite.episode import Episode, EpisodeStep
from graph_rewrite.errors import UserError
from graph_rewrite.system.extras import require


@dataclass(frozen=True, slots=True)
class EpisodeViewer:
    """Shows an episode: `mode` is what Gymnasium calls `render_mode`, `draw` gives text or uint8 [height, width, 3]."""

    mode: str
    draw: Callable[[Episode], str | NDArray[np.uint8]]


def viewer_of(render_mode: str | None) -> EpisodeViewer | None:
    """Return the viewer of a render mode; None where nothing is to be rendered.

    Raises:
        UserError: there is no such mode.
    """
    if render_mode is None:
        return None
    if render_mode not in RENDER_MODES:
        raise UserError(f"render_mode must be one of {RENDER_MODES}, got {render_mode!r}")
    return EpisodeViewer(render_mode, as_text if render_mode == "ansi" else as_pixels)


RENDER_MODES = ["ansi", "rgb_array"]
_SIZE_INCHES, _DPI = (8.0, 4.5), 80
_OPERATORS = 12


def as_text(episode: Episode) -> str:
    """A table of the steps: what was done, where, and what was measured after it."""
    rows = [("step", "rule", "site", "speed-up"), *map(_row, range(1, len(episode.steps) + 1), episode.steps)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join((*map(str.ljust, row, widths), row[3])).rstrip() for row in rows]
    graph = episode.graph
    refused = f", refused: {', '.join(sorted(graph.disabled_optimizers))}" if graph.disabled_optimizers else ""
    return "\n".join(
        [
            f"{episode.problem.model.uri}: {len(graph.nodes)} nodes, {len(episode.candidates)} candidates{refused}",
            *lines,
            f"best so far: x{episode.best_speedup:.3f}",
        ]
    )


def as_pixels(episode: Episode) -> NDArray[np.uint8]:
    """uint8 [360, 640, 3]: the measured speed-up over the steps, and how often each operator occurs."""
    require("Drawing an episode", "matplotlib")
    # Imported here: it takes a second, and few environments are drawn.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _draw_speedup(left, episode)
    _draw_operators(right, episode)
    canvas.draw()
    return np.array(canvas.buffer_rgba(), dtype=np.uint8)[:, :, :3].copy()


def _row(number: int, step: EpisodeStep) -> tuple[str, str, str, str]:
    if step.failure:
        outcome = f"failed: {step.failure}"
    else:
        outcome = "-" if step.latency is None else f"x{step.latency.speedup:.3f}"
    site = "" if step.match == step.rule else step.match.removeprefix(f"{step.rule} at ")
    return str(number), step.rule or step.kind, site, outcome


def _draw_speedup(axes: Any, episode: Episode) -> None:
    measured = [(i, s.latency.speedup) for i, s in enumerate(episode.steps, start=1) if s.latency is not None]
    axes.axhline(1.0, color="0.7", linewidth=1)
    axes.plot([0, *(i for i, _ in measured)], [1.0, *(speedup for _, speedup in measured)], marker="o", markersize=3)
    axes.set(title=f"best x{episode.best_speedup:.3f}", xlabel="step", ylabel="speed-up")
    axes.set_xlim(0, episode.settings.horizon)


def _draw_operators(axes: Any, episode: Episode) -> None:
    counts = Counter(node.op for node in episode.graph.nodes.values())
    common = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_OPERATORS][::-1]
    axes.barh([name for name, _ in common], [count for _, count in common])
    axes.set(title=f"{len(episode.graph.nodes)} nodes")
