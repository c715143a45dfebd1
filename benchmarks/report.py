"""Make tables and plots of results.

    python -m benchmarks.report compare runs/A runs/B --out benchmarks/results/bert
    python -m benchmarks.report curves runs/C --out benchmarks/results/learning-curves
    python -m benchmarks.report zoo benchmarks/results/end_to_end-regional-t*.json --out benchmarks/results/zoo

`compare` takes runs of evaluate.py and writes OUT.md, OUT.json and OUT.png (speed-up per agent and seed); `curves`
takes runs of train.py and writes OUT.png (mean episode reward and best speed-up over timesteps); `zoo` takes files of
`benchmarks.end_to_end` and writes OUT.md and OUT.png: a row per model, and the speed-up under each file's setting.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib
import tyro

matplotlib.use("Agg")
from matplotlib import pyplot as plt

HEADINGS = (
    "model",
    "agent",
    "runs",
    "speed-up, median",
    "lowest",
    "highest",
    "measured",
    "s",
    "worst error",
    "rewrites",
)

MOST_RULES = 4
"""Rules of a result that a row of `zoo` names: those with the most sites."""


@dataclass(frozen=True)
class Arguments:
    """Make tables and plots of runs."""

    kind: tyro.conf.Positional[Literal["compare", "curves", "zoo"]]
    """`compare` for runs of evaluate.py, `curves` for runs of train.py, `zoo` for files of benchmarks.end_to_end."""
    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, each with a result.json; for `zoo` the files themselves, the first of which has the errors."""
    out: Path
    """Path of the files to write, without a suffix."""


def load_runs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the result.json of each run.

    Raises:
        FileNotFoundError: a folder has none.
    """
    return [json.loads((folder / "result.json").read_text()) for folder in folders]


def compare(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table with a row per model and agent."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    for model in dict.fromkeys(run["model"] for run in runs):
        entries = [entry for run in runs if run["model"] == model for entry in run["results"]]
        for agent in dict.fromkeys(entry["agent"] for entry in entries):
            lines.append(_row(model, agent, [entry for entry in entries if entry["agent"] == agent]))
    return "\n".join(lines) + "\n"


def _row(model: str, agent: str, entries: Sequence[Mapping[str, Any]]) -> str:
    speedups = [entry["speedup"] for entry in entries]
    best = max(entries, key=lambda entry: entry["speedup"])
    rewrites = ", ".join(f"{r['rule']} x{r['sites']}" for r in best["rewrites"]) or "none: the original is kept"
    cells = (
        model, agent, str(len(entries)), f"{statistics.median(speedups):.3f}", f"{min(speedups):.3f}",
        f"{max(speedups):.3f}", f"{statistics.median(entry['measurements'] for entry in entries):g}",
        f"{statistics.median(entry['seconds'] for entry in entries):.0f}",
        f"{max(entry['max_rel_error'] for entry in entries):.1e}", rewrites,
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def draw_comparison(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a point per run with its 95% interval, grouped by model and agent."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        for entry in run["results"]:
            groups.setdefault(f"{run['model'].removeprefix('zoo://')}\n{entry['agent']}", []).append(entry)
    figure, axes = plt.subplots(figsize=(1.0 + 1.3 * len(groups), 4.0), layout="constrained")
    for place, entries in enumerate(groups.values()):
        for k, entry in enumerate(entries):
            spot = place + 0.12 * (k - len(entries) / 2)
            axes.errorbar(spot, entry["speedup"], _error_bars([entry]), fmt="o", ms=3, color=f"C{place}")
    axes.axhline(1.0, color="grey", lw=0.8)
    axes.set_xticks(range(len(groups)), list(groups), fontsize=7)
    axes.set_ylabel("speed-up over ORT_ENABLE_ALL")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _error_bars(entries: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Return the lengths of the 95% intervals below and above the speed-ups."""
    return [
        [max(0.0, entry["speedup"] - entry["speedup_ci95"][0]) for entry in entries],
        [max(0.0, entry["speedup_ci95"][1] - entry["speedup"]) for entry in entries],
    ]


