"""Deployment choices: ONNX Runtime's own optimisers, refused or kept one by one for this model.

Some fusions are slower than what they replace, and only an end-to-end measurement shows it. The choices are those whose
refusal can pay on a CPU. The tests check that each changes the optimised graph of a small model.
"""

from __future__ import annotations

from dataclasses import dataclass

from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate

_KEEP, _REFUSE = "keep", "refuse"
_ACTIVATIONS = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid"})


@dataclass(frozen=True, slots=True)
class _Choice:
    """Optimisers that are refused together."""

    name: str
    needs: tuple[frozenset[str], ...]
    """Sets of operators; a graph must have one of each set, or the optimisers have nothing to do."""
    also: frozenset[str] = frozenset()
    """Further optimisers that do the same work."""
    after: frozenset[str] = frozenset()
    """Optimisers that leave nothing to do unless they are refused."""
    is_local: bool = False
    """Whether refusing them gains in a model what it gains where they fuse, each place timed apart from the others. On
    one thread of a Zen 5, refusing SkipLayerNormFusion saves BERT 8.0 ms, and 7.6 ms by its windows; MatMulAddFusion
    nothing, and 4 ms by its windows."""

    @property
    def optimizers(self) -> frozenset[str]:
        return self.also | {self.name}


_CHOICES = (
    _Choice("SkipLayerNormFusion", (frozenset({"LayerNormalization"}), frozenset({"Add"})), is_local=True),
    _Choice("MatMulAddFusion", (frozenset({"MatMul"}), frozenset({"Add"}))),
    _Choice("MatmulTransposeFusion", (frozenset({"MatMul", "FusedMatMul"}), frozenset({"Transpose"}))),
    _Choice("BiasGeluFusion", (frozenset({"Gelu"}), frozenset({"Add"})), after=frozenset({"MatMulAddFusion"})),
    _Choice(
        "TransposeOptimizer", (frozenset({"Transpose"}),), also=frozenset({"TransposeOptimizer_CPUExecutionProvider"})
    ),
    _Choice("ConvActivationFusion", (frozenset({"Conv"}), _ACTIVATIONS)),
    _Choice("NchwcTransformer", (frozenset({"Conv", "FusedConv", "MaxPool", "AveragePool"}),)),
)
"""The choices, in the order in which they are offered."""

LOCAL_CHOICES = frozenset(
    f"{verb} {choice.name}" for choice in _CHOICES if choice.is_local for verb in (_KEEP, _REFUSE)
)
"""Descriptions of the choices that can be timed in windows."""


def deployment_choices(graph: Graph) -> list[tuple[str, frozenset[str]]]:
    """Return (description, refused optimisers) of each single change to what is refused now, in a fixed order."""
    present = {node.op for node in graph.nodes.values()}
    refused = graph.disabled_optimizers
    choices = []
    for choice in _CHOICES:
        if choice.optimizers <= refused:
            choices.append((f"{_KEEP} {choice.name}", refused - choice.optimizers))
        elif choice.after <= refused and all(present & need for need in choice.needs):
            choices.append((f"{_REFUSE} {choice.name}", refused | choice.optimizers))
    return choices


def deployment_candidates(graph: Graph) -> list[Candidate]:
    """Return the deployment choices of a graph as candidates."""
    return [
        Candidate("deployment", graph, disabled_optimizers=names, label=label, session_settings=graph.session_settings)
        for label, names in deployment_choices(graph)
    ]


def deployment_candidate(graph: Graph, label: str) -> Candidate | None:
    """Return the deployment choice of a graph with this description; None where it is not offered."""
    return next((candidate for candidate in deployment_candidates(graph) if candidate.label == label), None)


def local_refusals(graph: Graph) -> list[tuple[Candidate, list[frozenset[int]]]]:
    """Return the refusals that can be timed in windows, each with the nodes of every place where the optimisers find
    something to fuse: a node of the first set of operators that they need, and those of the other sets that it
    reads."""
    found = []
    for choice in _CHOICES:
        candidate = deployment_candidate(graph, f"{_REFUSE} {choice.name}") if choice.is_local else None
        if candidate is not None:
            found.append((candidate, _places(graph, choice)))
    return found


def _places(graph: Graph, choice: _Choice) -> list[frozenset[int]]:
    last, *others = choice.needs
    found = []
    for node in graph.order():
        if node.op in last:
            read = {graph.producer[value] for value in node.inputs if value is not None and value in graph.producer}
            near = {producer for producer in read if any(graph.nodes[producer].op in need for need in others)}
            if near:
                found.append(frozenset({node.id, *near}))
    return found
