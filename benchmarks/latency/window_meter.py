"""Compare the window meter with whole models, and count the differences that meters see where there are none.

    python -m benchmarks.latency.window_meter --model zoo://bert?layers=2 [--json]

Validation: each rewrite of all sites of a class is timed by windows and as whole models, with the same clock. A/A: each
kind of window is timed against itself (regional), and the whole model against itself with an idle optimiser refused
(end to end, both efforts); an interval that leaves zero out is a false positive, of which 2.5% on each side are wanted.
Resolution: how often a rewrite whose effect is `EFFECT` of the model or more is told from none within `WITHIN_S`.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from graph_rewrite.latency import OPTIMIZERS, Deployment, Effort
from graph_rewrite.latency.windows import (
    NotSeparable,
    WindowMeter,
    WindowPair,
    changed_windows,
    traffic_of,
)
from graph_rewrite.rules import rule_set
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.task.meters import ort_meter
from graph_rewrite.task.models import Model, open_model

EFFECT = 0.002
"""Share of the model's latency that the window meter should resolve."""
WITHIN_S = 3.0
"""Seconds within which it should."""


@dataclass(frozen=True)
class Arguments:
    """Validate the window meter."""

    model: str = "zoo://bert?layers=2"
    """A name of the zoo, zoo://NAME?PARAMETER=VALUE, or an ONNX file."""
    rewrites: int = 30
    """Most rewrites that are compared with whole models."""
    whole_s: float = 4.0
    """Seconds for each comparison of whole models."""
    resolution: float = EFFECT / 2
    """Half-width of the interval, as a share of the model's latency, at which the window meter stops."""
    repeats: int = 100
    """A/A comparisons of windows."""
    whole_repeats: int = 10
    """A/A comparisons of whole models by each effort."""
    seed: int = 0
    """Seed of the draw of rewrites and windows."""
    json: bool = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True)
class Pair:
    """One rewrite by both meters: seconds saved per inference, and half-widths of the 95% intervals."""

    rewrite: str
    sites: int
    regional: float
    regional_half: float
    regional_took_s: float
    whole: float
    whole_half: float


@dataclass(frozen=True)
class FalsePositives:
    """A/A comparisons by one meter.

    Counts all comparisons, those whose interval excludes zero, and those with a half-width below `EFFECT` within
    `WITHIN_S`. Medians are the half-width relative to the model's latency and the seconds of one comparison.
    """

    meter: str
    comparisons: int
    positive: int
    half_width: float
    took_s: float
    resolved: int


def false_positives(meter: str, found: list[tuple[bool, float, float]]) -> FalsePositives:
    """Summarise comparisons: zero outside the interval or not, half-width relative to the latency, seconds."""
    positive, widths, seconds = zip(*found, strict=True)
    resolved = sum(width < EFFECT and took <= WITHIN_S for _, width, took in found)
    return FalsePositives(
        meter, len(found), sum(positive), statistics.median(widths), statistics.median(seconds), resolved
    )


def validate(model: Model, meter: WindowMeter, arguments: Arguments, rng: np.random.Generator) -> list[Pair]:
    """Time every class of rewrites that a window can hold, by windows and as whole models."""
    found = Rewriter(rule_set("default"), granularity="class", deployment=False).candidates(model.graph)
    pairs: list[Pair] = []
    for i in rng.permutation(len(found)):
        if len(pairs) >= arguments.rewrites:
            break
        after = found[int(i)].apply()
        try:
            changed_windows(model.graph, after, meter.margin)
        except NotSeparable:
            continue
        started = time.monotonic()
        regional = meter.difference(model.graph, after)
        took = time.monotonic() - started
        whole = meter.time(WindowPair(model.graph, after, 1, after.hash), arguments.whole_s)
        if regional.ok and regional.how == "window":
            pairs.append(
                Pair(
                    found[int(i)].description, found[int(i)].count, regional.seconds, regional.half, took,
                    whole.seconds, whole.half,
                )
            )  # fmt: skip
    return pairs


def windows_against_themselves(
    model: Model, meter: WindowMeter, whole_s: float, repeats: int, rng: np.random.Generator
) -> FalsePositives:
    """Run A/A comparisons of the windows that rewrites of `model` change, each as often as the model has it.

    `whole_s` is the model's latency in seconds.
    """
    candidates = Rewriter(rule_set("default"), granularity="class", deployment=False).candidates(model.graph)
    kinds: dict[str, WindowPair] = {}
    for candidate in candidates:
        try:
            kinds |= {cut.key: cut for cut in changed_windows(model.graph, candidate.apply(), meter.margin)}
        except NotSeparable:
            continue
    names = sorted(kinds)
    found = []
    for _ in range(repeats):
        cut = kinds[names[int(rng.integers(len(names)))]]
        started = time.monotonic()
        entry = meter.time(WindowPair(cut.before, cut.before, cut.count, cut.key), anew=True)
        took = time.monotonic() - started
        found.append((not entry.ci95[0] <= 0.0 <= entry.ci95[1], entry.half / whole_s, took))
    return false_positives("regional", found)