def draw_curves(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the mean reward of the last 20 episodes and the best speed-up, over timesteps."""
    figure, (rewards, speedups) = plt.subplots(1, 2, figsize=(9.0, 3.5), layout="constrained")
    for run in runs:
        steps, reward, best = zip(*run["training"]["curve"], strict=True)
        label = run["model"].removeprefix("zoo://")
        rewards.plot(steps, reward, label=label)
        speedups.plot(steps, best, label=label)
    rewards.set(xlabel="timesteps", ylabel="episode reward, mean of 20")
    speedups.set(xlabel="timesteps", ylabel="best speed-up so far")
    rewards.legend(fontsize=7)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def setting_name(setting: Mapping[str, Any]) -> str:
    """Return a name for the settings of a file of `benchmarks.end_to_end`."""
    threads = "1 thread" if setting["threads"] == 1 else f"{setting['threads']} threads"
    return threads + (", standard operators" if setting["standard_ops_only"] else "")


def zoo_table(files: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table with a row per model, sorted by the speed-ups of the first file.

    Each file's setting has a column of speed-ups with 95% intervals; error, weights, peak memory and seconds of search
    are the first file's.
    """
    names = [setting_name(entry["setting"]) for entry in files]
    rows = [{row["model"]: row for row in entry["results"]} for entry in files]
    headings = ("model", "original", *names, "error", "weights", "peak", "search", "mostly")
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for model, row in sorted(rows[0].items(), key=lambda item: -item[1]["speedup"]):
        grown = [row["memory"]["after"][k] / max(1, row["memory"]["before"][k]) for k in ("weights", "peak")]
        rules = [rule for rule in row["rule_histogram"] if not rule.startswith(("refuse ", "keep "))]
        cells = (
            model, f"{row['baseline_ms']:.3g} ms", *(_gained(found.get(model)) for found in rows),
            f"{row['max_rel_error']:.0e}", *(f"x{factor:.2f}" for factor in grown), f"{row['seconds']:.0f} s",
            ", ".join(rules[:MOST_RULES]),
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _gained(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not run"
    low, high = row["speedup_ci95"]
    return "the original" if row["speedup"] == 1.0 else f"{row['speedup']:.2f} ({low:.2f} to {high:.2f})"


def draw_zoo(files: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a bar per model and file, with its 95% interval, in the order of `zoo_table`."""
    rows = [{row["model"]: row for row in entry["results"]} for entry in files]
    models = sorted(rows[0], key=lambda model: -rows[0][model]["speedup"])
    figure, axes = plt.subplots(figsize=(1.5 + 0.9 * len(models), 4.0), layout="constrained")
    width = 0.8 / len(files)
    for k, found in enumerate(rows):
        shown = [(place, found[model]) for place, model in enumerate(models) if model in found]
        speedups = [row["speedup"] for _, row in shown]
        errors = _error_bars([row for _, row in shown])
        places = [place + width * (k - (len(files) - 1) / 2) for place, _ in shown]
        label = setting_name(files[k]["setting"])
        axes.bar(places, speedups, width, yerr=errors, label=label, error_kw={"lw": 0.8}, color=f"C{k}")
    axes.axhline(1.0, color="grey", lw=0.8)
    axes.set_xticks(range(len(models)), models, rotation=30, ha="right", fontsize=8)
    axes.set_ylabel("speed-up over ORT_ENABLE_ALL")
    axes.set_ylim(bottom=0.8)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> int:
    """Run the command and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.report")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    if arguments.kind == "zoo":
        files = [json.loads(path.read_text()) for path in arguments.runs]
        arguments.out.with_suffix(".md").write_text(zoo_table(files))
        draw_zoo(files, arguments.out.with_suffix(".png"))
        print(zoo_table(files))
        return 0
    runs = load_runs(arguments.runs)
    if arguments.kind == "curves":
        draw_curves(runs, arguments.out.with_suffix(".png"))
        return 0
    for run in runs:
        for entry in run["results"]:
            entry.pop("onnx_path", None)  # a place on this machine
    arguments.out.with_suffix(".md").write_text(compare(runs))
    arguments.out.with_suffix(".json").write_text(json.dumps(runs, indent=1) + "\n")
    draw_comparison(runs, arguments.out.with_suffix(".png"))
    print(compare(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
