"""Nodes: applications of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from graph_rewrite.ir.attributes import AttrValue, operator_signature


class Node:
    """One operator application. `proto` is the node as loaded (kept for what we don't model), `opaque` forbids rules.

    `captures` are names that subgraphs of an opaque node read from outside; the values they stand for are the last
    of its `inputs`, so that order, cycles and consumers take them into account. `origin` says where an inserted node
    comes from: the name of the loaded node that was rewritten first, and the rule ("" for the same node in another
    opset). A saved model names it by that. `bodies` is what `onnx_files.body_views` knows of the subgraphs of an opaque
    node, once it was asked.
    """

    __slots__ = (
        "attrs", "bodies", "captures", "domain", "id", "inputs", "op", "opaque", "origin", "outputs", "proto",
        "signature",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        op: str,
        inputs: Sequence[int | None],
        outputs: Sequence[int],
        attrs: Mapping[str, AttrValue] | None = None,
        domain: str = "",
        proto: onnx.NodeProto | None = None,
        opaque: bool = False,
        signature: str | None = None,
        captures: Sequence[str] = (),
        origin: tuple[str, str] | None = None,
    ) -> None:
        self.id, self.op, self.domain = id, op, domain
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.attrs: Mapping[str, AttrValue] = dict(attrs or {})
        self.proto, self.opaque, self.captures = proto, opaque, tuple(captures)
        self.signature = signature or operator_signature(op, domain, self.attrs)
        self.origin = origin
        self.bodies: object = None

    def with_inputs(self, inputs: Sequence[int | None]) -> Node:
        return Node(
            self.id, self.op, inputs, self.outputs, self.attrs, self.domain, self.proto, self.opaque, self.signature,
            self.captures, self.origin,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Node({self.id}: {self.op}{list(self.inputs)} -> {list(self.outputs)})"
