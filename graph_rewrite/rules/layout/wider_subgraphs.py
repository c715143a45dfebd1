"""Depthwise networks and DenseNets in ONNX Runtime's blocked layout, as one step.

ONNX Runtime's own pass leaves the layout around squeeze-and-excitation (Hu et al. 2018, arXiv:1709.01507): for the mean
over all positions and for the product of each channel with its factor. With explicit operators both stay inside, and
the factors go into the filters of the projection where an image has many positions. Measured on a Zen 5, one thread:
EfficientNet-B0 1.13, MobileNetV3-Large 1.06. DenseNet-121 gains nothing by the layout alone, since ONNX Runtime has its
normalisations there as well, but 1.06 with WinogradRows4 at the 3x3 convolutions of 56 and 28 rows before it.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import Any

from onnx import TensorProto

from graph_rewrite.ir.node import Node
from graph_rewrite.operators.nchwc import ALIGNMENT, block_size
from graph_rewrite.operators.operator_sets import POOLS
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.layout.blocked_conv import pool_attrs
from graph_rewrite.rules.layout.blocked_image import keeps_channels
from graph_rewrite.rules.layout.blocked_subgraphs import FEWEST
from graph_rewrite.rules.layout.carried_operators import CARRIED, MOVES
from graph_rewrite.rules.layout.wider_walk import WiderWalk, gated_operand, is_global_mean

_OPERATORS = CARRIED | {"BatchNormalization", "ReduceMean"}
_ENDS = (CARRIED - MOVES) | {"Concat", "BatchNormalization", "ReduceMean"}
"""Operators that a part may end with: what only moves elements can as well be done after it."""
_MERGING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
FEWEST_NORMALISATIONS = 8
"""Normalisations of a part without gates: a few are no reason to write the whole part in explicit operators."""


class WiderPartInBlockedLayout(Rule):
    """f(...) = ReorderOutput(f'(ReorderInput(...))), where f is the largest part that ends there of convolutions,
    normalisations, pools, element-wise operators, joins and products of an image with a factor per channel, whose
    results nothing else reads, and f' the same in the blocked layout, channels padded to blocks"""

    family = "blocked_layout"
    covers_parts = True
    carried_by = ("BlockedConvByRows4", "PadBeforeBlockedDepthwise")

    def source(self, op: PatternBuilder, operands: Values) -> Any:
        return op.any_of(_ENDS)(operands, _label="end")

    def check(self, m: Match, operands: tuple[Ref, ...]) -> Refusal | None:
        if not block_size():
            return Refusal("ONNX Runtime has no blocked layout on this CPU")
        root = m.root()
        if root.rank != 4 or not _carries(m, m.node("end")):
            return Refusal("not an image of float32, or an operator that the layout has not")
        readers = m.consumers(root)
        if readers and not m.is_output(root) and all(_carries(m, reader) for reader in readers):
            return Refusal("the part goes on")
        return None

    def target(self, op: ReplacementBuilder, m: Match, operands: tuple[Ref, ...]) -> Any:
        nodes = _part(m)
        gates = sum(_is_gate(m, node) for node in nodes)
        normalisations = sum(node.op == "BatchNormalization" for node in nodes)
        if not gates and normalisations < FEWEST_NORMALISATIONS:
            return Refusal(f"no channels are scaled, and fewer than {FEWEST_NORMALISATIONS} normalised")
        walk = WiderWalk(op, m)
        for node in nodes:
            walk.carry(node)
        if walk.convolutions < FEWEST or not walk.is_blocked(m.root_values[0]):
            return Refusal("what the part ends in, or all but one of its convolutions, have no form in the layout")
        return walk.plain(m.root_values[0])


def _is_gate(m: Match, node: Node) -> bool:
    """Tell whether a node multiplies an image with factors of its channels that are computed."""
    if node.op != "Mul" or any(value is None or value in m.graph.constants for value in node.inputs):
        return False
    left, right = (m.ref(value).shape for value in node.inputs if value is not None)
    return gated_operand(left, right) is not None


def _carries(m: Match, node: Node) -> bool:
    """Tell whether the layout has a node, which gives an image."""
    if node.domain or node.opaque or node.op not in _OPERATORS:
        return False
    if any(value is not None and m.graph.types[value] is None for value in (*node.inputs, *node.outputs)):
        return False
    result = m.ref(node.outputs[0])
    if result.rank < 3 or result.dtype != TensorProto.FLOAT:
        return False
    if node.op == "Conv":
        return _has_form(m, node)
    if node.op in _MERGING:
        return node.inputs[0] is not None and keeps_channels(m.ref(node.inputs[0]).shape, result.shape)
    if node.op in POOLS:
        return node.inputs[0] is not None and pool_attrs(node, m.ref(node.inputs[0])) is not None
    return node.op != "ReduceMean" or is_global_mean(node, m)


def _has_form(m: Match, node: Node) -> bool:
    """Tell whether a node is a convolution that the layout has, padded if need be, before anything is built."""
    x, w = (None if value is None else m.ref(value) for value in node.inputs[:2])
    if x is None or w is None or x.rank != 4 or w.rank != 4 or not w.is_const:
        return False
    if node.attrs.get("group", 1) == 1:
        # Other numbers of channels cannot enter the layout; what is computed in it is padded.
        enters, maker = x.shape[1] < block_size() or x.shape[1] % ALIGNMENT == 0, m.producer(x)
        return enters or (maker is not None and _carries(m, maker))
    return bool(node.attrs["group"] == x.shape[1] == w.shape[0])


def _part(m: Match) -> list[Node]:
    """Return the nodes of the part that ends at the root of a match, in topological order."""
    end = m.node("end")
    inside: dict[int, Node] = {end.id: end}
    makers: dict[int, list[int]] = {}
    pending = [end]
    while pending:
        node = pending.pop()
        makers[node.id] = []
        for value in node.inputs:
            maker = None if value is None or value in m.graph.constants else m.producer(m.ref(value))
            if maker is None:
                continue
            makers[node.id].append(maker.id)
            if maker.id not in inside and _belongs(m, maker, inside):
                inside[maker.id] = maker
                pending.append(maker)
    own = {node_id: [maker for maker in found if maker in inside] for node_id, found in makers.items()}
    return [inside[node_id] for node_id in TopologicalSorter(own).static_order()]


def _belongs(m: Match, node: Node, inside: dict[int, Node]) -> bool:
    """Tell whether the layout has the node, and nothing outside of the part reads its results."""
    if not _carries(m, node):
        return False
    return not any(
        m.is_output(m.ref(value)) or any(reader.id not in inside for reader in m.consumers(m.ref(value)))
        for value in node.outputs
    )


RULES = (WiderPartInBlockedLayout,)