def model_against_itself(model: Model, folder: Path, effort: Effort, repeats: int) -> FalsePositives:
    """Run A/A comparisons of a whole model: refusing an optimiser that changes nothing gives the same session."""
    found = []
    with ort_meter(model, Deployment(), folder) as meter:
        idle = sorted(set(OPTIMIZERS) - meter.active_optimizers(model.original))
        for name in idle[:repeats]:
            started = time.monotonic()
            latency = meter.measure(model.original.with_disabled_optimizers({name}), effort)
            took = time.monotonic() - started
            low, high = latency.ci95
            found.append((not low <= 1.0 <= high, (high - low) / 2, took))
    return false_positives(effort, found)


def agreement(pairs: list[Pair], whole_s: float) -> dict[str, float]:
    """Return figures of how the two meters agree.

    They are their correlation, the median and 90th percentile of their distance relative to the model's latency, and
    the share of pairs whose distance their intervals explain (95% are wanted).
    """
    regional, whole = (np.array([getattr(pair, name) for pair in pairs]) for name in ("regional", "whole"))
    explained = np.array([np.hypot(pair.regional_half, pair.whole_half) for pair in pairs])
    distance = np.abs(regional - whole)
    return {
        "correlation": float(np.corrcoef(regional, whole)[0, 1]),
        "median_error": float(np.median(distance) / whole_s),
        "p90_error": float(np.percentile(distance, 90) / whole_s),
        "explained": float(np.mean(distance <= explained)),
    }


def resolution(pairs: list[Pair], whole_s: float) -> dict[str, float]:
    """Return figures of rewrites whose effect is `EFFECT` or more by either meter.

    They are their number, the number that the window meter told from none, and that within `WITHIN_S`; and the 90th
    percentiles of its seconds and of the interval's half-width relative to the model's latency.
    """
    large = [pair for pair in pairs if max(abs(pair.regional), abs(pair.whole) - pair.whole_half) >= EFFECT * whole_s]
    told = [pair for pair in large if abs(pair.regional) > pair.regional_half]
    return {
        "effects": len(large),
        "told": len(told),
        "told_in_time": sum(pair.regional_took_s <= WITHIN_S for pair in told),
        "p90_took_s": float(np.percentile([pair.regional_took_s for pair in pairs], 90)),
        "p90_half_width": float(np.percentile([pair.regional_half / whole_s for pair in pairs], 90)),
    }


def measure(arguments: Arguments) -> dict[str, Any]:
    """Return all figures, as plain values."""
    rng = np.random.default_rng(arguments.seed)
    model = open_model(arguments.model)
    with tempfile.TemporaryDirectory(prefix="rewritegym-windows-") as folder:
        with WindowMeter(workspace=folder) as meter:
            whole_s = meter.time(WindowPair(model.graph, model.graph, 1, "whole"), arguments.whole_s).window_seconds
        precise, traffic = arguments.resolution * whole_s, traffic_of(model.graph)
        with WindowMeter(workspace=folder, resolution_s=precise, traffic=traffic) as meter:
            pairs = validate(model, meter, arguments, rng)
            false = [windows_against_themselves(model, meter, whole_s, arguments.repeats, rng)]
        efforts: tuple[Effort, ...] = ("screen", "full") if arguments.whole_repeats else ()
        false += [model_against_itself(model, Path(folder), effort, arguments.whole_repeats) for effort in efforts]
    return {
        "model": arguments.model,
        "latency_s": whole_s,
        "pairs": [asdict(pair) for pair in pairs],
        "agreement": agreement(pairs, whole_s) if len(pairs) > 1 else None,
        "resolution": resolution(pairs, whole_s) if pairs else None,
        "false_positives": [asdict(entry) for entry in false],
    }


def show(found: dict[str, Any], console: Console) -> None:
    """Print two tables."""
    table = Table(title=f"Saved by a rewrite of {found['model']}, us per inference ({1e3 * found['latency_s']:.1f} ms)")
    for heading in ("rewrite", "sites", "by windows", "+-", "whole", "+-"):
        table.add_column(heading, justify="left" if heading == "rewrite" else "right")
    for pair in sorted(found["pairs"], key=lambda pair: -float(pair["regional"])):
        figures = (pair[name] for name in ("regional", "regional_half", "whole", "whole_half"))
        table.add_row(pair["rewrite"][:60], str(pair["sites"]), *(f"{1e6 * figure:.0f}" for figure in figures))
    console.print(table)
    for name in ("agreement", "resolution"):
        if found[name] is not None:
            console.print(f"{name}:", ", ".join(f"{key} {value:.4g}" for key, value in found[name].items()))
    for entry in found["false_positives"]:
        console.print(
            f"A/A {entry['meter']}: {entry['positive']} of {entry['comparisons']} positive, half-width"
            f" {entry['half_width']:.3%} of the model, {entry['took_s']:.2f} s each, {entry['resolved']} below"
            f" {EFFECT:.1%} within {WITHIN_S:.0f} s"
        )


def main() -> int:
    """Run the benchmark and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.latency.window_meter")
    found = measure(arguments)
    if arguments.json:
        print(json.dumps(found))
    else:
        show(found, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
