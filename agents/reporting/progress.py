"""Progress while a command runs and tables at its end, on a given console."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from agents.core.base import Search
from agents.ppo.progress import TrainingProgress
from agents.reporting.json_text import json_text
from graph_rewrite.system.cpu_count import threads_in_words

MOST_OPERATORS = 8
"""Operators of a replacement that a table lists one by one."""
EVERY = 30.0
"""Seconds between lines of progress where the console is no terminal."""


@contextmanager
def training_display(console: Console, total: int) -> Iterator[Any]:
    """A progress bar over timesteps; yields the callback that updates it."""
    columns = (
        SpinnerColumn(), TextColumn("training"), BarColumn(), TextColumn("{task.completed}/{task.total} steps"),
        TextColumn("{task.fields[status]}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, refresh_per_second=2) as bar:
        task, log = bar.add_task("training", total=total, status=""), line_log(console)

        def update(progress: TrainingProgress) -> None:
            status = (
                f"episode {progress.episodes}  reward {progress.mean_reward:+.2f}  best x{progress.best_speedup:.3f}"
            )
            bar.update(task, completed=progress.timesteps, status=status)
            log(progress.seconds, f"  {progress.seconds:4.0f} s  step {progress.timesteps}/{total}  {status}")

        yield update


@contextmanager
def search_display(console: Console, agent: str, counts: bool = True) -> Iterator[Any]:
    """Show a line that tells how a search stands, in a file one every `EVERY` seconds; yields the callback that updates
    it. `counts` adds the measurements, of which the budget has a limit."""
    with console.status(f"{agent}: searching") as status:
        log = line_log(console)

        def update(search: Search) -> None:
            best = search.best
            speedup = 1.0 if best is None else best.latency.speedup
            counted = f"{search.measurements}/{search.budget.measurements} measurements, {_applications(search)}"
            line = (
                f"{agent}: {counted if counts else ''}{search.elapsed:.0f}/{search.budget.seconds:.0f} s, "
                f"best x{speedup:.3f}"
            )
            status.update(line)
            log(search.seconds, line)

        yield update


def improvement_log(console: Console) -> Callable[[Search], None]:
    """Return a function that prints a line for every new best of a search, with the rewrite that led to it."""
    told = 0

    def log(search: Search) -> None:
        nonlocal told
        new, told = search.improvements[told:], len(search.improvements)
        if not new:
            return
        best = search.best
        rewrite = best.actions[-1].description if best is not None and best.actions else "the original"
        console.print(
            f"  {new[-1].seconds:5.1f} s  x{new[-1].speedup:.3f}  {new[-1].latency_ms:.2f} ms  {_shortened(rewrite)}",
            soft_wrap=True, markup=False,
        )  # fmt: skip

    return log


def line_log(console: Console, *, at_once: bool = False) -> Callable[[float, str], None]:
    """Return a function that prints lines, one every `EVERY` seconds at most, where the console is no terminal.

    Args:
        at_once: print the first line whenever it comes.
    """
    shown = -EVERY if at_once else 0.0

    def log(seconds: float, line: str) -> None:
        nonlocal shown
        if not console.is_terminal and seconds - shown >= EVERY:
            shown = seconds
            console.print(line, soft_wrap=True, markup=False)

    return log


def _applications(search: Search) -> str:
    limit = search.budget.applications
    return f"{search.applications} rewrites, " if limit is None else f"{search.applications}/{limit} rewrites, "


def summary_line(model: str, entry: Mapping[str, Any]) -> str:
    """Return the result in one sentence: the speed-up and the deployment for which it holds."""
    deployment = entry["deployment"]
    threads = threads_in_words(deployment["threads"])
    where = f"with {threads} on {deployment['provider']}"
    before, after = baseline_ms(entry), entry["latency_ms"]
    if before is None or not entry["rewrites"]:
        return f"{model} {where}: {entry['message']}"
    low, high = entry["speedup_ci95"]
    return (
        f"{model} {where}: {entry['speedup']:.2f} times as fast ({low:.2f} to {high:.2f}), "
        f"{before:.2f} ms -> {after:.2f} ms"
    )


def results_table(title: str, results: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with a row per agent (and repeat): speed-up with its interval, latency, cost, check. Fits into 80
    columns."""
    table = table_of(title, ("agent",), ("speed-up", "95% interval", "ms", "seconds", "measured", "error"))
    for entry in results:
        low, high = entry["speedup_ci95"]
        ms = "unknown" if entry["latency_ms"] is None else f"{entry['latency_ms']:.2f}"
        table.add_row(
            str(entry["agent"]), f"x{entry['speedup']:.3f}", f"{low:.3f} to {high:.3f}", ms,
            f"{entry['seconds']:.1f}", str(entry["measurements"]), f"{entry['max_rel_error']:.1e}",
        )  # fmt: skip
    return table


