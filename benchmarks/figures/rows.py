"""Rows of a results file: what was judged, whether it counts, and why not."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from graph_rewrite.errors import UserError

Kind = Literal["agent", "peer", "control"]
KINDS: tuple[Kind, ...] = ("agent", "peer", "control")
_NUMBERS = ("baseline_ms", "latency_ms", "seconds", "measurements", "max_rel_error", "size_growth")
ORIGINAL = "original"
"""The control in which an original is judged against itself."""
LEADER = "regional"
"""The agent that `rewritegym optimize` runs, which the peers are compared with."""


@dataclass(frozen=True)
class Series:
    """Runs that belong together: one agent, peer or control with one budget. `label` tells it apart in its file."""

    agent: str
    kind: Kind
    budget_s: float | None
    label: str


@dataclass(frozen=True)
class Row:
    """A judged result. Times are in milliseconds where the name says so, else in seconds; None is not recorded."""

    model: str
    agent: str
    kind: Kind
    seed: int | None
    budget_s: float | None
    speedup: float | None
    ci95: tuple[float, float] | None
    baseline_ms: float | None
    latency_ms: float | None
    seconds: float | None
    measurements: float | None
    verified: bool
    max_rel_error: float | None
    size_growth: float | None
    sites: Mapping[str, int]
    """Sites by rule."""
    curve: tuple[tuple[float, float], ...]
    """Seconds since the start of the search, and the best speed-up so far by the search's own measurements."""
    cpu_speedup: float | None
    """The speed-up by the clock of the CPU instead of the wall."""
    cpu_ci95: tuple[float, float] | None
    disturbed: tuple[int, int] | None
    """Sessions of the judgement that other programs disturbed, and all of them."""
    failure: str
    """The reason why the row does not count, in words; empty where it counts."""
    sessions: tuple[float, ...] = ()
    """Logarithms of the speed-up in each session of its judgement; empty where it was not judged."""
    judgement: str = ""
    """Tells its judgement from others; empty where it was not judged."""

    @property
    def counts(self) -> bool:
        return not self.failure

    @property
    def keeps_original(self) -> bool:
        """The search found nothing faster, and its result is the original."""
        return self.counts and self.ci95 == (1.0, 1.0)


