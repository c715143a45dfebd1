"""Equations out of graphs with equal fingerprints."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from graph_rewrite.generate.enumerate import NO_TENSOR, WIDTH
from graph_rewrite.generate.expressions import (
    COMMUTATIVE,
    Equation,
    Expression,
    Expressions,
    canonical,
    inputs,
    ordered,
)
from graph_rewrite.generate.families import Family
from graph_rewrite.generate.fingerprint import (
    INPUT_ITSELF,
    SWAPPED,
    Graphs,
    bare_inputs,
    classes,
    in_first_use_order,
    tested,
)

TESTS = 2
"""Tests after the fingerprint, each at the family's second shapes and with values and functions of its own."""


@dataclass(slots=True)
class Paired:
    """The equations of a family, and the numbers of graphs that led to them."""

    graphs: int
    pairs: int
    """Pairs of graphs with equal fingerprints, inputs by name."""
    distinct: int
    """Equations among them, up to names of inputs, direction and order of outputs, that are not two equations side by
    side."""
    equations: list[Equation] = field(default_factory=list)
    """Those that pass the further tests, sorted by their text."""


def pair(family: Family, graphs: Graphs, seed: int) -> Paired:
    """The equations of graphs that are sorted by fingerprint, tested again at other shapes and with other values.

    Of classes of equal fingerprints that differ in the names of their inputs one at least is looked at, all others left
    out: one where a graph uses its inputs in the order of their numbers.
    """
    bounds = list(classes(graphs))
    pairs = sum((end - start) * (end - start - 1) // 2 for start, end in bounds)
    first_use = in_first_use_order(graphs, family)
    kept = [(start, end) for start, end in bounds if first_use[start:end].any()]
    if not kept:
        return Paired(len(graphs), pairs, 0)
    rows = np.concatenate([np.arange(start, end) for start, end in kept])
    chosen, ordered_rows = graphs.take(rows), first_use[rows].tolist()
    digests = list(zip(*(tested(family, chosen, seed + 1 + test) for test in range(TESTS)), strict=True))
    reader = _Reader(family)
    outputs = [reader.read(c, f) for c, f in zip(chosen.codes.tolist(), chosen.flags.tolist(), strict=True)]
    operators = [(sum(op != NO_TENSOR for op in ops), sorted(ops)) for ops in chosen.codes[:, ::WIDTH].tolist()]
    found: dict[Equation, bool] = {}
    start = 0
    for low, high in kept:
        end = start + high - low
        for a, b in combinations(range(start, end), 2):
            # Any pair has a renaming in which the graph with the smaller operators uses its inputs in order.
            first = [row for row in (a, b) if operators[row] == min(operators[a], operators[b])]
            if any(ordered_rows[row] for row in first) and not side_by_side((outputs[a], outputs[b])):
                equation = canonical((outputs[a], outputs[b]))
                passed = digests[a] == digests[b] and b"" not in digests[a]
                found[equation] = found.get(equation, True) and passed
        start = end
    return Paired(len(graphs), pairs, len(found), [equation for equation, passed in found.items() if passed])


def side_by_side(equation: Equation) -> bool:
    """Return whether the equation has two outputs and each of them is an equation of its own, over the same inputs."""
    source, target = equation
    return len(source) > 1 and all(inputs(a) == inputs(b) for a, b in zip(source, target, strict=True))


@dataclass(slots=True)
class _Reader:
    """Turns codes of a family's graphs into expressions."""

    family: Family

    def read(self, code: list[int], flag: int) -> Expressions:
        """The graph's outputs, in the order of their fingerprints."""
        if flag >= INPUT_ITSELF:
            return bare_inputs(flag, len(self.family.inputs))
        leaves: list[Expression] = [*range(len(self.family.inputs))]
        tensors = leaves + [(c.op, c.params, (), 0) for c in self.family.constants]
        unused: list[int] = []
        for start in range(0, len(code), WIDTH):
            if code[start] == NO_TENSOR:
                break
            instance = self.family.operators[code[start]]
            places = code[start + 1 : start + 1 + instance.inputs]
            operands = tuple(tensors[i] for i in places)
            if instance.op in COMMUTATIVE:
                operands = ordered(operands)
            unused = [i for i in unused if i not in places]
            for index in range(2 if instance.op == "split" else 1):
                unused.append(len(tensors))
                tensors.append((instance.op, instance.params, operands, index))
        outputs = tuple(tensors[i] for i in unused)
        return outputs[::-1] if flag == SWAPPED else outputs