def threads_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with a row per number of threads that a result was measured with."""
    table = table_of("with each number of threads", (), ("threads", "speed-up", "95% interval", "ms"))
    for entry in results:
        low, high = entry["speedup_ci95"]
        ms = "unknown" if entry["latency_ms"] is None else f"{entry['latency_ms']:.2f}"
        table.add_row(str(entry["threads"]), f"x{entry['speedup']:.3f}", f"{low:.3f} to {high:.3f}", ms)
    return table


_NO_SETTINGS = ("provider", "threads", "optimization_level", "disabled_optimizers", "nchwc_block")
"""Fields of a deployment that are no session settings."""


def deployment_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with a row per agent (and repeat): size of the weights, estimated peak memory, and how the result
    is to be run."""
    table = table_of("size and deployment", ("agent", "refused optimisers and settings"), ("weights MB", "peak MB"))
    for entry in results:
        deployment = entry["deployment"]
        refused = ", ".join(deployment["disabled_optimizers"]) or "none"
        settings = [f"{name}={value}".lower() for name, value in deployment.items() if name not in _NO_SETTINGS]
        refused = "; ".join([refused, *settings])
        table.add_row(str(entry["agent"]), refused, _grown(entry, "weights"), _grown(entry, "peak"))
    return table


def table_of(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    """An empty table; where it is too wide, words are broken into lines and numbers stay whole."""
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in words:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _grown(entry: Mapping[str, Any], what: str) -> str:
    """Return the megabytes after, and before where that is another number."""
    memory = entry.get("memory")
    if memory is None:
        return "unknown"
    before, after = (f"{memory[side][what] / 1e6:.1f}" for side in ("before", "after"))
    return after if before == after else f"{after} (was {before})"


def rules_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """A row per agent (and repeat): what the sum of operators makes of the result, the rewrites that the search tried,
    the different rules in the result and the sites they rewrote."""
    numbers = ("end to end", "cost model", "rewrites tried", "rules applied", "sites")
    table = table_of("what the cost model says, and what was applied", ("agent",), numbers)
    for entry in results:
        modelled = entry.get("cost_model_speedup")
        table.add_row(
            str(entry["agent"]), f"x{entry['speedup']:.3f}", "unknown" if modelled is None else f"x{modelled:.3f}",
            str(entry["applications"]), str(entry["rules_applied"]), str(sum(entry["rule_histogram"].values())),
        )  # fmt: skip
    return table


def fault_warnings(entry: Mapping[str, Any]) -> list[str]:
    """Return a line per rule whose code raised exceptions during a search, with their number and the first of them."""
    return [
        f"warning: rule {rule} raised {count} exception{'s' if count > 1 else ''} and was left out there: "
        f"{entry['rule_fault_examples'][rule]}"
        for rule, count in entry["rule_faults"].items()
    ]


def rewrites_table(entry: Mapping[str, Any]) -> Table:
    """Return a table of the substitutions that made a result, in order."""
    table = Table(title=f"substitutions of {entry['agent']}", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("step", "rule", "sites", "saves ms", "what"):
        numbers = name in ("step", "sites", "saves ms")
        table.add_column(name, justify="right" if numbers else "left", no_wrap=numbers, overflow="fold")
    for step, rewrite in enumerate(entry["rewrites"], 1):
        saved = "?" if rewrite.get("saved_ms") is None else f"{rewrite['saved_ms']:.3f}"
        table.add_row(str(step), rewrite["rule"], str(rewrite["sites"]), saved, _shortened(rewrite["description"]))
    return table


def _shortened(description: str) -> str:
    """A candidate's description with long lists of operators as counts: `12 Conv, 8 Add` for twenty names."""
    before, arrow, after = description.partition(" -> ")
    operators, bracket, rest = after.partition(" (")
    names = Counter(operators.split())
    if not arrow or names.total() <= MOST_OPERATORS:
        return description
    counted = ", ".join(f"{count} {name}" for name, count in names.most_common())
    return f"{before}{arrow}{counted}{bracket}{rest}"


def failure_warnings(entry: Mapping[str, Any]) -> list[str]:
    """Return a line where more than half of a search's measurements failed: its result says little then."""
    tried, failed = entry["tried_measurements"], entry["failed_measurements"]
    if 2 * failed <= tried:
        return []
    return [
        f"warning: {failed} of {tried} candidates could not be measured, so that this search says little; "
        f"the first error was: {entry['first_error']}"
    ]


def baseline_ms(entry: Mapping[str, Any]) -> float | None:
    """Return the original's latency in milliseconds; None where no time was left to measure it."""
    return None if entry["latency_ms"] is None else float(entry["latency_ms"] * entry["speedup"])


def print_warnings(console: Console, entry: Mapping[str, Any]) -> None:
    """Print what is wrong with the rules that a search used and with its measurements, and an entry's own warnings."""
    own = [f"warning: {text}" for text in entry.get("warnings", ())]
    for line in [*fault_warnings(entry), *failure_warnings(entry), *own]:
        console.print(line, style="yellow", soft_wrap=True, markup=False)


def dynamic_lines(dynamic: Mapping[str, Any]) -> list[str]:
    """Return what became of a model's symbolic dimensions, in sentences; nothing for a static model."""
    if not dynamic:
        return []
    bound = _binding(dynamic["bound"])
    lines = [dynamic["note"]] if dynamic.get("note") else []
    if dynamic["verified_at"] and dynamic["symbolic"]:
        lines.append(
            f"the model keeps its symbolic dimensions: searched at {bound}, compared at"
            f" {len(dynamic['verified_at'])} other shapes"
        )
    elif not dynamic["symbolic"]:
        lines.append(f"the model has fixed shapes: {bound}")
    for one in dynamic.get("speedup_at", ())[1:]:
        low, high = one["speedup_ci95"]
        lines.append(f"at {_binding(one['at'])}: x{one['speedup']:.3f} ({low:.3f} to {high:.3f})")
    lines += [_specialised_line(one) for one in dynamic.get("specialised", ())]
    for one in dynamic["left_out"]:
        saved = f", which saved {one['saved_ms']:.3g} ms at {bound}" if one.get("saved_ms") else ""
        lines.append(f"left out: {one['rule']} at {one['sites']} site(s){saved}: {one['reason']}")
    return lines


def _specialised_line(one: Mapping[str, Any]) -> str:
    """Return what runs at a shape that --specialise was asked for."""
    if not one["own"]:
        return f"at {_binding(one['at'])} the model for all shapes runs: {one['reason']}"
    low, high = one["speedup_ci95"]
    others = "".join(f"; with {_with_threads(found)}" for found in one.get("threads", ())[1:])
    return (
        f"at {_binding(one['at'])} a model of its own runs: x{one['speedup']:.3f} ({low:.3f} to {high:.3f}), "
        f"x{one['over_general']:.3f} over the model for all shapes{others}"
    )


def _with_threads(found: Mapping[str, Any]) -> str:
    """Return a speed-up with a number of threads."""
    low, high = found["speedup_ci95"]
    gain = "not measured" if found["latency_ms"] is None else f"x{found['speedup']:.3f} ({low:.3f} to {high:.3f})"
    return f"{threads_in_words(found['threads'])} {gain}"


def _binding(values: Mapping[str, int]) -> str:
    return ", ".join(f"{symbol}={value}" for symbol, value in values.items())


def print_json(values: object) -> None:
    """Print one JSON document on standard output; numbers that are not finite are null."""
    print(json_text(values))
