"""The detailed page of a results file: its protocol, tables, plots, checks, and every run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from benchmarks.figures.rows import KINDS, ORIGINAL, Results, Row
from benchmarks.figures.tables import ahead_table, behind_table, legend, markdown, models_table, pairs_table, runs_table

PLOTS = {
    "speedups": "Speed-up by model and agent, with 95% intervals",
    "overview": "Speed-up of the default agent and of other tools, by model",
    "peers": "Speed-up by model and peer, beside the default agent",
    "profiles": "Share of models on which each series is at least x times as fast as the original",
    "over-time": "Best speed-up so far over seconds of search",
    "rules": "Sites of each rule by model",
    "search-time": "Seconds of search by agent",
}
"""Plots by the end of their file's name, with what they show. A plot without data is not drawn."""


def page(
    results: Results, plots: Mapping[str, str], headroom: str = "", rests: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the page.

    Args:
        plots: names of files beside the page, by the keys of `PLOTS`.
        headroom: the tables of `benchmarks.headroom`, markdown; empty where they were not made.
        rests: from these tables, the operators with most time above the limit, by model.
    """
    parts = [f"# Results: {results.path.parent.name}, {results.path.stem}", _facts(results)]
    agents, peers, controls = (results.series(kind) for kind in ("agent", "peer", "control"))
    leader = results.leader()
    if agents:
        parts += ["## Agents", models_table(results, agents), legend(results)]
        if leader and (pairs := pairs_table(results, leader)):
            parts += [f"Session by session, over the models that were judged beside {leader.label}:", pairs]
        parts += _images(plots, "speedups", "profiles")
    if peers:
        parts += [
            "## Peers",
            models_table(results, [leader, *peers] if leader else peers),
            *_images(plots, "overview", "peers"),
        ]
        if leader:
            behind = behind_table(results, leader, rests)
            parts += [ahead_table(results, leader)]
            parts += ["Models on which a peer is ahead, and where our result loses time:", behind] if behind else []
    if controls:
        parts += ["## Controls", models_table(results, controls)]
    if headroom:
        parts += ["## Headroom", headroom]
    parts += ["## Checks", "\n".join(f"- {line}" for line in checks(results)) + "\n"]
    if len(set(plots) & {"over-time", "rules", "search-time"}):
        parts += ["## Searches", *_images(plots, "over-time", "search-time", "rules")]
    for model in results.models:
        parts += [f"## {model}", runs_table(r for series in results.series(*KINDS) for r in results.of(series, model))]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def checks(results: Results) -> Iterator[str]:
    """Yield in a sentence each what a reader looks for first: failures, results that are slower, control intervals."""
    failed = [row for row in results.rows if not row.counts]
    yield f"{len(results.rows)} runs, of which {len(failed)} failed" + _failures(failed)
    ours = [row for row in results.rows if row.kind == "agent" and row.counts and row.ci95 is not None]
    slower = [row for row in ours if row.ci95 is not None and row.ci95[1] < 1]
    named = "; ".join(f"{row.model} by {row.agent}/{row.seed} ({row.speedup:.3f})" for row in slower)
    yield f"{len(slower)} of {len(ours)} results of agents are surely slower than the original{named and ': '}{named}."
    for control in results.series("control"):
        told = [row.ci95 for row in results.of(control) if row.counts and row.ci95 is not None]
        if told and control.agent == ORIGINAL:
            held = sum(low <= 1 <= high for low, high in told)
            yield f"original against original: {held} of {len(told)} intervals contain 1."
    yield _replicates(results)


def _replicates(results: Results) -> str:
    """Return whether two seeds share a measurement, as they would if one had taken it from a memo of the other."""
    seen: dict[tuple[str, str, float | None, float], int] = {}
    for row in results.rows:
        if row.kind == "agent" and row.latency_ms is not None and not row.keeps_original:
            key = (row.model, row.agent, row.budget_s, row.latency_ms)
            seen[key] = seen.get(key, 0) + 1
    shared = sum(number - 1 for number in seen.values())
    return f"{shared} seeds share a measured latency with another seed of their agent and model."


def _failures(rows: Sequence[Row]) -> str:
    """Return agents that failed, with reasons and models."""
    models: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        models.setdefault((row.agent, row.failure), []).append(row.model)
    named = [
        f"{agent} on {', '.join(dict.fromkeys(where))} ({reason})" for (agent, reason), where in models.items()
    ]  # fmt: skip
    return ": " + "; ".join(named) + "." if named else "."


def _facts(results: Results) -> str:
    """Return machine, versions, commit, protocol and command as a table."""
    protocol = dict(results.protocol)
    command = protocol.pop("command", "python -m benchmarks.results")
    rows = [["", ""], ["command", f"`{command}`"], ["machine", results.machine]]
    rows += [[f"machine: {name}", _plain(value)] for name, value in results.machine_facts.items()]
    rows += [["commit", results.commit]]
    rows += [["versions", ", ".join(f"{name} {version}" for name, version in results.versions.items())]]
    rows += [[f"protocol: {name}", _plain(value)] for name, value in protocol.items()]
    return markdown([row for row in rows if row == rows[0] or row[1]])


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _images(plots: Mapping[str, str], *names: str) -> list[str]:
    return [f"![{PLOTS[name]}]({plots[name]})" for name in names if name in plots]
