"""A subgraph, carried through ONNX Runtime's blocked layout operator by operator.

The walk keeps every value of the subgraph either plain or blocked (`blocked_values`). A convolution enters the layout;
what only moves or maps elements stays where its operands are; for everything else the value leaves the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graph_rewrite.ir.node import Node
from graph_rewrite.operators.nchwc import DOMAIN
from graph_rewrite.operators.operator_sets import POOLS
from graph_rewrite.rules.layout.blocked_conv import conv_plan, pool_attrs
from graph_rewrite.rules.layout.blocked_elementwise import binary, unary
from graph_rewrite.rules.layout.blocked_image import BlockedImage, image_of, in_order, of_image
from graph_rewrite.rules.layout.blocked_moves import (
    move_by_concat,
    move_by_gather,
    move_by_pad,
    move_by_reshape,
    move_by_slice,
    move_by_split,
    move_by_transpose,
)
from graph_rewrite.rules.layout.blocked_values import BlockedValues, WaitingConv
from graph_rewrite.rules.layout.carried_operators import BINARY_CARRIED, UNARY_CARRIED


def _conv(values: BlockedValues, node: Node) -> BlockedImage | None:
    value, *rest = node.inputs
    w, b = (*(None if v is None else values.plain(v) for v in rest), None)[:2]
    if value is None or w is None or w.constant is None or (b is not None and b.constant is None):
        return None
    known = values.known(value)
    if known is not None and in_order(values.op, known).channels != 1:
        return None
    plan = conv_plan(values.op, node, values.m.ref(value).shape, w)
    if plan is None:
        return None
    source = values.plain(value) if plan.plain_input else values.entered(value)
    values.convolutions += 1
    return values.wait(node.outputs[0], WaitingConv((source, plan.filters, b), plan.attrs), plan.shape)


def _pool(values: BlockedValues, node: Node) -> BlockedImage | None:
    x = values.first(node)
    if x is None or len(node.outputs) != 1:
        return None
    x = in_order(values.op, x)
    attrs = pool_attrs(node, values.m.ref(node.inputs[0] or 0))
    if len(x.dims) != 4 or x.channels != 1 or attrs is None:
        return None
    made = values.op.nchwc.apply(node.op, DOMAIN, attrs, (image_of(values.op, x),), 1)[0]
    return of_image(made, values.m.ref(node.outputs[0]).shape, 1)


_CARRY: Mapping[str, Callable[[BlockedValues, Node], BlockedImage | list[BlockedImage] | None]] = {
    "Conv": _conv,
    **dict.fromkeys(POOLS, _pool),
    **dict.fromkeys(BINARY_CARRIED, binary),
    **dict.fromkeys(UNARY_CARRIED, unary),
    "Concat": move_by_concat,
    "Flatten": move_by_reshape,
    "Gather": move_by_gather,
    "Pad": move_by_pad,
    "Reshape": move_by_reshape,
    "Slice": move_by_slice,
    "Split": move_by_split,
    "Squeeze": move_by_reshape,
    "Transpose": move_by_transpose,
    "Unsqueeze": move_by_reshape,
}
"""Functions that carry the operators of `CARRIED` through the layout, by the operator's name."""


class Walk(BlockedValues):
    """Carries the operators of a subgraph, in topological order."""

    def carry(self, node: Node) -> None:
        """Compute the outputs of one node."""
        found = _CARRY[node.op](self, node)
        if found is None:
            self._leave(node)
            return
        for value, result in zip(node.outputs, found if isinstance(found, list) else [found], strict=True):
            self.set_blocked(value, result)

    def _leave(self, node: Node) -> None:
        """Apply the node as it is, to plain values."""
        inputs = tuple(None if value is None else self.plain(value) for value in node.inputs)
        results = self.op.apply(node.op, node.domain, dict(node.attrs), inputs, len(node.outputs))
        for value, result in zip(node.outputs, results, strict=True):
            self.set_plain(value, result)
