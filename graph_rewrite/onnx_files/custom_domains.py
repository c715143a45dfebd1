"""Operators of custom domains, which ONNX Runtime knows by a library only."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.opset import body_nodes
from graph_rewrite.runtime.custom_ops import HOW, CustomOperator, missing_operators

_BUILT_IN = frozenset({
    "", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft",
    "com.microsoft.nchwc",
})  # fmt: skip
"""Domains of ONNX and of ONNX Runtime itself."""
_SHOWN = 3


def custom_operators(graph: Graph) -> list[CustomOperator]:
    """Return the operators of a model that are of custom domains and no functions of the model, those within subgraphs
    and functions included."""
    versions = {entry.domain: entry.version for entry in graph.header.opset_import}
    functions = {(function.domain, function.name) for function in graph.header.functions}
    found: dict[tuple[str, str], CustomOperator] = {}
    used = [(node.domain, node.op, len(node.inputs), len(node.outputs)) for node in graph.order()]
    used += [(node.domain, node.op_type, len(node.input), len(node.output)) for node, _ in body_nodes(graph)]
    for domain, op, inputs, outputs in used:
        if domain not in _BUILT_IN and (domain, op) not in functions:
            found.setdefault((domain, op), CustomOperator(domain, op, versions.get(domain, 1), inputs, outputs))
    return list(found.values())


def require_operators(graph: Graph, libraries: Sequence[str] = ()) -> None:
    """Check that ONNX Runtime knows all operators of a model with some libraries, which are loaded in a process of its
    own for that.

    Raises:
        UserError: a library cannot be loaded, or does not hold an operator; the message says how to name one.
    """
    missing = missing_operators(libraries, custom_operators(graph))
    if not missing:
        return
    listed = ", ".join(map(str, missing[:_SHOWN])) + (" and others" if len(missing) > _SHOWN else "")
    if libraries:
        raise UserError(f"the model has operators that {' and '.join(libraries)} do not hold: {listed}; {HOW}")
    raise UserError(f"the model has operators of a custom domain: {listed}; {HOW}")
