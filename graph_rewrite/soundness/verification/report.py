"""The report of a verification on a console."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graph_rewrite.soundness.verification.outcome import RuleOutcome

_MOST_LISTED = 60
"""The most rules that are listed all; of more, only those with a problem are."""


def print_outcomes(console: Console, found: Sequence[RuleOutcome], *, written: bool) -> None:
    """Print a table of outcomes, the problems, and a line per origin of rules.

    Args:
        written: whether the certificates were written, not compared.
    """
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in ("rule", "method", "instances", "worst error", "certificate"):
        numeric = column in ("instances", "worst error")
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=column != "method")
    listed = found if len(found) <= _MOST_LISTED else [outcome for outcome in found if outcome.problem]
    for outcome in listed:
        table.add_row(*_row(outcome, written))
    if listed:
        console.print(table)
    for outcome in found:
        if outcome.problem:
            console.print(Text(outcome.problem + "\n"))
    for origin in dict.fromkeys(outcome.origin for outcome in found):
        console.print(_summary(origin, [outcome for outcome in found if outcome.origin == origin]))
    if len(found) > len(listed):
        console.print("--json lists them all; rewritegym rules show NAME shows one")


def _summary(origin: str, found: Sequence[RuleOutcome]) -> str:
    proved = sum(o.certificate is not None and o.certificate.verdict == "proved" for o in found)
    refused = sum(o.certificate is None for o in found)
    differing = sum(bool(o.problem) for o in found) - refused
    parts = [f"{proved} proved", f"{len(found) - proved - refused} tested", f"{refused} refused"]
    return f"{origin}: {len(found)} rules, {', '.join(parts)}; {differing} not as their certificates say"


def _row(outcome: RuleOutcome, written: bool) -> list[Text]:
    held = outcome.certificate
    if held is None:
        return [Text(outcome.rule), Text("-"), Text("-"), Text("-"), Text("refused", style="red")]
    methods = ", ".join(f"{name} {count}" for name, count in held.methods.items())
    state = Text("differs", style="red") if outcome.problem else Text("written" if written else "holds", style="green")
    return [Text(outcome.rule), Text(methods), Text(str(held.instances)), Text(held.worst_error), state]
