"""Bodies of If, Loop and Scan after a rewrite, put back into the node that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.attributes import AttrValue, RawAttr
from graph_rewrite.ir.constants import Constant, tensor_proto
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import digest
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.body_digests import opaque_signature
from graph_rewrite.onnx_files.body_views import BodyViews, Operand
from graph_rewrite.onnx_files.names import FreshNames, names_for_saving
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.onnx_files.subgraphs import captured_names

MOST_GROWTH = 32 << 20
"""Most bytes that one rewrite may add to a body: its weights lie in the model file, which takes 2 GB at most."""


@dataclass(frozen=True, slots=True)
class RewrittenNode:
    """A node with another body. `inputs` are values of the outer graph, and `captures` the names by which bodies read
    the last of them; `bodies` are the views of its bodies."""

    proto: onnx.NodeProto
    attrs: Mapping[str, AttrValue]
    inputs: tuple[int | None, ...]
    captures: tuple[str, ...]
    signature: str
    bodies: BodyViews


def with_body(node: Node, operands: Sequence[Operand], attribute: str, body: Graph) -> RewrittenNode:
    """Return a node with another body.

    Args:
        operands: type and constant of each value that the node reads.
        attribute: the attribute that holds the body.
        body: the view of the body (`onnx_files.body_views`) after rewrites.

    Raises:
        InvalidRewriteError: the body would become much larger.
    """
    assert node.proto is not None
    body = _named(body, digest(body.header.graph.name)[:6])
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    changed = next(one for one in proto.attribute if one.name == attribute)
    before = changed.ByteSize()
    _write(body, frozenset(node.captures), changed.g)
    if changed.ByteSize() > before + MOST_GROWTH:
        raise InvalidRewriteError(f"the body of {node.op} would grow by more than {MOST_GROWTH >> 20} MiB")
    captures = captured_names(proto)
    explicit = len(node.inputs) - len(node.captures)
    outer = dict(zip(node.captures, node.inputs[explicit:], strict=True))
    inputs = (*node.inputs[:explicit], *(outer[name] for name in captures))
    read = dict(zip(node.inputs, operands, strict=True))
    known = node.bodies.views if isinstance(node.bodies, BodyViews) and node.bodies.holds(operands) else {}
    return RewrittenNode(
        proto,
        {**node.attrs, attribute: RawAttr(changed.SerializeToString(deterministic=True))},
        inputs,
        captures,
        opaque_signature(proto, captures, ""),
        BodyViews(tuple(read[value] for value in inputs), {**known, attribute: body}),
    )


def _named(body: Graph, scope: str) -> Graph:
    """Return a body in which every value has a name. Those that rewrites brought in end in the digest of their scope,
    so that they differ from all names of the graphs around."""
    names, fresh = FreshNames(frozenset(body.names.values())), dict[int, str]()
    results = set(zip(body.outputs, body.output_names, strict=True))
    for value, name in names_for_saving(body).values.items():
        if value in body.names or not name or (value, name) in results:
            continue
        fresh[value] = names.like(name, f"@{scope}")
    return replace(body, names={**body.names, **fresh}, memo=GraphMemo())


def _write(body: Graph, captured: frozenset[str], out: onnx.GraphProto) -> None:
    """Write a view of a body over the body, without the outer constants that it reads."""

    def tensor(name: str, constant: Constant) -> onnx.TensorProto:
        return onnx.TensorProto(name=name) if name in captured else tensor_proto(constant, name)

    made = to_proto(body, tensor).graph
    results = {info.name for info in out.output}
    for field in ("node", "initializer", "value_info"):
        out.ClearField(field)
    for initializer in made.initializer:
        if initializer.name in captured:
            continue
        if initializer.name in results:
            # A result must be computed in the body.
            value = onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=initializer)
            out.node.add(op_type="Constant", output=[initializer.name], attribute=[value])
        else:
            out.initializer.append(initializer)
    out.node.extend(made.node)