@dataclass(frozen=True)
class Results:
    """A results file. `rows` are in the order of the file."""

    path: Path
    machine: str
    machine_facts: Mapping[str, Any]
    commit: str
    versions: Mapping[str, str]
    protocol: Mapping[str, Any]
    rows: tuple[Row, ...]
    digest: str
    """Hash of the file's content, by which a plot tells what it was drawn from."""

    @property
    def models(self) -> list[str]:
        """Return the names of all models, in the order of the file, without those whose original was judged against
        itself and nothing else; these too where there are no others."""
        found = list(dict.fromkeys(row.model for row in self.rows if row.agent != ORIGINAL))
        return found or list(dict.fromkeys(row.model for row in self.rows))

    def series(self, *kinds: Kind) -> list[Series]:
        """Return all series of these kinds, in the order of the file. An agent with several budgets has several. The
        label names the budget of these, and one that is not that of most agents."""
        found = dict.fromkeys((row.agent, row.kind, row.budget_s) for row in self.rows if row.kind in kinds)
        budgets = {agent: {b for a, _, b in found if a == agent} for agent, _, _ in found}
        often = Counter(budget for _, _, budget in found if budget is not None)
        usual = max(often, key=lambda budget: (often[budget], budget), default=None)

        def named(agent: str, budget: float | None) -> str | None:
            return None if len(budgets[agent]) == 1 and budget in (None, usual) else _seconds(budget)

        return [Series(agent, kind, budget, _label(agent, kind, named(agent, budget))) for agent, kind, budget in found]

    def of(self, series: Series, model: str | None = None) -> list[Row]:
        """Return the rows of a series, of one model or of all."""
        wanted = (series.agent, series.budget_s)
        return [r for r in self.rows if (r.agent, r.budget_s) == wanted and model in (None, r.model)]

    def without_result(self, series: Series) -> str | None:
        """Return the reason why no run of a series counts, such as a tool that is not installed; None where one does.
        The reason is that of its first run."""
        rows = self.of(series)
        return None if any(row.counts for row in rows) else rows[0].failure

    def baseline_ms(self, model: str) -> float | None:
        """Return the latency of a model's original: the median over its rows; None where no row has it."""
        known = sorted(row.baseline_ms for row in self.rows if row.model == model and row.baseline_ms is not None)
        return known[len(known) // 2] if known else None

    def leader(self) -> Series | None:
        """Return the series that peers are compared with: the default agent's with the smallest budget, or else the
        first agent's; None where there is no agent."""
        agents = self.series("agent")
        ours = sorted((s for s in agents if s.agent == LEADER), key=lambda s: s.budget_s or math.inf)
        return next(iter(ours or agents), None)

    @property
    def caption(self) -> str:
        """Return machine, commit and file in a line."""
        number, _, changed = self.commit.partition("-")
        commit = f"{number[:9]}, changed" if changed else number[:9]
        return f"{self.machine.partition(' [')[0]} · commit {commit} · {shown_path(self.path)}"


def shown_model(model: str) -> str:
    """Return a model's name as a plot has room for it: of a file its name alone."""
    return model.rpartition("/")[2]


def shown_path(path: Path) -> str:
    """Return a path as documentation names it: from the repository's root where it lies inside."""
    root = Path(__file__).resolve().parents[2]
    whole = path.resolve()
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else path.name


def read_results(path: Path) -> Results:
    """Read a results file.

    Raises:
        UserError: there is no such file, or it is no results file of `benchmarks.results`.
    """
    try:
        content = path.read_bytes()
        stored = json.loads(content)
        rows = tuple(_row(entry) for entry in stored["rows"])
        machine, commit = stored["machine"], str(stored["commit"])
        versions, protocol = dict(stored.get("versions") or {}), dict(stored.get("protocol") or {})
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is no results file of benchmarks.results ({error!r})") from error
    known = machine if isinstance(machine, Mapping) else {"name": machine}
    names = [key for key in ("gpu", "cpu", "name") if known.get(key)]
    name = str(known[names[0]]) if names else "?"
    facts = {key: value for key, value in known.items() if key not in (*names[:1], "name")}
    return Results(path, name, facts, commit, versions, protocol, rows, hashlib.sha256(content).hexdigest()[:16])


def _row(entry: Mapping[str, Any]) -> Row:
    agent, seed, speedup = str(entry["agent"]), entry.get("seed"), _positive(entry.get("speedup"))
    verified = entry.get("verified") is True
    rewrites: Sequence[Mapping[str, Any]] = entry.get("rewrites") or ()
    sites: dict[str, int] = {}
    for step in rewrites:
        sites[step["rule"]] = sites.get(step["rule"], 0) + int(step.get("sites", 1))
    baseline_ms, latency_ms, seconds, measurements, error, growth = (_number(entry.get(name)) for name in _NUMBERS)
    return Row(
        str(entry["model"]).removeprefix("zoo://"), agent, _kind(entry), seed, _number(entry.get("budget_s")),
        speedup, None if speedup is None else _interval(entry.get("speedup_ci95")), baseline_ms, latency_ms, seconds,
        measurements, verified, error, growth, sites, tuple((float(s), float(x)) for s, x in entry.get("curve") or ()),
        _positive(entry.get("cpu_speedup")), _interval(entry.get("cpu_speedup_ci95")), _disturbed(entry),
        _failure(entry, speedup, verified), tuple(map(float, entry.get("sessions") or ())),
        str(entry.get("judgement") or ""),
    )  # fmt: skip


def _interval(ends: Any) -> tuple[float, float] | None:
    """Return both ends of an interval; None where one is missing or is no positive number."""
    known = [end for end in map(_positive, ends or ()) if end is not None]
    return (known[0], known[1]) if len(known) == 2 else None


def _disturbed(entry: Mapping[str, Any]) -> tuple[int, int] | None:
    played = entry.get("sessions_played")
    return None if not played else (len(entry.get("disturbed_sessions") or ()), int(played))


def _kind(entry: Mapping[str, Any]) -> Kind:
    """Return the kind that a row names; without one, a row without a seed is a peer's."""
    kind = entry.get("kind")
    if kind in KINDS:
        return cast(Kind, kind)
    return "peer" if entry.get("seed") is None else "agent"


def _failure(entry: Mapping[str, Any], speedup: float | None, verified: bool) -> str:
    said = str(entry.get("failure") or "")
    if speedup is not None and verified and not said:
        return ""
    standard = "no result" if speedup is None else "outputs differ"
    return " ".join((said or standard).split())


def _number(value: object) -> float | None:
    """Return a number, or None for what is none, not finite included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _positive(value: object) -> float | None:
    number = _number(value)
    return number if number is not None and number > 0 else None


def _label(agent: str, kind: Kind, budget: str | None) -> str:
    name = "original against itself" if kind == "control" and agent == ORIGINAL else agent
    return name if budget is None else f"{name}, {budget}"


def _seconds(budget: float | None) -> str:
    return "no budget" if budget is None else f"{budget:g} s"
