"""``rewritegym rules list``, ``show`` and ``catalogue``: descriptions of the rules."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from graph_rewrite.errors import UserError
from graph_rewrite.mutate.mutant_rules import MutantRule
from graph_rewrite.replay import read_recording
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rulebook import catalogue
from graph_rewrite.rulebook.catalogue import all_sets, facts, notes
from graph_rewrite.rulebook.diagram import drawing, example
from graph_rewrite.rulebook.mutants import boxes_drawings, certificate_entry
from graph_rewrite.rules import certification, find_rule


@dataclass(frozen=True)
class List:
    """List all rules with their families and equations."""

    family: str | None = None
    """Only rules of this family."""
    origin: str | None = None
    """Only rules from there: hand, generated, taso or mutant."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a JSON array of objects with name, family, equation, origin and certificate, and nothing else."""


@dataclass(frozen=True)
class Show:
    """Show one rule: its equation, a drawing, its condition and certificate, and the code that defines it."""

    name: tyro.conf.Positional[str]
    """The rule's name, as `rules list` prints it."""
    recording: Path | None = None
    """The recorded actions of a result, for a mutant that they hold."""


@dataclass(frozen=True)
class Catalogue:
    """Write the pages of documentation that describe every rule: rules.md, and one for each other origin."""

    out: Path = Path("build/rules.md")
    """The page of the rules written by hand; the others are written beside it."""
    check: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Write nothing; exit with status 1 where a page is not what would be written."""


def list_rules(command: List) -> int:
    """Print a table, or JSON.

    Raises:
        UserError: no rule of this family or origin; the message names those that exist.
    """
    every = all_sets()
    for what, wanted in (("family", command.family), ("origin", command.origin)):
        known = sorted({getattr(rule, what) for rule in every})
        if wanted is not None and wanted not in known:
            raise UserError(f"there is no {what} {wanted!r}; known are {', '.join(known)}")
    rules = [rule for rule in every if command.family in (None, rule.family) and command.origin in (None, rule.origin)]
    if command.json:
        print(json.dumps([entry(rule) for rule in rules], indent=2))
        return 0
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("rule", no_wrap=True)
    for column in ("family", "equation"):
        table.add_column(column, overflow="fold")
    for rule in rules:
        table.add_row(Text(rule.name), Text(rule.family), Text(rule.equation))
    console = Console()
    console.print(table)
    console.print(f"{len(rules)} rules in {len({rule.family for rule in rules})} families")
    return 0


def entry(rule: Rule) -> dict[str, Any]:
    """Return the entry of a rule in `rules list --json`. `certificate` is None where there is none."""
    certificate: Mapping[str, Any] | None = None
    if isinstance(rule, MutantRule):
        certificate = certificate_entry(rule)
    elif (found := certification.load(rule.name, rule.origin)) is not None:
        certificate = {"verdict": found.verdict, "method": " + ".join(found.methods), "instances": found.instances}
    return {
        "name": rule.name, "family": rule.family, "equation": rule.equation, "origin": rule.origin,
        "certificate": certificate,
    }  # fmt: skip


def show(command: Show) -> int:
    """Print all there is to know of a rule.

    Raises:
        KeyError: no rule has this name; the message names close ones.
    """
    rule = find(command.name) if command.recording is None else recorded_mutant(command.recording, command.name)
    console = Console()
    console.print(Text(f"{rule.name} ({rule.family}, by {rule.origin})", style="bold"))
    console.print(Text(f"\n    {rule.equation}\n"))
    for paragraph in notes(rule):
        console.print(Text(paragraph + "\n"))
    match = example(rule)
    print("\n".join(f"    {line}" for line in drawing(rule, match).splitlines()))
    print()
    if isinstance(rule, MutantRule):
        for drawn in boxes_drawings(rule):
            print("\n".join(f"    {line}" for line in drawn.splitlines()) + "\n")
    for line in facts(rule, match):
        console.print(Text(line))
    if isinstance(rule, MutantRule) or getattr(rule, "substitution", None) is not None:
        return 0
    print()
    code = _code(rule)
    if console.is_terminal:
        console.print(Syntax(code, "python", background_color="default", word_wrap=True))
    else:
        print(code)
    return 0


def recorded_mutant(path: Path, name: str) -> MutantRule:
    """Return a mutant that a recording holds; its proof is made again.

    Raises:
        UserError: the recording cannot be read, or holds no mutant of this name, or one whose proof fails.
    """
    held = {str(entry.get("name")): entry for entry in read_recording(path).mutants}
    if name not in held:
        raise UserError(f"{path} holds no mutant {name!r}; it holds {', '.join(held) or 'none'}")
    return MutantRule.from_json(held[name])


def find(name: str) -> Rule:
    """A rule of any set.

    Raises:
        KeyError: no rule has this name; the message names close ones.
    """
    named = [rule for rule in all_sets() if rule.name == name]
    return named[0] if named else find_rule(name)


def write_catalogue(command: Catalogue) -> int:
    """Write the pages and name them, or name those that are stale.

    Raises:
        ValueError: the page is to have another name.
        OSError: the folder can't be written to.
    """
    if command.out.name != catalogue.PAGES["hand"]:
        raise UserError(f"--out {command.out}: the page is called {catalogue.PAGES['hand']}, as others link to it")
    folder = command.out.parent
    if not command.check:
        for file in catalogue.write(folder):
            print(file)
        return 0
    stale = catalogue.stale(folder)
    for file in stale:
        print(f"{file} is not what the rules give: {catalogue.COMMAND}", file=sys.stderr)
    return 1 if stale else 0


def _code(rule: Rule) -> str:
    """The class and those that it shares code with, the most general first."""
    classes = [kind for kind in type(rule).__mro__ if issubclass(kind, Rule) and kind is not Rule]
    return "\n\n".join(inspect.getsource(kind).rstrip() for kind in reversed(classes))
