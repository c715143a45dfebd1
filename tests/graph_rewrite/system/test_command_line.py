"""Command lines out of dataclasses: what is parsed, and help without line breaks in the middle of sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from graph_rewrite.system.command_line import parse


@dataclass(frozen=True, slots=True)
class Shared:
    """Flags of several programs."""

    limit: int | None = None
    """The largest number that there may be, in whatever the program counts. Without it there is no limit, and what is
    counted goes on."""
    kind: Literal["a", "b"] | None = None
    """One of two kinds."""


@dataclass(frozen=True, slots=True)
class Program(Shared):
    """Does something."""

    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="MODEL")] = Path()
    """The file to read."""
    target: tyro.conf.Positional[Path | None] = None
    """The file to write."""
    quiet: bool = False
    """Say nothing."""
    memory: bool = True
    """Remember; --no-memory forgets."""
    size: float = 1.5
    """A size."""
    inner: tyro.conf.OmitArgPrefixes[Inner] = field(default_factory=lambda: Inner())


@dataclass(frozen=True, slots=True)
class Inner:
    """Flags of another part."""

    name: str = ""
    """A name that stands here at such length that its description needs a second line, which begins in the middle of a
    sentence."""


def help_of(kind: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as ended:
        parse(kind, ["--help"], "program")
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_a_description_is_one_paragraph(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(help_of(Program, capsys, monkeypatch).replace("│", " ").split())
    assert "Without it there is no limit, and what is counted goes on." in text
    assert "which begins in the middle of a sentence." in text


def test_optional_values_are_named_by_their_type(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of(Program, capsys, monkeypatch)
    for shown in ("--limit INT", "--kind {a,b}", "MODEL", "[TARGET]", "(default: 1.5)", "--no-memory"):
        assert shown in text
    for hidden in ("None", "False", "True", "''"):
        assert hidden not in text


def test_values_arrive() -> None:
    found = parse(Program, ["in", "out", "--limit", "3", "--no-memory", "--name", "x", "--kind", "b"], "program")
    assert found == Program(3, "b", Path("in"), Path("out"), memory=False, inner=Inner("x"))


def test_a_switch_has_one_form_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(Program, ["in", "--memory"], "program")
    assert ended.value.code == 2
    assert "--memory" in capsys.readouterr().err
    assert parse(Program, ["in", "--memory"], "program", pairs=True).memory
