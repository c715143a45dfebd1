"""Whole subgraphs of a network in ONNX Runtime's blocked layout, as one step.

ONNX Runtime's own pass keeps convolutions, pools, sums and joins of channels in the layout, and leaves it for the rest:
batches cut into frames, tiles put in order, images put into a batch. In explicit operators all of these are moves of
whole blocks. A subgraph ends where an operator reads it that the layout does not have. It reaches up as far as no other
operator reads what it computes.
"""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from graph_rewrite.ir.node import Node
from graph_rewrite.operators.nchwc import block_size
from graph_rewrite.operators.operator_sets import POOLS
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.layout.blocked_conv import pool_attrs, unsuited
from graph_rewrite.rules.layout.blocked_image import keeps_channels
from graph_rewrite.rules.layout.blocked_walk import Walk
from graph_rewrite.rules.layout.carried_operators import CARRIED, leaves_layout

FEWEST = 2
"""Fewest convolutions of a subgraph: with one alone, nothing stays in the layout that ONNX Runtime takes out."""
_MERGING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})


class PartInBlockedLayout(Rule):
    """f(...) = ReorderOutput(f'(ReorderInput(...))), where f is the largest part of convolutions, pools, element-wise
    operators and moves that ends there and whose results nothing else reads, and f' the same in the blocked layout"""

    family = "blocked_layout"
    covers_parts = True
    carried_by = ("PadBeforeBlockedDepthwise",)

    def source(self, op: PatternBuilder, operands: Values) -> Any:
        return op.any_of(CARRIED - {"Split"})(operands, _label="end")

    def check(self, m: Match, operands: tuple[Ref, ...]) -> Refusal | None:
        if not block_size():
            return Refusal("ONNX Runtime has no blocked layout on this CPU")
        root = m.root()
        if root.rank < 3 or root.dtype != TensorProto.FLOAT or m.node("end").domain:
            return Refusal("not an image of float32")
        readers = m.consumers(root)
        if readers and not m.is_output(root) and all(_goes_on(m, reader) for reader in readers):
            return Refusal("the part goes on")
        return None

    def target(self, op: ReplacementBuilder, m: Match, operands: tuple[Ref, ...]) -> Any:
        nodes = subgraph_of(m)
        if not any(leaves_layout(node) for node in nodes):
            return Refusal("ONNX Runtime keeps the whole part in the layout by itself")
        if sum(_has_form(m, node) for node in nodes) < FEWEST:
            return Refusal(f"fewer than {FEWEST} convolutions of the part have a form in the layout")
        walk = Walk(op, m)
        for node in nodes:
            walk.carry(node)
        if walk.convolutions < FEWEST or not walk.is_blocked(m.root_values[0]):
            return Refusal("what the part ends in, or all but one of its convolutions, have no form in the layout")
        return walk.plain(m.root_values[0])


def _has_form(m: Match, node: Node) -> bool:
    """Tell whether a node is a convolution that the layout has, before anything is built."""
    if node.op != "Conv" or node.inputs[0] is None or node.inputs[1] is None:
        return False
    if m.graph.types[node.inputs[0]] is None or m.graph.types[node.inputs[1]] is None:
        return False
    x, w = m.ref(node.inputs[0]), m.ref(node.inputs[1])
    return x.rank == 4 and w.is_const and not unsuited(node, x.shape, w)


def _pools(m: Match, node: Node) -> bool:
    """Tell whether the layout has the node if it is a pool."""
    if node.op not in POOLS:
        return True
    return node.inputs[0] is not None and pool_attrs(node, m.ref(node.inputs[0])) is not None


def _goes_on(m: Match, reader: Node) -> bool:
    """Tell whether a subgraph goes on with a node that reads its end."""
    if reader.domain or reader.opaque or reader.op not in CARRIED:
        return False
    if (reader.op == "Conv" and not _has_form(m, reader)) or not _pools(m, reader):
        return False
    result = m.graph.types[reader.outputs[0]]
    if result is None or result.rank < 3 or result.dtype != TensorProto.FLOAT:
        return False
    return reader.op not in _MERGING or keeps_channels(m.root().shape, result.shape)


def subgraph_of(m: Match) -> list[Node]:
    """Return the nodes of the subgraph that ends at the root of a match, in topological order."""
    end = m.node("end")
    inside: dict[int, Node] = {end.id: end}
    pending = [end]
    while pending:
        node = pending.pop()
        for value in node.inputs:
            if value is None or value in m.graph.constants or m.graph.types[value] is None:
                continue
            maker = m.producer(m.ref(value))
            if maker is not None and maker.id not in inside and _belongs(m, maker, inside):
                inside[maker.id] = maker
                pending.append(maker)
    return _ordered(end, inside)


def _belongs(m: Match, node: Node, inside: dict[int, Node]) -> bool:
    """Tell whether the layout may have the node, and nothing outside of the subgraph reads its results."""
    if node.domain or node.opaque or node.op not in CARRIED:
        return False
    if any(value is not None and m.graph.types[value] is None for value in (*node.inputs, *node.outputs)):
        return False
    for value in node.outputs:
        ref = m.ref(value)
        if ref.rank < 3 or ref.dtype != TensorProto.FLOAT or m.is_output(ref):
            return False
        if any(reader.id not in inside for reader in m.consumers(ref)):
            return False
    return True


def _ordered(end: Node, inside: dict[int, Node]) -> list[Node]:
    """Return operands before what reads them; without recursion, as subgraphs may be long."""
    makers = {value: node for node in inside.values() for value in node.outputs}
    found: dict[int, Node] = {}
    stack: list[tuple[Node, bool]] = [(end, False)]
    while stack:
        node, ready = stack.pop()
        if node.id in found:
            continue
        if ready:
            found[node.id] = node
            continue
        stack.append((node, True))
        for value in reversed(node.inputs):
            maker = None if value is None else makers.get(value)
            if maker is not None and maker.id not in found:
                stack.append((maker, False))
    return list(found.values())


RULES = (PartInBlockedLayout,)
