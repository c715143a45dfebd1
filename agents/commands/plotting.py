"""Plots in run folders, where Matplotlib is installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from graph_rewrite.system.extras import MissingLibraryError, require


def can_plot(console: Console) -> bool:
    """Return whether Matplotlib is installed; say so where it is not."""
    try:
        require("A plot", "matplotlib")
    except MissingLibraryError as error:
        console.print(f"No plots: {error}", soft_wrap=True, markup=False)
        return False
    return True


def plot_training(training: Mapping[str, Any], run: Path, console: Console) -> None:
    """Save the learning curve of a training in its run folder, if Matplotlib is installed.

    Args:
        training: `training` of the run's `result.json`.
    """
    if can_plot(console):
        from agents.reporting.plots import save_learning_curve  # here, as it imports Matplotlib, which takes a second

        save_learning_curve(training, run)
