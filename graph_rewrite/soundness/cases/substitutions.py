"""Cases of substitutions: source graphs over small shapes."""

from __future__ import annotations

from collections.abc import Iterator

from graph_rewrite.ir.graph import Graph
from graph_rewrite.rules.substitutions.substitution import SubstitutionRule
from graph_rewrite.terms.canonical import is_connected
from graph_rewrite.terms.conditions import condition_holds
from graph_rewrite.terms.onnx_form import build_graph, scalar_inputs
from graph_rewrite.terms.small_shapes import small_shapes
from graph_rewrite.terms.substitution import INPUT
from graph_rewrite.terms.term_types import TermType

_COUNT, _LARGEST_DIM = 8, 3


def small_graphs(rule: SubstitutionRule) -> Iterator[Graph]:
    """Yield source graphs over small shapes that satisfy the conditions: from the smallest on, some larger."""
    source, target = rule.substitution.source, rule.substitution.target
    scalars = scalar_inputs(rule.substitution)
    joined = not is_connected(source)
    renamed = any(operand.node == INPUT for operand in target.outputs)
    found = []
    for shapes in small_shapes(rule.substitution, _LARGEST_DIM):
        types = {number: TermType(shape) for number, shape in shapes.items()}
        if condition_holds(rule.substitution, types, rule.substitution.conditions):
            found.append(types)
    for index in dict.fromkeys(round(k * (len(found) - 1) / _COUNT) for k in range(1, _COUNT + 1)) if found else ():
        yield build_graph(source, found[index], constants=scalars, fused=rule.fused, joined=joined, renamed=renamed)
