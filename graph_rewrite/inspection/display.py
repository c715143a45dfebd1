"""Tables of an inspection, for people."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graph_rewrite.inspection.blocks import RepeatedBlock
from graph_rewrite.inspection.inspect import Inspection
from graph_rewrite.system.cpu_count import threads_in_words

_MOST_ROWS = 15


def show(console: Console, found: Inspection) -> None:
    """Print an inspection."""
    console.print(_overview(found))
    console.print(_operators(found))
    if found.blocks:
        console.print(_blocks(found))
    if found.facts.opaque:
        console.print(_opaque(found))
    if found.rules is not None:
        console.print(_rules(found))
    if found.profile is not None:
        console.print(_times(found))
        console.print(_verdict(found), soft_wrap=True, markup=False)
    if found.profile_error:
        console.print(f"No times: {found.profile_error}", soft_wrap=True, markup=False)
    if found.shapes:
        bound = " ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in found.shapes.items())
        console.print(f"Work, rules and times are for {bound}; --shape sets others.", soft_wrap=True, markup=False)
    if found.missing:
        console.print(_what_is_missing(found), soft_wrap=True, markup=False)
    elif found.rules is None:
        flags = " ".join(f"--shape {fact.name}:..." for fact in found.facts.symbolic)
        console.print(
            f"Rules and times depend on shapes, which the file leaves open: add {flags}", soft_wrap=True, markup=False
        )


_PARTS = {
    "blocks": "repeated blocks", "rules": "the rules that match", "profile": "the time by operator",
    "peaks": "the speed of this machine",
}  # fmt: skip


def _what_is_missing(found: Inspection) -> str:
    parts = ", ".join(_PARTS[part] for part in found.missing)
    return f"Missing, as the time limit was reached: {parts}. A longer --time-limit tells them."


def _overview(found: Inspection) -> Table:
    facts = found.facts
    table = Table(show_header=False, box=box.SIMPLE, pad_edge=False, title=Text(found.path), title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows = [
        ("operator sets", ", ".join(f"{domain} {version}" for domain, version in facts.opsets.items())),
        ("producer", f"{facts.producer or 'unknown'}, IR version {facts.ir_version}"),
        *(("input", str(fact)) for fact in facts.inputs),
        *(("output", str(fact)) for fact in facts.outputs),
        ("file", f"{_size(found.file_bytes)}; weights {_size(facts.weight_bytes)}, {facts.parameters:,} parameters"),
        (
            "memory",
            "unknown" if facts.peak_bytes is None else f"{_size(facts.peak_bytes)} for one inference, estimated",
        ),
        ("work", "unknown" if facts.gflop is None else f"{facts.gflop:.3g} GFLOP for one inference"),
    ]
    for name, text in rows:
        table.add_row(name, Text(text))
    return table


def _operators(found: Inspection) -> Table:
    table = _table(f"{found.facts.nodes} nodes", "operator", "nodes")
    listed = list(found.facts.operators.items())
    for operator, count in listed[:_MOST_ROWS]:
        table.add_row(Text(operator), str(count))
    _add_rest(table, listed, sum(count for _, count in listed[_MOST_ROWS:]))
    return table


def _blocks(found: Inspection) -> Table:
    table = _table("Repeated blocks", "block", "repeats", "nodes each", "share of the time", "from")
    shares = found.block_shares or (None,) * len(found.blocks)
    for block, share in zip(found.blocks, shares, strict=True):
        told = "" if share is None else f"{share:.0%}"
        table.add_row(Text(_content(block)), str(block.repeats), str(block.length), told, Text(block.first))
    return table


def _content(block: RepeatedBlock) -> str:
    named = [f"{count} {op}" if count > 1 else op for op, count in block.operators[:4]]
    return ", ".join(named) + (", ..." if len(block.operators) > 4 else "")


def _opaque(found: Inspection) -> Table:
    table = _table("Kept as they are: no rule touches these nodes", "operator", "nodes", "reason", "such as")
    for entry in found.facts.opaque[:_MOST_ROWS]:
        table.add_row(Text(entry.operator), str(entry.count), Text(entry.reason), Text(entry.example))
    return table


def _rules(found: Inspection) -> Table:
    rules = found.rules or ()
    table = _table(f"{len(rules)} rules match", "rule", "sites", "classes")
    for entry in rules[:_MOST_ROWS]:
        table.add_row(Text(entry.rule), str(entry.sites), str(entry.classes))
    _add_rest(table, rules, sum(entry.sites for entry in rules[_MOST_ROWS:]))
    return table


def _times(found: Inspection) -> Table:
    assert found.profile is not None
    threads = found.profile.deployment.threads
    title = f"Time by operator: {found.profile.ms:.3g} ms with {threads_in_words(threads)}"
    table = _table(title, "operator", "kernels", "ms", "share", "GFLOP/s", "of the roofline")
    for entry in found.operator_times()[:_MOST_ROWS]:
        reached = "" if entry.least_ms is None or not entry.ms else f"{entry.least_ms / entry.ms:.0%}"
        table.add_row(
            Text(entry.operator), str(entry.kernels), f"{entry.ms:.3f}", f"{entry.share:.1%}", f"{entry.gflops:.3g}",
            reached,
        )  # fmt: skip
    return table


def _verdict(found: Inspection) -> str:
    assert found.profile is not None
    if not found.least_ms or found.peaks is None:
        return ""
    ratio = found.profile.ms / found.least_ms
    return (
        f"By the roofline these kernels need {found.least_ms:.3g} ms at least, at this machine's"
        f" {found.peaks.gflops:.3g} GFLOP/s and {found.peaks.gigabytes:.3g} GB/s: the model takes {ratio:.2g} times"
        " that. Rewrites can also change which kernels there are, and need less work."
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    words = {"operator", "block", "rule", "reason", "such as", "from"}
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right", overflow="fold")
    return table


def _add_rest(table: Table, listed: list[tuple[str, int]] | tuple[object, ...], total: int) -> None:
    if len(listed) > _MOST_ROWS:
        table.add_row(f"{len(listed) - _MOST_ROWS} more", str(total))


def _size(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024.0:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024.0
    return f"{value:.2f} GiB"
