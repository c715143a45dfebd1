"""Branches of If that are always taken stand in place of it, and what is left computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from graph_rewrite import Rewriter, load
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.onnx_files.saving import to_proto
from tests.graph_rewrite.sample_models import parsed, weights

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def outputs(model: onnx.ModelProto) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return list(ort.InferenceSession(model.SerializeToString(), options).run(None, {"x": X}))


def operators(graph: Graph) -> list[str]:
    return [node.op for node in graph.order()]


def model(body: str, head: str = "(float[2,3] x) => (float[2,3] y)") -> onnx.ModelProto:
    return parsed(f"{head} <bool yes = {{1}}, bool no = {{0}}> {{ {body} }}", weights("w", 2, 3), opset=20)


ODD = "then_branch = p () => (float[2,3] u) { u = Exp(x) }, else_branch = q () => (float[2,3] v) { v = Neg(x) }"
MODELS = {
    "a constant that holds": (f"y = If(yes) <{ODD}>", ["Exp"]),
    "a constant that does not": (f"y = If(no) <{ODD}>", ["Neg"]),
    "a condition on shapes": (
        f"s = Shape(x)  i = Constant<value = int64[1] {{0}}>()  n = Gather(s, i)"
        f"  c = Constant<value = int64[1] {{2}}>()  e = Equal(n, c)  y = If(e) <{ODD}>", ["Exp"],
    ),
    "a captured value": (
        "t = Tanh(x)  y = If(yes) <then_branch = p () => (float[2,3] u) { u = Add(t, w) },"
        " else_branch = q () => (float[2,3] v) { v = Neg(t) }>", ["Tanh", "Add"],
    ),
    "a branch that is a captured value": (
        "t = Tanh(x)  s = If(yes) <then_branch = p () => (float[2,3] r) { r = Identity(t) },"
        " else_branch = q () => (float[2,3] v) { v = Neg(t) }>  y = Exp(s)", ["Tanh", "Identity", "Exp"],
    ),
    "two results": (
        """s, t = If(no) <then_branch = p () => (float[2,3] a, float[2,3] b) { a = Exp(x)  b = Neg(x) },
            else_branch = q () => (float[2,3] c, float[2,3] d) { c = Abs(x)  d = Tanh(c) }>  y = Add(s, t)""",
        ["Abs", "Tanh", "Add"],
    ),
    "one If behind another": (
        f"""c = If(yes) <then_branch = p () => (bool u) {{ u = Not(yes) }},
            else_branch = q () => (bool v) {{ v = Not(no) }}>  y = If(c) <{ODD}>""", ["Neg"],
    ),
    "names that stand outside, too": (
        "u = Tanh(x)  s = If(yes) <then_branch = p () => (float[2,3] r) { m = Exp(u)  r = Abs(m) },"
        " else_branch = q () => (float[2,3] v) { v = Neg(u) }>  m = Neg(s)  y = Add(m, u)",
        ["Tanh", "Exp", "Abs", "Neg", "Add"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_the_branch_stands_in_place_of_the_if(name: str) -> None:
    body, expected = MODELS[name]
    original = model(body)
    graph, report = normalise(load(original))
    assert operators(graph) == expected
    assert any("always taken" in note for note in report.notes)
    assert graph.is_typed()
    written = to_proto(graph)
    onnx.checker.check_model(written, full_check=True)
    for found, wanted in zip(outputs(written), outputs(original), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_weights_of_the_branch_become_weights_of_the_model() -> None:
    original = model(f"y = If(yes) <{ODD}>")
    branch = original.graph.node[0].attribute[0].g
    branch.initializer.append(weights("inner", 2, 3, seed=4))
    branch.node[0].CopyFrom(onnx.helper.make_node("Mul", ["x", "inner"], ["u"]))
    graph = normalise(load(original))[0]
    assert operators(graph) == ["Mul"]
    np.testing.assert_array_equal(outputs(to_proto(graph))[0], outputs(original)[0])


def test_shapes_behind_it_are_known_then() -> None:
    """As exporters write a squeeze whose axis may have another size; rules reach what follows."""
    original = model(
        """s = Shape(x)  i = Constant<value = int64[1] {0}>()  n = Gather(s, i)  o = Constant<value = int64[1] {1}>()
        e = Equal(n, o)  q = If(e) <then_branch = p () => (float[k] u) { u = ReduceSum<keepdims = 0>(x, i) },
            else_branch = q () => (float[m,n] v) { v = Identity(x) }>
        a = Transpose<perm = [1, 0]>(q)  y = Transpose<perm = [1, 0]>(a)"""
    )
    graph = normalise(load(original))[0]
    assert graph.is_typed()
    assert "ComposeTransposes" in {candidate.rule for candidate in Rewriter().candidates(graph)}
    np.testing.assert_array_equal(outputs(to_proto(graph))[0], outputs(original)[0])


STAY = {
    "a condition of the caller": parsed(
        "(bool c, float[2,3] x) => (float[2,3] y) { y = If(c) <" + ODD + "> }", opset=20
    ),
    "an If within the branch": model(
        f"y = If(yes) <then_branch = o () => (float[2,3] z) {{ z = If(no) <{ODD}> }},"
        " else_branch = r () => (float[2,3] k) { k = Abs(x) }>"
    ),
    "symbolic dimensions": model(
        "s = Shape(x)  i = Constant<value = int64[1] {0}>()  n = Gather(s, i)  c = Constant<value = int64[1] {2}>()"
        "  e = Equal(n, c)  y = If(e) <then_branch = p () => (float[N,3] u) { u = Exp(x) },"
        " else_branch = q () => (float[N,3] v) { v = Neg(x) }>", "(float[N,3] x) => (float[N,3] y)",
    ),
    "an operator behind it that cannot take what comes": model(
        """o = Constant<value = int64[1] {1}>()  z = Constant<value = int64 {0}>()  n = Constant<value = int64 {1}>()
        s = If(yes) <then_branch = p () => (int64[k] u) { u = Identity(o) },
            else_branch = q () => (int64[m] v) { v = Abs(o) }>
        t = Range(z, s, n)  c = Cast<to = 1>(t)  y = Add(x, c)"""
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STAY)
def test_others_stay(name: str) -> None:
    graph, report = normalise(load(STAY[name], {"x": (2, 3)} if name == "symbolic dimensions" else None))
    assert "If" in operators(graph)
    assert not any("always taken" in note for note in report.notes)
