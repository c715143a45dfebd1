"""Compare what rules save in the same windows on two processors.

    python -m benchmarks.learning.same_windows

takes two exports of experience. A window counts where the same first step was timed in it on both, on one thread. It
measures nothing itself.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

import tyro

from agents.effects.step_means import Z95
from agents.reporting.runs import write_json
from benchmarks import RESULTS
from benchmarks.figures.tables import markdown
from graph_rewrite.errors import UserError
from graph_rewrite.experience.exchange import labels_of
from graph_rewrite.experience.records import Label
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.commands import run_command

MOST_LOST = 1.0
"""Share of a window's time beyond which a loss counts as this."""


@dataclass(frozen=True)
class Arguments:
    """Compare what rules save in the same windows on two processors."""

    one: Path = RESULTS / "learning" / "experience-amd-epyc-25-17.jsonl.xz"
    """The export of one processor."""
    other: Path = RESULTS / "learning" / "experience-intel-xeon-6-207.jsonl.xz"
    """The export of the other."""
    windows: int = 25
    """Windows that a rule must have been timed in, on both, to be listed."""
    rules: int = 16
    """Rules that are listed, at most: those with the largest differences."""
    out: Path = RESULTS / "learning" / "same-windows.json"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object instead of a table."""


Key = tuple[str, str, str]
"""A rule, and the digests of a window and of the step that rewrites it."""


@dataclass(frozen=True, slots=True)
class RuleOnBoth:
    """The savings of a rule by itself in windows that were timed on both processors, as means of shares of their
    time."""

    rule: str
    windows: int
    one: float
    other: float
    difference_ci95: tuple[float, float]
    """Of what it saves more on the other one."""

    @property
    def difference(self) -> float:
        return self.other - self.one

    def cells(self) -> list[str]:
        """Return the row of the table."""
        low, high = self.difference_ci95
        shares = [f"{100.0 * share:+.1f}" for share in (self.one, self.other, self.difference)]
        return [self.rule, str(self.windows), *shares, f"{100.0 * low:+.1f} to {100.0 * high:+.1f}"]


def first_steps(labels: Iterable[Label]) -> dict[Key, float]:
    """Return the share of its window that each first step saves on one thread, by its most precise timing."""
    best: dict[Key, Label] = {}
    for label in labels:
        if not label.ok or len(label.rules) != 1 or label.context["deployment"].get("threads", 1) != 1:
            continue
        key = (label.rules[0], label.place["window"], label.body["steps"][0])
        known = best.get(key)
        if known is None or label.half_of_window < known.half_of_window:
            best[key] = label
    return {key: max(label.share_of_window, -MOST_LOST) for key, label in best.items()}


def compared(one: dict[Key, float], other: dict[Key, float], least: int) -> list[RuleOnBoth]:
    """Return the rules that were timed in so many windows on both, those first that save less on the other.

    Args:
        one, other: of `first_steps`.
        least: windows that a rule must have.
    """
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for key in sorted(one.keys() & other.keys()):
        pairs[key[0]].append((one[key], other[key]))
    found = [_rule(rule, both) for rule, both in pairs.items() if len(both) >= max(least, 2)]
    return sorted(found, key=lambda one: (one.difference, one.rule))


def _rule(rule: str, both: Sequence[tuple[float, float]]) -> RuleOnBoth:
    differences = [after - before for before, after in both]
    mean, half = fmean(differences), Z95 * stdev(differences) / math.sqrt(len(both))
    return RuleOnBoth(
        rule, len(both), fmean(before for before, _ in both), fmean(after for _, after in both),
        (mean - half, mean + half),
    )  # fmt: skip


def table(rules: Sequence[RuleOnBoth], one: str, other: str) -> str:
    """Return the rules as Markdown."""
    headings = ["rule", "windows", f"{one} saves, %", f"{other} saves, %", "difference", "95% interval"]
    return markdown([headings, *(rule.cells() for rule in rules)])


def _run(arguments: Arguments) -> int:
    one, other = (first_steps(labels_of(path)) for path in (arguments.one, arguments.other))
    rules = compared(one, other, arguments.windows)
    if not rules:
        raise UserError(f"no rule was timed in {arguments.windows} windows of both: lower --windows")
    listed = sorted(sorted(rules, key=lambda rule: -abs(rule.difference))[: arguments.rules], key=rules.index)
    names = [
        path.name.removesuffix(".jsonl.xz").removeprefix("experience-") for path in (arguments.one, arguments.other)
    ]
    found = {"one": arguments.one.name, "other": arguments.other.name, "rules": [asdict(rule) for rule in rules]}
    write_json(arguments.out, found)
    replace_file(arguments.out.with_suffix(".md"), shown := table(listed, *names))
    print(json.dumps(found, indent=2) if arguments.json else shown.rstrip("\n"))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.same_windows")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
