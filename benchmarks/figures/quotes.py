"""Figures that README and docs quote: each stands behind a comment that names the command that makes it.

    <!-- made by: python -m benchmarks.env_speed --model bert; benchmarks/results/amd-epyc-25-17/env_speed.json -->

covers what follows, up to the next such comment, the end of its section, or `<!-- end -->`. Behind the command stand
the results files, if there are any. What a markdown file of results holds is copied word by word, and a decimal number
in a table must stand in the JSON files, rounded as the table has it. Settings look like figures and are none:
`<!-- set in: graph_rewrite/latency/plans.py -->` names the code instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
END = "<!-- end -->"
_MARK = re.compile(r"^<!-- (?P<kind>made by|set in): (?P<what>[^;]+?)(?:; (?P<files>.+?))? -->$")
_HEADING = re.compile(r"^(#+) ")
_CODE = re.compile(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->")
_FIGURE = re.compile(
    r"\b\d+\.\d+x\b|\bx\d+\.\d+\b"  # speed-ups
    r"|\b\d+\.\d+ to \d+\.\d+\b"  # intervals
    r"|\b\d[\d,]*(?:\.\d+)? (?:ns|us|µs|ms|s|h|seconds?|minutes?|hours?)\b"  # times
    r"|\b\d[\d,]*(?:\.\d+)? G(?:FLOP|B)/s"  # rates
    r"|\b\d[\d,]*(?:\.\d+)? (?:kB|MB|GB|KiB|MiB|GiB)\b"  # sizes
    r"|\b\d+\.\d+ times\b|\*\*\d+\.\d+\*\*"
)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*\.\d+(?![\w.]|e-)")


@dataclass(frozen=True)
class Part:
    """Lines of a page behind one mark; `mark` is None for lines that no mark covers. `line` counts from 1."""

    line: int
    mark: re.Match[str] | None
    lines: tuple[str, ...]

    @property
    def files(self) -> list[str]:
        """Return the results files, or for settings the files of the code, from the repository's root."""
        if self.mark is None:
            return []
        listed = self.mark["what"] if self.mark["kind"] == "set in" else self.mark["files"] or ""
        return [name.strip() for name in listed.split(",") if name.strip()]

    @property
    def copied(self) -> str | None:
        """Return the markdown file that the part copies; None where it copies none."""
        return next((name for name in self.files if name.endswith(".md")), None)


def parts(text: str) -> list[Part]:
    """Return the parts of a page, in order; the line of a mark or `END` belongs to no part, that of a heading does."""
    found: list[Part] = []
    mark: re.Match[str] | None = None
    start, lines, fenced, level, marked = 1, list[str](), False, 1, 1
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        here = None if fenced else _MARK.match(line)
        heading = None if fenced else _HEADING.match(line)
        level = len(heading[1]) if heading else level
        if here is not None or (not fenced and line == END) or (mark is not None and heading and level <= marked):
            found.append(Part(start, mark, tuple(lines)))
            mark, marked, lines = here, level, [line] if heading else []
            start = number + (not lines)
        else:
            lines.append(line)
    return [*found, Part(start, mark, tuple(lines))]


def figures(part: Part) -> Iterator[tuple[int, str]]:
    """Yield the figures of a part, with their lines in the page; code, links and comments hold none."""
    fenced = False
    for number, line in enumerate(part.lines, part.line):
        fenced ^= line.startswith("```")
        if not fenced:
            yield from ((number, found[0]) for found in _FIGURE.finditer(_CODE.sub("", line)))


def problems(text: str, root: Path = ROOT) -> list[str]:
    """Return what is wrong with the figures of a page, in words, each with its line."""
    found = []
    for part in parts(text):
        if part.mark is None:
            found += [f"line {line}: {what} names no command that makes it" for line, what in figures(part)]
            continue
        missing = [name for name in part.files if not (root / name).is_file()]
        found += [f"line {part.line - 1}: there is no file {name}" for name in missing]
        if part.mark["kind"] == "made by" and not is_command(part.mark["what"], root):
            found.append(f"line {part.line - 1}: there is no command {part.mark['what']}")
        if not missing:
            found += [f"line {line}: {what}" for line, what in _differences(part, root)]
    return found


def updated(text: str, root: Path = ROOT) -> str:
    """Return a page whose copies of results are those of the files now.

    Raises:
        FileNotFoundError: a file that is copied is not there.
    """
    lines = text.splitlines()
    for part in reversed(parts(text)):
        if part.copied is not None:
            content = (root / part.copied).read_text("utf-8").strip("\n").splitlines()
            lines[part.line - 1 : part.line - 1 + len(part.lines)] = ["", *content, ""]
    return "\n".join(lines) + "\n"


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages whose figures are checked."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / "benchmarks").glob("*.md"))]


def is_command(command: str, root: Path = ROOT) -> bool:
    """Return whether a command of this project begins with such words."""
    words = command.split()
    if words[:2] == ["python", "-m"]:
        return len(words) > 2 and find_spec(words[2]) is not None
    if words[0] == "python":
        return len(words) > 1 and (root / words[1]).is_file()
    if words[0] == "make":
        return (
            len(words) > 1 and re.search(rf"^{re.escape(words[1])}:", (root / "Makefile").read_text(), re.M) is not None
        )
    return words[0] == "rewritegym" and len(words) > 1


def _differences(part: Part, root: Path) -> Iterator[tuple[int, str]]:
    """Yield what a part says that its results files do not."""
    if part.copied is not None:
        wanted = (root / part.copied).read_text("utf-8").strip("\n")
        if "\n".join(part.lines).strip("\n") != wanted:
            yield part.line, f"it is not the content of {part.copied}: python -m benchmarks.figures"
    stored = [root / name for name in part.files if name.endswith(".json")]
    if not stored or part.copied is not None:
        return
    known = [number for path in stored for number in _numbers(path)]
    for line, text in enumerate(part.lines, part.line):
        for number in _NUMBER.findall(_CODE.sub("", text)) if text.startswith("|") else ():
            digits = len(number.partition(".")[2])
            value, slack = float(number.replace(",", "")), 0.5001 * 10.0**-digits
            if not any(abs(one - value) <= slack for one in known):
                yield line, f"{number} is not in {', '.join(path.name for path in stored)}"


def _numbers(path: Path) -> tuple[float, ...]:
    return tuple(_walk(json.loads(path.read_text("utf-8"))))


def _walk(value: Any) -> Iterator[float]:
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield float(value)
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _walk(one)


def page_problems(chosen: Sequence[Path]) -> list[str]:
    """Return what is wrong with the figures of pages of the repository, each with its page and line."""
    return [
        f"{page.relative_to(ROOT).as_posix()}, {what}" for page in chosen for what in problems(page.read_text("utf-8"))
    ]
