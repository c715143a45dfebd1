"""Markdown tables of a results file: models by agents, models by peers, and every run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.figures.intervals import (
    MANY_SEEDS,
    SpeedupEstimate,
    across_models,
    interquartile_mean,
    of_model,
    ratio_across_models,
)
from benchmarks.figures.rows import ORIGINAL, Results, Row, Series

NOT_RUN = "not run"
LONGEST_REASON = 40
"""Characters of the reason for a failure that a cell of the summary has room for."""
MOST_RULES = 6
"""Rules of a run that its row names: those with the most sites."""


def summary(results: Results) -> str:
    """Return what README quotes: speed-ups by agent and, beside the default agent's, by control and by peer, with a
    line that tells what a cell is. The original against itself is left to the page."""
    agents, leader = results.series("agent"), results.leader()
    peers = [series for series in results.series("peer") if results.without_result(series) is None]
    parts = [models_table(results, agents)] if agents else []
    controls = [series for series in results.series("control") if series.agent != ORIGINAL]
    for others in filter(None, (controls, peers)):
        parts.append(models_table(results, [leader, *others] if leader else others))
    return "\n".join([*parts, *comparison(results), legend(results)])


def comparison(results: Results) -> Iterator[str]:
    """Yield a sentence that counts models on which the default agent is ahead of each peer, and one on peers without a
    result."""
    leader = results.leader()
    counted, missing = [], []
    for peer in results.series("peer"):
        reason = results.without_result(peer)
        if reason is not None:
            missing.append(f"{peer.label} ({shortened(reason)})")
        elif leader is not None:
            both = _on_the_same(results, leader, peer)
            counted.append(f"{peer.label} {sum(a.value > b.value for a, b in both.values())} of {len(both)}")
    if leader is not None and counted:
        yield f"Models on which {leader.label} is ahead of each: {', '.join(counted)}.\n"
    if missing:
        yield f"Without a result on this machine: {', '.join(missing)}.\n"


def legend(results: Results) -> str:
    """Return a line under the tables: units, failures, machine and commit."""
    return (
        "Speed-up over the original file with all of ONNX Runtime's optimisations, with 95% intervals; the fastest of "
        f"a row is in bold. A run that failed counts as 1.0 in means. {results.caption}.\n"
    )


def models_table(results: Results, columns: Sequence[Series]) -> str:
    """Return a table with a row per model and a column per series, and their means in the last rows."""
    table = [["model", "original", *(series.label for series in columns)]]
    for model in results.models:
        found = [of_model(results, series, model) for series in columns]
        best = max((e.value for e in found if e is not None), default=0.0)
        cells = [
            cell(estimate, results.of(series, model), best) for estimate, series in zip(found, columns, strict=True)
        ]
        table.append([model, milliseconds(results.baseline_ms(model)), *cells])
    means = [across_models(results, series) for series in columns]
    of = [len({row.model for row in results.of(series)}) for series in columns]
    table.append(["geometric mean", "", *(_mean(e, n, results) for e, n in zip(means, of, strict=True))])
    middles = [interquartile_mean(results, series) for series in columns]
    if any(middles):
        label = f"interquartile mean, {MANY_SEEDS} runs or more"
        table.append([label, "", *("" if e is None else interval(e) for e in middles)])
    return markdown(table)


def runs_table(rows: Iterable[Row]) -> str:
    """Return a table of runs of one model, in the order given, failed ones included."""
    table = [
        ["run", "seed", "budget", "speed-up (95%)", "by the CPU's clock", "disturbed sessions", "latency", "search",
         "measured", "outputs", "error", "weights", "sites by rule"],
    ]  # fmt: skip
    table += [_run(row) for row in rows]
    return markdown(table)


def ahead_table(results: Results, leader: Series) -> str:
    """Return for each peer on how many models the leader is ahead of it, by the judged speed-up and by intervals."""
    table = [["peer", "models", "ahead", "surely ahead", "surely behind", "geometric mean", "ours on the same"]]
    for peer in results.series("peer"):
        both = _on_the_same(results, leader, peer)
        missing = [row.failure for row in results.of(peer) if not row.counts]
        if not both:
            table.append([peer.label, f"0: {missing[0]}" if missing else "0", *[""] * 5])
            continue
        means = [across_models(results, series, list(both)) for series in (peer, leader)]
        table.append([
            peer.label, str(len(both)) + (f", {len(missing)} failed" if missing else ""),
            str(sum(ours.value > its.value for ours, its in both.values())),
            str(sum(ours.low > its.high for ours, its in both.values())),
            str(sum(ours.high < its.low for ours, its in both.values())),
            *("" if mean is None else interval(mean) for mean in means),
        ])  # fmt: skip
    return markdown(table)


def pairs_table(results: Results, leader: Series) -> str:
    """Return for each other series of an agent how many times as fast its results are as the leader's; empty where
    there is none that was judged beside it."""
    table = [["agent", f"times as fast as {leader.label}"]]
    for series in results.series("agent"):
        found = None if series == leader else ratio_across_models(results, series, leader)
        if found is not None:
            table.append([series.label, f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"])
    return markdown(table) if len(table) > 1 else ""


def _on_the_same(results: Results, leader: Series, peer: Series) -> dict[str, tuple[SpeedupEstimate, SpeedupEstimate]]:
    """Return the speed-ups of both on the models on which both have a result."""
    pairs = {model: (of_model(results, leader, model), of_model(results, peer, model)) for model in results.models}
    return {model: (ours, its) for model, (ours, its) in pairs.items() if ours is not None and its is not None}


def behind_table(results: Results, leader: Series, rests: Mapping[str, str]) -> str:
    """Return the models on which a peer is ahead of the leader, with the fastest peer; empty where there are none.

    Args:
        rests: by model, the operators with most time above the machine's limit in the leader's result.
    """
    table = [["model", "peer", "its speed-up", leader.label, "our time above the limit"]]
    for model in results.models:
        ours = of_model(results, leader, model)
        found = [(e, p) for p in results.series("peer") if (e := of_model(results, p, model)) is not None]
        best, peer = max(found, key=lambda pair: pair[0].value, default=(None, None))
        if best is not None and peer is not None and best.value > (1.0 if ours is None else ours.value):
            shown = "failed" if ours is None else interval(ours)
            table.append([model, peer.label, interval(best), shown, rests.get(model, "not profiled")])
    return markdown(table) if len(table) > 1 else ""


def interval(estimate: SpeedupEstimate) -> str:
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def milliseconds(ms: float | None) -> str:
    return "" if ms is None else f"{ms:.3g} ms" if ms < 1000 else f"{ms:.0f} ms"


def markdown(table: Sequence[Sequence[str]]) -> str:
    """Return a markdown table; the first line is the heading."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    lines.insert(1, "|" + "---|" * len(table[0]))
    return "\n".join(lines) + "\n"


