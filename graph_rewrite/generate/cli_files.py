"""``rules import`` and ``rules coverage``: rule files of TASO and TENSAT."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from graph_rewrite.generate.coverage import Report, conditioned, cover, read_rule_file
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules import rule_set
from graph_rewrite.rules.substitutions.rule_files import write_rules
from graph_rewrite.rules.substitutions.substitution import SubstitutionRule
from graph_rewrite.terms.conditions import derive
from graph_rewrite.terms.substitution import MalformedTermError


@dataclass(frozen=True)
class Import:
    """Import a rule file of TASO (protobuf) or TENSAT (text): derive under which condition each rule holds, refuse
    those that never do, and write the others as rules."""

    file: tyro.conf.Positional[Path]
    """The rule file."""
    out: Path
    """The file to write the rules to (JSON)."""
    prefix: str = "Taso"
    """The beginning of the rules' names; the number in the file follows."""


@dataclass(frozen=True)
class Coverage:
    """Tell which rules of a rule file of TASO or TENSAT our own rules have, or imply by two steps."""

    file: tyro.conf.Positional[Path]
    """The rule file."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a JSON object with the counts, and nothing else."""
    rules: str = "default,generated"
    """Rule sets that count as our own, separated by commas."""


def import_rules(command: Import) -> int:
    """Carry out `rules import`."""
    substitutions = read_rule_file(command.file)
    origin = command.prefix.lower()
    rules, refused = {}, []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for number, substitution in enumerate(progress.track(substitutions, description="deriving conditions")):
            name, derivation = f"{command.prefix}{number:03d}", derive(substitution)
            reason = derivation.reason
            if not reason:
                try:
                    SubstitutionRule(conditioned(substitution, derivation), name, origin, origin)
                except MalformedTermError as error:
                    reason = str(error)
            if reason:
                refused.append({"name": name, "equation": str(substitution), "reason": reason})
            else:
                rules[name] = conditioned(substitution, derivation)
    made_by = f"python -m graph_rewrite rules import {command.file.name} --out {command.out.name}"
    write_rules(command.out, rules, origin=origin, family=origin, made_by=made_by, refused=refused)
    console = Console()
    with_condition = sum(bool(rule.conditions) for rule in rules.values())
    console.print(
        f"{command.out}: {len(rules)} rules, {with_condition} of them under a condition; {len(refused)} refused"
    )
    for entry in refused:
        console.print(Text(f"{entry['name']}: {entry['equation']}\n    {entry['reason']}"))
    return 0


def coverage(command: Coverage) -> int:
    """Carry out `rules coverage`."""
    substitutions = read_rule_file(command.file)
    own: Sequence[Rule] = rule_set(command.rules)
    with Progress(console=Console(stderr=True), transient=True, disable=command.json) as progress:
        task = progress.add_task("looking for paths", total=len(substitutions))
        report: Report = cover(substitutions, own, progress=lambda done: progress.update(task, completed=done))
    if command.json:
        print(json.dumps(report.counts()))
        return 0
    console = Console()
    counts = report.counts()
    console.print(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()))
    covered, verified = counts["in_set"] + counts["implied"], max(1, counts["verified"])
    console.print(f"covered: {covered} of {counts['verified']} ({covered / verified:.1%}) by the sets {command.rules}")
    for title, entries in (("refuted", report.refuted), ("not covered", report.uncovered)):
        if entries:
            table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
            for column in ("number", "rule", *(("counterexample",) if title == "refuted" else ())):
                table.add_column(column, overflow="fold")
            for entry in entries:
                row = [str(entry.number), str(entry.substitution)]
                row += [entry.derivation.reason] if title == "refuted" else []
                table.add_row(*map(Text, row))
            console.print(table)
    return 0
