"""Digests of nodes with subgraphs: of their structure, not of names and order."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest

from graph_rewrite import load
from graph_rewrite.onnx_files.body_digests import opaque_signature
from graph_rewrite.onnx_files.subgraphs import captured_names
from tests.graph_rewrite.sample_models import parsed

_IF = """(bool c, float[4] x, float[4] z) => (float[4] y) {
    t = Exp(x)
    y = If(c) <
        then_branch = p () => (float[4] u) <float[1] k = {2.0}> {
            r = Abs(t)  s = Neg(z)  m = Mul(r, k)  u = Sub(m, s) },
        else_branch = q () => (float[4] v) { v = If(c) <
            then_branch = g () => (float[4] d) { d = Exp(t) },
            else_branch = h () => (float[4] e) { e = Abs(z) }> }> }"""


def model() -> onnx.ModelProto:
    return parsed(_IF)


def digest_of(proto: onnx.ModelProto) -> str:
    return load(proto).hash


def then_branch(proto: onnx.ModelProto) -> onnx.GraphProto:
    return proto.graph.node[1].attribute[0].g


def renamed(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    for node in graph.node:
        node.name = f"other {node.name}"
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for named in (*graph.output, *graph.initializer):
        named.name = names.get(named.name, named.name)


def test_names_inside_do_not_count() -> None:
    other = model()
    renamed(then_branch(other), {"r": "r1", "s": "s1", "m": "m1", "u": "u1", "k": "k1"})
    assert digest_of(other) == digest_of(model())


def test_the_order_of_nodes_does_not_count() -> None:
    # Both values are still read in the same order, or the operands of the node would be in another.
    other = parsed(_IF.replace("s = Neg(z)  m = Mul(r, k)", "m = Mul(r, k)  s = Neg(z)"))
    assert digest_of(other) == digest_of(model())


CHANGES: dict[str, Callable[[onnx.GraphProto], object]] = {
    "operator": lambda body: setattr(body.node[0], "op_type", "Neg"),
    "wiring": lambda body: body.node[3].input.__setitem__(0, "r"),
    "weight": lambda body: body.initializer[0].float_data.__setitem__(0, 3.0),
    "attribute": lambda body: body.node[0].attribute.append(onnx.helper.make_attribute("alpha", 0.5)),
    "output": lambda body: setattr(body.output[0], "name", "m"),
    "a node that nothing reads": lambda body: body.node.append(onnx.helper.make_node("Exp", ["r"], ["w"])),
    "domain": lambda body: setattr(body.node[0], "domain", "custom"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_everything_else_counts(change: str) -> None:
    other = model()
    CHANGES[change](then_branch(other))
    assert digest_of(other) != digest_of(model())


def test_inner_subgraphs_count() -> None:
    assert digest_of(parsed(_IF.replace("d = Exp(t)", "d = Exp(z)"))) != digest_of(model())
    assert digest_of(parsed(_IF.replace("e = Abs(z)", "e = Neg(z)"))) != digest_of(model())


def test_a_body_that_reads_a_value_too_early_has_a_digest_of_its_bytes() -> None:
    other = model()
    nodes = list(then_branch(other).node)
    del then_branch(other).node[:]
    then_branch(other).node.extend([nodes[3], *nodes[:3]])
    signature = signature_of(other)
    assert signature == signature_of(other)
    assert signature != signature_of(model())


def signature_of(proto: onnx.ModelProto) -> str:
    node = proto.graph.node[1]
    return opaque_signature(node, captured_names(node), "")
