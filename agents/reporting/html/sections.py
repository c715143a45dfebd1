"""The sections of a report but for its substitutions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.reporting.html.charts import latency_bars, trajectory
from agents.reporting.html.markup import Html, join, table, tag
from agents.reporting.html.numbers import TIMES, counted, error, interval, megabytes, milliseconds, times
from agents.reporting.html.report import OptimizationReport
from agents.reporting.progress import dynamic_lines
from graph_rewrite.runtime import PROVIDERS

MOST_OPERATORS = 16
"""Rows of the table of operators: those whose number changed most."""
_LANGUAGES = {"python": "Python", "cpp": "C++", "csharp": "C#"}


def deployment_line(report: OptimizationReport) -> str:
    """Return provider, threads, version of the runtime and processor in a line."""
    deployment, machine = report.entry["deployment"], report.machine
    facts = PROVIDERS[str(deployment["provider"])]
    names = ("onnxruntime-gpu", "onnxruntime") if facts.is_onnxruntime else (facts.title.lower(),)
    runtime = next((machine[name] for name in names if machine.get(name)), None)
    parts = [
        f"{str(deployment['provider']).upper()} provider", counted(int(deployment["threads"]), "thread"),
        f"{facts.title} {runtime}" if runtime else "", machine.get("processor", "").split(",")[0],
    ]  # fmt: skip
    return " \N{MIDDLE DOT} ".join(filter(None, parts))


def headline(report: OptimizationReport) -> Html:
    """Return the first lines: the deployment, the model, and what came out."""
    if report.is_original:
        title, text = "The original is kept", f"{report.model}: {report.entry.get('message', '')}"
    else:
        title = join("Runs ", times(report.speedup), " as fast")
        text = report.model
    low, high = report.interval
    sure = None if report.is_original else tag("p", f"95% confidence interval {low:.3f} to {high:.3f}", class_="ci")
    return tag(
        "header", tag("p", deployment_line(report), class_="deployment"), tag("p", text, class_="model"),
        tag("h1", title), sure, _bars(report),
    )  # fmt: skip


def _bars(report: OptimizationReport) -> Html | None:
    before, after = report.baseline_ms, report.latency_ms
    if report.is_original or before is None or after is None or min(before, after, *report.interval) <= 0.0:
        return None
    return latency_bars(before, after, report.interval)


def comparison(report: OptimizationReport) -> Html:
    """Return the table of before and after."""
    rows: list[tuple[object, ...]] = [("latency", *_latencies(report))]
    if report.operators is not None:
        rows.append(("operators", *(f"{sum(side.values()):,}" for side in report.operators)))
    memory = report.entry.get("memory")
    if memory is not None:
        rows.append(("weights", *(megabytes(memory[side]["weights"]) for side in ("before", "after"))))
    if report.files is not None:
        rows.append(("model file", *map(megabytes, report.files)))
    if memory is not None:
        rows.append(("peak memory, estimated", *(megabytes(memory[side]["peak"]) for side in ("before", "after"))))
    if report.footprints is not None:
        rows.append(("peak memory of a process", *(megabytes(side.peak_bytes) for side in report.footprints)))
        rows.append(("time to load", *(milliseconds(1e3 * side.load_s) for side in report.footprints)))
    notes = "The estimate of memory counts weights and live activations, without what ONNX Runtime adds for itself. "
    if report.footprints is not None:
        notes += "Time to load and memory of a process are those of one process that loads the model and runs it once."
    if report.is_original:
        title, figures = "The model", table((), [row[:2] for row in rows], numbers=1)
    else:
        title, figures = "Before and after", table(("", "before", "after"), rows, numbers=2)
    return _section(
        title, figures, tag("p", notes, class_="note"), _threads(report), _tradeoff(report), _warnings(report)
    )


def _latencies(report: OptimizationReport) -> tuple[Html, Html]:
    """Return the latencies before and after, the latter with the interval that the speed-up's makes of it."""
    before, after = milliseconds(report.baseline_ms), milliseconds(report.latency_ms)
    low, high = report.interval
    if report.is_original or report.baseline_ms is None or low <= 0.0:
        return before, after
    ends = join(milliseconds(report.baseline_ms / high, unit=""), " to ", milliseconds(report.baseline_ms / low))
    return before, join(after, tag("span", ends, class_="ci"))


def _threads(report: OptimizationReport) -> Html | None:
    rows: list[tuple[object, ...]] = [
        (
            counted(int(found["threads"]), "thread"), times(found["speedup"]),
            interval(found["speedup_ci95"]), milliseconds(found["latency_ms"]),
        )
        for found in report.entry.get("threads") or ()
        if isinstance(found, Mapping)
    ]  # fmt: skip
    head = ("measured with", "speed-up", "95% interval", "latency")
    return table(head, rows, numbers=3, caption="With other numbers of threads") if rows else None


def _tradeoff(report: OptimizationReport) -> Html | None:
    """Return how fast the model gets within several sizes."""
    rows: list[tuple[object, ...]] = [
        (f"{float(point['size']):g}{TIMES}", times(point["speedup"]), megabytes(point["weights"]))
        for point in report.entry.get("tradeoff") or ()
    ]
    if report.is_original or len({point["speedup"] for point in report.entry.get("tradeoff") or ()}) < 2:
        return None
    caption = "Speed for size: the best graph of the search within each multiple of the weights, by quick measurements"
    return table(("weights up to", "speed-up", "weights"), rows, numbers=2, caption=caption)


