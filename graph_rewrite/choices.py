"""Deployment choices: ONNX Runtime's own optimisers, refused or kept one by one for this model.

Some of its fusions are slower than what they replace, and only end-to-end measurement sees it.
"""

from __future__ import annotations

from graph_rewrite.ir import Graph

# Optimiser -> operators that must all occur for it to have anything to do.
_CONCERNS: dict[str, tuple[frozenset[str], ...]] = {
    "SkipLayerNormFusion": (frozenset({"LayerNormalization"}), frozenset({"Add"})),
    "MatMulAddFusion": (frozenset({"MatMul"}), frozenset({"Add"})),
    "MatmulTransposeFusion": (frozenset({"MatMul", "FusedMatMul"}), frozenset({"Transpose"})),
    "BiasGeluFusion": (frozenset({"Gelu", "Erf"}), frozenset({"Add"})),
    "ConvActivationFusion": (frozenset({"Conv"}), frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip"})),
    "ConvAddActivationFusion": (frozenset({"Conv"}), frozenset({"Add"})),
    "NchwcTransformer": (frozenset({"Conv", "MaxPool", "AveragePool"}),),
}


def concerned_optimizers(graph: Graph) -> list[str]:
    """Optimisers that this graph gives something to do, in a fixed order."""
    present = {node.op for node in graph.nodes.values()}
    return [name for name, needs in _CONCERNS.items() if all(present & need for need in needs)]


def deployment_choices(graph: Graph) -> list[tuple[str, frozenset[str]]]:
    """(description, refused optimisers) of each single change to what is refused now."""
    choices = []
    for name in concerned_optimizers(graph):
        if name in graph.disabled_optimizers:
            choices.append((f"keep {name}", graph.disabled_optimizers - {name}))
        else:
            choices.append((f"refuse {name}", graph.disabled_optimizers | {name}))
    return choices
