"""``rewritegym rules``: descriptions of the rules, where they apply to a model, and why they do not where they nearly
do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graph_rewrite.generate.cli import Generate, generate_rules
from graph_rewrite.generate.cli_files import Coverage, Import, coverage, import_rules
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.rulebook.cli_catalogue import Catalogue, List, Show, list_rules, show, write_catalogue
from graph_rewrite.rules import all_rules, find_rule
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.soundness.verification.cli import Verify, verify_rules
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command
from graph_rewrite.task.models import open_model, parse_shapes


@dataclass(frozen=True)
class Explain:
    """Tell where rules apply to a model, and where they nearly apply and why they don't."""

    model: tyro.conf.Positional[str]
    """An ONNX file, the name of a model of the zoo, or zoo://NAME?layers=2&seq_len=64."""
    shape: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """The shape of an input with symbolic dimensions, as name:1,128; may be repeated."""
    rule: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Only this rule; may be repeated. All rules by default."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object with candidates and refusals, and nothing else."""


Command = (
    Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Explain, tyro.conf.subcommand("explain")]
    | Annotated[Catalogue, tyro.conf.subcommand("catalogue")]
    | Annotated[Verify, tyro.conf.subcommand("verify")]
    | Annotated[Coverage, tyro.conf.subcommand("coverage")]
    | Annotated[Import, tyro.conf.subcommand("import")]
    | Annotated[Generate, tyro.conf.subcommand("generate")]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one subcommand. Return its exit status: 2, with a line on standard error, for wrong arguments."""
    command: Any = parse(Command, argv, "rewritegym rules", pairs=True)
    return run_command(lambda: _HANDLERS[type(command)](command))


def _explain(command: Explain) -> int:
    rules = [find_rule(name) for name in command.rule] or all_rules()
    model = open_model(command.model, parse_shapes(command.shape))
    rewriter = Rewriter(rules, granularity="class", deployment=False)
    found = [(c.rule, c.count, c.site.description) for c in rewriter.candidates(model.graph)]
    refusals = rewriter.explain(model.graph)
    if command.json:
        candidates = [{"rule": rule, "sites": sites, "description": text} for rule, sites, text in found]
        near = [{"rule": r.rule, "site": r.site, "reason": r.reason} for r in refusals]
        print(json.dumps({"model": command.model, "candidates": candidates, "refusals": near}, indent=2))
        return 0
    console = Console()
    table = _table("candidate", "sites", title=f"Candidates in {command.model}, one row per class of like sites")
    for _, sites, text in found:
        table.add_row(Text(text), str(sites))
    console.print(table)
    console.print(_near_misses(refusals))
    return 0


def _near_misses(refusals: Sequence[Refusal]) -> Table:
    """A row per rule and reason, the most frequent first within a rule."""
    sites: dict[tuple[str, str], list[str]] = {}
    for refusal in refusals:
        sites.setdefault((refusal.rule, refusal.reason), []).append(refusal.site)
    title = "Near misses: the pattern occurs, but the rule does not apply"
    table = _table("rule", "reason", "sites", "such as", title=title)
    for (rule, reason), names in sorted(sites.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1])):
        table.add_row(Text(rule), Text(reason), str(len(names)), Text(names[0]))
    return table


def _table(first: str, *columns: str, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    table.add_column(first, no_wrap=len(columns) > 1)
    for column in columns:
        table.add_column(column, justify="right" if column == "sites" else "left", overflow="fold")
    return table


_HANDLERS: dict[type, Callable[[Any], int]] = {
    List: list_rules,
    Show: show,
    Explain: _explain,
    Catalogue: write_catalogue,
    Verify: verify_rules,
    Coverage: coverage,
    Import: import_rules,
    Generate: generate_rules,
}
"""The function that carries out each subcommand."""
