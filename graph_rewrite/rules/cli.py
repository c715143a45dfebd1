"""``rewritegym rules``: list the rules, show one, or explain where they apply to a model and where they nearly do."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from graph_rewrite.rule import Refusal, Rule

ORIGIN = "hand"
"""Where the rules of this package come from: written by hand, not generated or imported."""


@dataclass(frozen=True)
class List:
    """List all rules with their families and equations."""

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a JSON array of objects with name, family, equation and origin, and nothing else."""


@dataclass(frozen=True)
class Show:
    """Show one rule: its equation, what to know about it, and the code that defines it."""

    name: tyro.conf.Positional[str]
    """The rule's name, as `rules list` prints it."""


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
)


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one subcommand. Returns 0, or 2 with a line on standard error where the arguments don't fit."""
    command: Any = tyro.cli(Command, args=argv, prog="rewritegym rules")
    try:
        if isinstance(command, List):
            _list(command)
        elif isinstance(command, Show):
            _show(command)
        else:
            _explain(command)
    except BrokenPipeError:
        raise
    except (KeyError, ValueError, OSError) as error:
        message = error.args[0] if isinstance(error, KeyError) else error
        print(f"rewritegym rules: {message}", file=sys.stderr)
        return 2
    return 0


def parse_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Shapes of inputs by name, out of `name:1,128`.

    Raises:
        ValueError: a text that is not of that form.
    """
    shapes = {}
    for text in texts:
        name, separator, dims = text.rpartition(":")
        if not separator or not name or not all(part.strip().isdigit() for part in dims.split(",")):
            raise ValueError(f"--shape {text}: write it as NAME:1,128")
        shapes[name] = tuple(int(part) for part in dims.split(","))
    return shapes


def _list(command: List) -> None:
    from graph_rewrite.rules import all_rules

    rules = all_rules()
    if command.json:
        print(json.dumps([_entry(rule) for rule in rules], indent=2))
        return
    table = _table("rule", "family", "equation")
    for rule in rules:
        table.add_row(Text(rule.name), Text(rule.family), Text(rule.equation))
    console = Console()
    console.print(table)
    console.print(f"{len(rules)} rules in {len({rule.family for rule in rules})} families")


def _show(command: Show) -> None:
    from graph_rewrite.rules import find_rule

    rule = find_rule(command.name)
    console = Console()
    console.print(Text(f"{rule.name} ({rule.family}, by {ORIGIN})", style="bold"))
    console.print(Text(f"\n    {rule.equation}\n"))
    for paragraph in inspect.cleandoc(type(rule).__doc__ or "").split("\n\n")[1:]:
        console.print(Text(" ".join(paragraph.split()) + "\n"))
    code = _code(rule)
    if console.is_terminal:
        console.print(Syntax(code, "python", background_color="default", word_wrap=True))
    else:
        print(code)


def _explain(command: Explain) -> None:
    from graph_rewrite.models import open_model
    from graph_rewrite.rewriter import Rewriter
    from graph_rewrite.rules import all_rules, find_rule

    rules = [find_rule(name) for name in command.rule] or all_rules()
    model = open_model(command.model, parse_shapes(command.shape))
    rewriter = Rewriter(rules, granularity="class", deployment=False)
    found = [(c.rule, c.count, c.site.description) for c in rewriter.candidates(model.graph)]
    refusals = rewriter.explain(model.graph)
    if command.json:
        candidates = [{"rule": rule, "sites": sites, "description": text} for rule, sites, text in found]
        near = [{"rule": r.rule, "site": r.site, "reason": r.reason} for r in refusals]
        print(json.dumps({"model": command.model, "candidates": candidates, "refusals": near}, indent=2))
        return
    console = Console()
    table = _table("candidate", "sites", title=f"Candidates in {command.model}, one row per class of like sites")
    for _, sites, text in found:
        table.add_row(Text(text), str(sites))
    console.print(table)
    console.print(_near_misses(refusals))


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


def _entry(rule: Rule) -> dict[str, str]:
    return {"name": rule.name, "family": rule.family, "equation": rule.equation, "origin": ORIGIN}


def _code(rule: Rule) -> str:
    """The class and those that it shares code with, the most general first."""
    classes = [kind for kind in type(rule).__mro__ if issubclass(kind, Rule) and kind is not Rule]
    return "\n\n".join(inspect.getsource(kind).rstrip() for kind in reversed(classes))
