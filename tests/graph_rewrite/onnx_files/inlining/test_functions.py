"""Calls of a model's functions are written out where that is sure, and the result computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

from graph_rewrite import Rewriter, load
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.inlining import functions as module
from graph_rewrite.onnx_files.inlining.functions import calls_written_out, written_out
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.onnx_files.saving import to_proto
from tests.graph_rewrite import sample_models

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
HEAD = '<ir_version: 10, opset_import: ["" : 20, "own" : 1]>'
FUNCTION = '<domain: "own", opset_import: ["" : 20, "own" : 1]>'


def parsed(body: str, *functions: str, result: str = "float[2,3] y") -> onnx.ModelProto:
    """A model from x to y that calls functions of the domain `own`."""
    text = " ".join(f"{FUNCTION} {function}" for function in functions)
    return onnx.parser.parse_model(f"{HEAD} main (float[2,3] x) => ({result}) {{ {body} }} {text}")


def outputs(model: onnx.ModelProto) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return list(ort.InferenceSession(model.SerializeToString(), options).run(None, {"x": X}))


def operators(graph: Graph) -> list[str]:
    return [f"{node.domain}.{node.op}".lstrip(".") for node in graph.order()]


TWICE = "twice (a) => (b) { b = Add(a, a) }"
MODELS = {
    "one call": parsed("y = own.twice(x)", TWICE),
    "calls in a row": parsed("s = own.twice(x)  t = own.twice(s)  y = own.twice(t)", TWICE),
    "calls within calls": parsed(
        "y = own.outer(x)", TWICE, "outer (a) => (c) { b = own.twice(a)  t = Exp(b)  c = own.twice(t) }"
    ),
    "an attribute of the call": parsed(
        "s = own.leaky<slope = 0.5>(x)  y = own.leaky<slope = 0.25>(s)",
        "leaky <slope>(a) => (b) { b = LeakyRelu<alpha: float = @slope>(a) }",
    ),
    "an attribute handed on": parsed(
        "y = own.outer<slope = 0.5>(x)",
        "leaky <slope>(a) => (b) { b = LeakyRelu<alpha: float = @slope>(a) }",
        "outer <slope>(a) => (c) { b = own.leaky<slope: float = @slope>(a)  c = Neg(b) }",
    ),
    "a default of an attribute": parsed(
        "y = own.leaky(x)", "leaky <slope: float = 0.75>(a) => (b) { b = LeakyRelu<alpha: float = @slope>(a) }"
    ),
    "two results": parsed(
        "s, t = own.both(x)  y = Sub(s, t)", "both (a) => (b, c) { b = Exp(a)  c = Neg(b) }"
    ),
    "names that stand in the model, too": parsed(
        "a = Exp(x)  b = own.outer(a)  y = Add(a, b)", "outer (x) => (y) { a = Neg(x)  y = Tanh(a) }"
    ),
    "a constant inside": parsed(
        "y = own.shifted(x)", "shifted (a) => (b) { c = Constant<value = float {2.0}>()  b = Add(a, c) }"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_the_operators_stand_in_place_of_the_calls(name: str) -> None:
    model = MODELS[name]
    expected = outputs(model)
    graph, count = written_out(load(model))
    assert count == sum(node.domain == "own" for node in model.graph.node)
    assert not any(node.opaque for node in graph.nodes.values())
    assert not graph.header.functions
    assert graph.is_typed()
    for written in (to_proto(graph), to_proto(normalise(load(model))[0])):
        onnx.checker.check_model(written, full_check=True)
        for found, wanted in zip(outputs(written), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (parsed("s = own.both(x)  y = Relu(s)", "both (a) => (b, c) { b = Exp(a)  c = Neg(b) }"), np.exp(X)),
        (parsed("s, t = own.same(x)  y = Add(s, t)", "same (a) => (a, b) { b = Exp(a) }"), X + np.exp(X)),
        (parsed("s, t = own.same(x)  y = Add(s, t)", "same (a) => (b, b) { b = Exp(a) }"), 2 * np.exp(X)),
    ],
    ids=["a result that is not asked for", "a result that is an operand", "a result twice"],
)
def test_calls_that_onnx_runtime_refuses(model: onnx.ModelProto, expected: np.ndarray) -> None:
    graph, count = written_out(load(model))
    assert count == 1
    np.testing.assert_allclose(outputs(to_proto(graph))[0], expected, rtol=1e-6)


def test_functions_that_call_each_other_with_attributes() -> None:
    model = sample_models.functions()
    expected = outputs(model)
    graph, report = normalise(load(model))
    assert operators(graph) == ["Add", "LeakyRelu", "Add"]
    assert report.notes == ("2 calls of functions are written out",)
    np.testing.assert_array_equal(outputs(to_proto(graph))[0], expected[0])


def test_rules_reach_the_operators() -> None:
    body = "turned (a) => (c) { b = Transpose<perm = [1, 0]>(a)  c = Transpose<perm = [1, 0]>(b) }"
    graph = normalise(load(parsed("t = own.turned(x)  y = Exp(t)", body)))[0]
    assert "ComposeTransposes" in {candidate.rule for candidate in Rewriter().candidates(graph)}


def test_names_tell_where_operators_come_from() -> None:
    model = parsed("y = own.outer(x)", "outer (a) => (c) { b = Exp(a)  c = Neg(b) }")
    model.graph.node[0].name = "layer3"
    nodes = to_proto(written_out(load(model))[0]).graph.node
    assert [node.name for node in nodes] == ["layer3/Exp", "layer3/Neg"]
    assert [list(node.output) for node in nodes] == [["layer3/b"], ["y"]]


def with_opset(version: int) -> onnx.ModelProto:
    model = MODELS["one call"].__deepcopy__()
    model.functions[0].opset_import[0].version = version
    return model


STAY = {
    "another operator set": with_opset(18),
    "subgraphs": parsed(
        "y = own.chosen(x)",
        """chosen (a) => (b) { c = Constant<value = bool {1}>()  b = If (c) <
            then_branch = p () => (float[2,3] u) { u = Exp(a) },
            else_branch = q () => (float[2,3] v) { v = Neg(a) }> }""",
    ),
    "a value that nothing defines": parsed("y = own.odd(x)", "odd (a) => (b) { b = Add(a, nowhere) }"),
    "a value that is defined twice": parsed("y = own.odd(x)", "odd (a) => (b) { b = Exp(a)  b = Neg(a) }"),
    "a result that nothing computes": parsed("y = own.odd(x)", "odd (a) => (b) { c = Exp(a) }"),
    "a function that calls itself": parsed(
        "y = own.odd(x)", "odd (a) => (b) { c = Exp(a)  b = own.odd(c) }"
    ),
    "two functions that call each other": parsed(
        "y = own.one(x)", "one (a) => (b) { b = own.other(a) }", "other (a) => (b) { b = own.one(a) }"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STAY)
def test_other_calls_stay(name: str) -> None:
    graph = load(STAY[name])
    assert written_out(graph) == (graph, 0)
    assert calls_written_out(graph) == set()


def test_functions_that_stand_for_more_than_memory_holds_stay() -> None:
    doubling = [f"f{i} (a) => (c) {{ b = own.f{i + 1}(a)  c = own.f{i + 1}(b) }}" for i in range(60)]
    graph = load(parsed("y = own.f0(x)", *doubling, "f60 (a) => (b) { b = Neg(a) }"))
    assert written_out(graph) == (graph, 0)


def test_a_long_chain_of_functions_is_no_depth_that_breaks() -> None:
    chain = [f"f{i} (a) => (b) {{ b = own.f{i + 1}(a) }}" for i in range(3000)]
    graph = load(parsed("y = own.f0(x)", *chain, "f3000 (a) => (b) { b = Neg(a) }"))
    assert written_out(graph) == (graph, 0)


def test_as_many_calls_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 5)
    model = parsed(
        "s = own.three(x)  t = own.three(s)  y = own.two(t)",
        "three (a) => (d) { b = Exp(a)  c = Neg(b)  d = Tanh(c) }",
        "two (a) => (c) { b = Abs(a)  c = Neg(b) }",
    )
    graph, count = written_out(load(model))
    assert count == 2
    assert operators(graph) == ["Exp", "Neg", "Tanh", "own.three", "Abs", "Neg"]
    assert [function.name for function in graph.header.functions] == ["three"]
    for found, wanted in zip(outputs(to_proto(graph)), outputs(model), strict=True):
        np.testing.assert_array_equal(found, wanted)
