"""The shapes at which a model is rewritten and compared beside the one that it is searched at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from graph_rewrite.delivery.acceptance import refusals
from graph_rewrite.ir.graph import Graph
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.symbolic.choices import joint, role_of, variations
from graph_rewrite.symbolic.feeds import write_feeds
from graph_rewrite.symbolic.inputs import SymbolicInputs

LEAST_UNSEEN = 5
"""Bindings at which a result is compared and that no step before has seen."""
_SEEN_SINGLE, _SEEN_JOINT, _UNSEEN_JOINT = 3, 3, 9

_LARGEST_S = 30.0
"""Most seconds for trying the largest sizes."""

Values = Mapping[str, int]


@dataclass(frozen=True)
class ComparisonPlan:
    """Bindings that the original model accepts, with inputs for those at which results are compared."""

    seen: tuple[Values, ...]
    """Bindings to which rewrites are carried over, the searched one first."""
    unseen: tuple[tuple[Values, FeedSpec], ...]
    """Further bindings, at which a result is compared with the original."""
    bound: FeedSpec
    """Inputs at the binding that was searched."""
    fixed: Mapping[str, str]
    """Symbols for which the model accepts no other value, with what it says."""


def choose_bindings(
    path: Path,
    graph: Graph,
    inputs: SymbolicInputs,
    asked: Sequence[Values],
    deployment: Deployment,
    folder: Path,
    seconds: float,
) -> ComparisonPlan:
    """Choose the bindings for a model by trying which ones it accepts.

    Args:
        path: the original model.
        graph: its graph at the binding that was searched, from which the ranges of token ids are read.
        asked: the bindings that the user gave; the first was searched.
        folder: where inputs are written.
        seconds: most seconds for trying; what is not tried by then is not used.
    """
    numbers = count()
    bound = dict(asked[0])

    def feeds(values: Values) -> FeedSpec:
        return write_feeds(graph, inputs, inputs.shapes(values), folder, next(numbers))

    singles, tied = _single_variations(inputs, bound)
    offered = [*({**bound, symbol: value} for symbol, value in singles), *tied]
    reasons = refusals(path, [feeds(values) for values in offered], deployment, folder, seconds / 2)
    accepted = [values for values, refused in zip(offered, reasons, strict=True) if not refused]
    groups = _groups(inputs, bound, accepted)
    varying = {symbol for group in groups for symbol in group}
    fixed = {
        symbol: next(r for (name, _), r in zip(singles, reasons, strict=False) if name == symbol)
        for symbol in inputs.symbols
        if symbol not in varying
    }
    seen_joint, unseen = _joint_variations(inputs, bound, groups)
    wanted = [*(dict(values) for values in asked[1:]), *seen_joint, *unseen]
    specs = [feeds(values) for values in wanted]
    reasons = refusals(path, specs, deployment, folder, seconds / 2)
    good = [(values, spec) for values, spec, refused in zip(wanted, specs, reasons, strict=True) if not refused]
    seen = [bound]
    for group in groups:
        found = [v for v in accepted if all(v[s] != bound[s] for s in group) and _others_bound(v, bound, group)]
        seen += found[:_SEEN_SINGLE]
    seen += [values for values, _ in good if values in seen_joint][:_SEEN_JOINT]
    rest = [(values, spec) for values, spec in good if values not in seen and values not in seen_joint]
    return ComparisonPlan(tuple(seen), tuple(rest[: _UNSEEN_JOINT + len(asked)]), feeds(bound), fixed)


def largest_sizes(
    path: Path,
    graph: Graph,
    inputs: SymbolicInputs,
    bound: Values,
    limits: Mapping[str, int],
    deployment: Deployment,
    folder: Path,
) -> dict[str, int]:
    """Return those of some limits that hold: the model runs with all of them at once, and with none of them exceeded by
    one."""
    offered = [{**bound, **limits}, *({**bound, symbol: limit + 1} for symbol, limit in limits.items())]
    feeds = [write_feeds(graph, inputs, inputs.shapes(values), folder, 1000 + i) for i, values in enumerate(offered)]
    together, *beyond = refusals(path, feeds, deployment, folder, _LARGEST_S)
    if together:
        return {}
    return {symbol: limit for (symbol, limit), refused in zip(limits.items(), beyond, strict=True) if refused}


def _single_variations(inputs: SymbolicInputs, bound: Values) -> tuple[list[tuple[str, int]], list[dict[str, int]]]:
    """Return other values of each symbol alone, and of symbols of the same role and size together: exporters give
    several names to what must have one size."""
    singles, tied = [], []
    groups: dict[tuple[str, int], list[str]] = {}
    for symbol, place in inputs.symbols.items():
        role = role_of(symbol, place)
        groups.setdefault((role.label, bound[symbol]), []).append(symbol)
        singles += [(symbol, value) for value in variations(role, bound[symbol])[0]]
    for (_, size), members in groups.items():
        if len(members) > 1:
            role = role_of(members[0], inputs.symbols[members[0]])
            tied += [{**bound, **dict.fromkeys(members, value)} for value in variations(role, size)[0]]
    return singles, tied


def _groups(inputs: SymbolicInputs, bound: Values, accepted: Sequence[Values]) -> list[tuple[str, ...]]:
    """Return the sets of symbols that may vary, each set together."""
    changed = [tuple(s for s in inputs.symbols if values[s] != bound[s]) for values in accepted]
    alone = {symbols[0] for symbols in changed if len(symbols) == 1}
    together = [symbols for symbols in dict.fromkeys(changed) if len(symbols) > 1 and not alone.issuperset(symbols)]
    kept = [tuple(s for s in symbols if s not in alone) for symbols in together]
    return [(symbol,) for symbol in inputs.symbols if symbol in alone] + [group for group in kept if group]


def _others_bound(values: Values, bound: Values, group: Sequence[str]) -> bool:
    return all(values[symbol] == bound[symbol] for symbol in bound if symbol not in group)


def _joint_variations(
    inputs: SymbolicInputs, bound: Values, groups: Sequence[tuple[str, ...]]
) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """Return bindings in which all symbols vary: some to carry rewrites over to, and others for the comparison."""
    options = {g[0]: variations(role_of(g[0], inputs.symbols[g[0]]), bound[g[0]]) for g in groups}
    members = {group[0]: group for group in groups}

    def spread(values: Values) -> dict[str, int]:
        return {**bound, **{s: value for first, value in values.items() for s in members[first]}}

    seen = [spread(v) for v in joint({s: o[0] for s, o in options.items()}, _SEEN_JOINT)] if len(groups) > 1 else []
    unseen = [spread(v) for v in joint({s: o[1] for s, o in options.items()}, _UNSEEN_JOINT)]
    if len(groups) > 1:
        unseen[2:2] = [spread({s: o[1][0]}) for s, o in options.items()]
    return seen, unseen
