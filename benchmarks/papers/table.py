"""A paper's table: what it reports, the command that measures the same here, and both side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = Path(__file__).parent / "published"
NOT_RUN = "-"
"""What stands in our column before the command has run."""

Published = Mapping[str, Any]
Show = Callable[[Published, Path | None], list[str]]
"""Writes a table as lines of Markdown, out of the paper's figures and our results file, None where there is none."""


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper. `entry` is its name in the paper, and in the file `published/PAPER.json`."""

    name: str
    paper: str
    entry: str
    about: str
    """Its subject, in a few words; a heading."""
    show: Show
    command: tuple[str, ...] | None = None
    """The command that measures our column, as words; None where there is none."""
    results: str | None = None
    """The file that the command writes, from the repository's root."""
    lacks: str = ""
    """What is missing for a command, or differs from the paper; a sentence."""

    def text(self, root: Path = ROOT) -> str:
        """Return the whole table as Markdown, with its source and the command that measures it."""
        published = read_published(self.paper)
        path = None if self.results is None else root / self.results
        found = path if path is not None and path.is_file() else None
        lines = [f"Theirs: {self.entry} ({published[self.entry]['where']})."]
        if self.command is None:
            lines.append("Ours: there is no command for it yet.")
        else:
            measured = f"`python -m benchmarks.papers {self.name} --measure`"
            lines.append(f"Ours: {measured}{', not run yet' * (found is None)}.")
        lines += ["", self.lacks] if self.lacks else []
        return "\n".join([*lines, "", *self.show(published, found)]) + "\n"


def read_published(paper: str) -> Published:
    """Return what a paper reports, by table."""
    found: Published = json.loads((PUBLISHED / f"{paper}.json").read_text("utf-8"))
    return found


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown, with the first column aligned to the left and the others to the right."""
    rule = "|---|" + "---:|" * (len(headings) - 1)
    return [_line(headings), rule, *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