def cell(estimate: SpeedupEstimate | None, rows: Sequence[Row], best: float) -> str:
    """Return what a cell says of the runs of a series on a model.

    Args:
        best: the largest speed-up of the row, which is bold.
    """
    if not rows:
        return NOT_RUN
    if estimate is None:
        return _failed(rows[0])
    if all(row.keeps_original for row in rows):
        return "the original"
    failed = f", {estimate.failed} of {estimate.runs} failed" if estimate.failed else ""
    return f"{bold(estimate, best)} ({estimate.low:.2f} to {estimate.high:.2f}){failed}"


def bold(estimate: SpeedupEstimate, best: float) -> str:
    """Return a speed-up, bold where it is a gain and the best of its row."""
    value = f"{estimate.value:.2f}"
    return f"**{value}**" if value == f"{best:.2f}" and estimate.value > 1 else value


def shortened(reason: str) -> str:
    """Return a reason for a failure as a cell has room for it."""
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 3].rstrip() + "..."


def _failed(row: Row) -> str:
    return f"failed: {shortened(row.failure)}" + ("" if row.speedup is None else f" (at {row.speedup:.2f})")


def _mean(estimate: SpeedupEstimate | None, models: int, results: Results) -> str:
    if estimate is None:
        return "none"
    notes = [f"{models} of {len(results.models)} models"] if models < len(results.models) else []
    notes += [f"{estimate.failed} of {estimate.runs} runs failed"] if estimate.failed else []
    return interval(estimate) + "".join(f", {note}" for note in notes)


def _run(row: Row) -> list[str]:
    rules = sorted(row.sites.items(), key=lambda entry: -entry[1])
    more = f", {len(rules) - MOST_RULES} more" if len(rules) > MOST_RULES else ""
    return [
        row.agent, "" if row.seed is None else str(row.seed), _or_empty(row.budget_s, "{:g} s"),
        _exact(row.speedup, row.ci95), _exact(row.cpu_speedup, row.cpu_ci95),
        "" if row.disturbed is None else "{} of {}".format(*row.disturbed), milliseconds(row.latency_ms),
        _or_empty(row.seconds, "{:.0f} s"), _or_empty(row.measurements, "{:.0f}"),
        row.failure or "agree", _or_empty(row.max_rel_error, "{:.0e}"), _or_empty(row.size_growth, "x{:.2f}"),
        ", ".join(f"{rule} {count}" for rule, count in rules[:MOST_RULES]) + more,
    ]  # fmt: skip


def _exact(speedup: float | None, ends: tuple[float, float] | None) -> str:
    value = "" if speedup is None else f"{speedup:.3f}"
    return value if ends is None else f"{value} ({ends[0]:.3f} to {ends[1]:.3f})"


def _or_empty(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
