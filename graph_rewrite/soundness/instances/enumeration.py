"""Source graphs at which a rule applies, built from the rule's pattern.

Each is made by choices (shapes, attributes, contents of constants), drawn without repetition and spread by a
`Chooser`; of all that fit together, those are instances at which the rule has a candidate. In full mode they are as
many as stay under the caps; the fast ones cover pairs of choices among the first of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.standard_types import TypeInferenceError
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.patterns import build_pattern
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.soundness.cases import cases_of
from graph_rewrite.soundness.instances.chooser import Chooser, DeadEnd
from graph_rewrite.soundness.instances.source_graph import SourceBuilder

FULL_INSTANCES, FULL_TRIALS = 400, 3000
"""Caps of the full mode: instances of a rule, and source graphs that are tried for it."""
FAST_INSTANCES, FAST_POOL, FAST_TRIALS = 12, 24, 300
"""Caps of the fast mode: instances of a rule, how many they are taken from, and source graphs tried for those."""
FEWEST = 5
"""The fast mode goes on past its cap of tries, up to that of the full mode, until it has so many instances, unless the
rule has cases of its own."""

Choices = Mapping[str, Hashable]


@dataclass(frozen=True, slots=True)
class Instance:
    """A graph at which a rule applies. Its inputs are the pattern's variables; constants are initializers."""

    graph: Graph
    candidate: Candidate
    label: str
    """Shapes, attributes and small constants."""


@dataclass(slots=True)
class Tally:
    """Counts of the source graphs that were tried, by outcome."""

    tried: int = 0
    impossible: int = 0
    """Choices that don't fit together."""
    refused: int = 0
    """Graphs at which the rule has no candidate."""
    applied: int = 0
    exhausted: bool = False
    """True where all choices were tried: the rule has no further instances among them."""


def instances(rule: Rule, *, full: bool, seed: int = 0, tally: Tally | None = None) -> Iterator[Instance]:
    """Instances of a rule, in a fixed order for each seed; `tally` counts what was tried for them."""
    tally = Tally() if tally is None else tally
    if full:
        for found, _ in itertools.islice(_found(rule, seed, FULL_TRIALS, tally), FULL_INSTANCES):
            yield from found
    else:
        pool = list(itertools.islice(_found(rule, seed, FAST_TRIALS, tally), FAST_POOL))
        for place in covering([choices for _, choices in pool], FAST_INSTANCES):
            yield from pool[place][0]


def _found(rule: Rule, seed: int, trials: int, tally: Tally) -> Iterator[tuple[list[Instance], Choices]]:
    """Per source graph at which the rule applies, its instances and the choices that led to it."""
    rewriter = Rewriter([rule], granularity="site", deployment=False)
    has_cases = False
    for number, graph in enumerate(cases_of(rule)):
        has_cases = True
        found = _at(rewriter, graph, tally)
        if found:
            yield found, {"case": number}
    pattern = rule.pattern if rule.setting is None else build_pattern(rule.setting)
    chooser = Chooser(seed)
    for trial in range(FULL_TRIALS):
        if chooser.exhausted:
            tally.exhausted = True
            return
        if trial >= trials and (has_cases or tally.applied >= FEWEST):
            return
        try:
            builder = SourceBuilder(pattern, chooser, rule.examples, seed * FULL_TRIALS + trial)
            graph = builder.graph(rule.shared_interior)
        except (DeadEnd, TypeInferenceError):
            tally.tried, tally.impossible = tally.tried + 1, tally.impossible + 1
            chooser.finish(success=False)
            continue
        found, choices = _at(rewriter, graph, tally), dict(chooser.made)
        chooser.finish(success=bool(found))
        if found:
            yield found, choices


def _at(rewriter: Rewriter, graph: Graph, tally: Tally) -> list[Instance]:
    candidates = rewriter.candidates(graph)
    tally.tried += 1
    tally.applied += bool(candidates)
    tally.refused += not candidates
    label = label_of(graph) if candidates else ""
    return [Instance(graph, candidate, label) for candidate in candidates]


def covering(rows: Sequence[Choices], count: int) -> list[int]:
    """Places of up to `count` rows that together have as many pairs of choices as greedy selection finds, in the
    order of selection; fewer where fewer have all pairs."""
    pairs: list[set[Any]] = []
    for row in rows:
        choices = sorted(row.items(), key=str)
        pairs.append({*choices, *itertools.combinations(choices, 2)})
    chosen: list[int] = []
    covered: set[Any] = set()
    while len(chosen) < min(count, len(rows)):
        rest = [place for place in range(len(rows)) if place not in chosen]
        best = max(rest, key=lambda place: (len(pairs[place] - covered), -place))
        if not pairs[best] - covered and chosen:
            break
        chosen.append(best)
        covered |= pairs[best]
    return chosen


def label_of(graph: Graph) -> str:
    """A graph in one line: types of its inputs, then operators with attributes and constants."""
    inputs = ", ".join(f"{graph.names[value]} {graph.types[value]}" for value in graph.inputs)
    parts = []
    for node in graph.order():
        operands = ", ".join(_operand(graph, value) for value in node.inputs)
        attrs = "".join(f", {name}={value}" for name, value in sorted(node.attrs.items()))
        parts.append(f"{graph.names[node.outputs[0]]} = {node.op}({operands}{attrs})")
    return f"({inputs}) {'; '.join(parts)}"


def _operand(graph: Graph, value: int | None) -> str:
    if value is None:
        return "-"
    constant = graph.constants.get(value)
    if constant is None:
        return graph.names.get(value, f"#{value}")
    array = constant.numpy()
    if array.size <= 8:
        return f"{graph.names.get(value, '')}={np.array2string(array, separator=',')}".replace("\n", "")
    return f"{graph.names.get(value, '')}={constant.type}"