def _warnings(report: OptimizationReport) -> Html | None:
    texts = [tag("p", text, class_="warning") for text in report.entry.get("warnings") or ()]
    return join(*texts) if texts else None


def operators(report: OptimizationReport) -> Html | None:
    """Return the table of operators whose number changed."""
    if report.operators is None or report.is_original:
        return None
    before, after = report.operators
    changes = [(name, before.get(name, 0), after.get(name, 0)) for name in {**before, **after}]
    changed = sorted((c for c in changes if c[1] != c[2]), key=lambda c: (-abs(c[1] - c[2]), c[0]))
    rows: list[tuple[object, ...]] = [
        (tag("code", name), f"{old:,}", f"{new:,}", f"{new - old:+,}") for name, old, new in changed[:MOST_OPERATORS]
    ]
    more = len(changed) - len(rows)
    note = tag("p", f"and {counted(more, 'more operator')}", class_="note") if more else None
    head = ("operator", "before", "after", "change")
    return _section("Operators that changed", table(head, rows, numbers=3), note) if rows else None


def validation(report: OptimizationReport) -> Html:
    """Return what was compared, and how far the outputs differ."""
    entry = report.entry
    verdict = "The outputs agree with the original's." if entry["verified"] else "The outputs are not verified."
    rows: list[tuple[object, ...]] = [
        ("largest error, relative to the output's scale", error(entry.get("max_rel_error")))
    ]
    if report.tolerance is not None:
        rows.append(("tolerance", error(report.tolerance)))
    how = (
        "Both files ran in a process of their own on the same inputs: the original with all optimisations of ONNX "
        "Runtime off, the result as it is deployed. The file that was compared is the file that was written."
    )
    return _section(
        "Validation", tag("p", tag("strong", verdict), class_="good" if entry["verified"] else "warning"),
        tag("p", str(entry.get("message", ""))), table((), rows, numbers=1), tag("p", how, class_="note"),
        *(tag("p", line) for line in dynamic_lines(entry.get("dynamic") or {})),
    )  # fmt: skip


def search(report: OptimizationReport) -> Html:
    """Return what was tried, and why nothing more was found."""
    entry = report.entry
    points = [(float(p["seconds"]), float(p["speedup"])) for p in entry.get("improvements") or ()]
    seconds, measured = float(entry.get("seconds", 0.0)), int(entry.get("measurements", 0))
    texts = [f"{counted(measured, 'whole model')} measured; {seconds:,.0f} seconds in all."]
    if "applications" in entry:
        texts[0] += f" {counted(int(entry['applications']), 'rewrite')} tried."
    if len(points) > 1:
        left = max(0.0, seconds - points[-1][0])
        texts.append(
            f"The fastest graph was found after {points[-1][0]:.0f} seconds. The {left:.0f} seconds after that found "
            "none that is faster, and measured and checked this one."
        )
    failed = entry.get("failed_measurements")
    if failed:
        texts.append(
            f"{failed} of {entry.get('tried_measurements', failed)} measurements failed; the first error was: "
            f"{entry.get('first_error')}"
        )
    faults: Mapping[str, Any] = entry.get("rule_faults") or {}
    texts += [
        f"Rule {rule} raised {counted(int(n), 'exception')} and was left out there." for rule, n in faults.items()
    ]
    chart = trajectory(points, seconds) if points else None
    caption = tag("figcaption", "Best speed-up by quick measurements, over the seconds of the search")
    figure = tag("figure", chart, caption) if chart is not None else None
    return _section("Search", *(tag("p", text) for text in texts), figure, _near_misses(report))


def _near_misses(report: OptimizationReport) -> Html | None:
    if not report.near_misses:
        return None
    rows: list[tuple[object, ...]] = [
        (tag("code", miss.rule), miss.reason, tag("code", miss.such_as), f"{miss.sites:,}")
        for miss in report.near_misses
    ]
    text = "These rules occur in the result, but their conditions do not hold there."
    return join(
        tag("h3", "Rules that nearly applied"), tag("p", text),
        table(("rule", "reason", "such as", "sites"), rows, numbers=1),
    )  # fmt: skip


def deployment(report: OptimizationReport) -> Html | None:
    """Return code that opens the result, and the command that replays it."""
    folder = (report.entry.get("dynamic") or {}).get("bundle")
    written = folder or report.entry.get("onnx_path")
    parts: list[Html | None] = []
    if written:
        name, kind = Path(str(written)).name, "folder" if folder else "file"
        parts.append(tag("p", f"The {kind} ", tag("code", name), " runs as measured with these settings."))
    for i, (language, code) in enumerate(report.code.items()):
        title = tag("summary", _LANGUAGES.get(language, language))
        parts.append(tag("details", title, tag("pre", tag("code", code), tabindex="0"), open=i == 0))
    if report.replay:
        parts.append(tag("p", "The same rewrites on retrained weights or a new export, without a search:"))
        parts.append(tag("pre", tag("code", report.replay), tabindex="0"))
    return _section("Deploy and replay", *parts) if parts else None


def machine(report: OptimizationReport) -> Html | None:
    """Return hardware and versions."""
    rows: list[tuple[object, ...]] = [(name, value) for name, value in report.machine.items()]
    refused = ", ".join(report.entry["deployment"].get("disabled_optimizers", ())) or "none"
    rows.append(("refused optimisers of ONNX Runtime", refused))
    return _section("Machine and versions", table((), rows))


def _section(title: str, *contents: Html | None) -> Html:
    name = title.lower().replace(" ", "-")
    return tag("section", tag("h2", title, id=name), *contents, aria_labelledby=name)
