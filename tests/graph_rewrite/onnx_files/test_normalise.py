"""Normalisation: the same results in one operator set, with nothing left that could be computed before."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import helper

from graph_rewrite import Graph, load
from graph_rewrite.onnx_files.normalisation import INTERNAL_OPSET, SymbolicShapeError, normalise
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.operators.known import RANDOM
from tests.graph_rewrite import sample_models
from tests.graph_rewrite.onnx_files.test_loading import backend_cases, bits, run
from tests.graph_rewrite.sample_models import feeds, parsed, weights
from tests.invariants import assert_same_outputs, assert_well_formed, snapshot
from tests.strategies import feeds_for, models

Array = np.ndarray[Any, Any]


def normal(text: str, *tensors: onnx.TensorProto, opset: int = 23, **shapes: tuple[int, ...]) -> Graph:
    """Normalised, checked to give the same results as before."""
    model = parsed(text, *tensors, opset=opset)
    graph = load(model, shapes)
    before = snapshot(graph)
    result, _ = normalise(graph)
    assert snapshot(graph) == before
    assert_well_formed(result)
    inputs = feeds(model)
    assert_close(run(to_proto(graph), inputs), run(to_proto(result), inputs))
    return result


def assert_close(expected: list[Any], found: list[Any], what: str = "") -> None:
    assert len(expected) == len(found), what
    for a, b in zip(expected, found, strict=True):
        if isinstance(a, np.ndarray) and a.dtype.kind == "f":
            assert (a.dtype, a.shape) == (b.dtype, b.shape), what
            rtol = 2e-3 if a.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(b, a, rtol=rtol, atol=rtol, err_msg=what)
        else:
            assert bits(a) == bits(b), what


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.order()]


class TestFolding:
    def test_subgraphs_of_constants(self) -> None:
        graph = normal(
            "(float[3] x) => (float[3] y) { a = Constant<value_floats = [1.0, 2.0, 3.0]>()"
            " b = Constant<value_int = 2>()  c = Cast<to = 1>(b)  d = Mul(a, c)  e = Exp(d)  y = Add(x, e) }"
        )
        assert ops(graph) == ["Add"]
        assert len(graph.constants) == 1

    def test_shapes_of_values_are_constants(self) -> None:
        graph = normal(
            "(float[2,3,4] x) => (float[6,4] y, int64[] n, int64[2] t) {"
            " s = Shape(x)  i = Constant<value_ints = [0, 1]>()  f = Gather(s, i)  r = ReduceProd<keepdims = 1>(f)"
            " l = Shape<start = -1>(x)  w = Concat<axis = 0>(r, l)  y = Reshape(x, w)"
            " n = Size(x)  t = Shape<start = 1, end = 17>(x) }"
        )
        assert ops(graph) == ["Reshape"]

    def test_a_mask_of_constants_as_exporters_leave_it(self) -> None:
        """Ones of the input's shape, expanded to every head and made additive."""
        graph = normal(
            "(int64[1,8] ids, float[1,2,8,8] scores) => (float[1,2,8,8] y) {"
            " s = Shape(ids)  zero = Constant<value_int = 0>()  one = Constant<value_int = 1>()"
            " n = Gather(s, one)  axes = Constant<value_ints = [0]>()  nu = Unsqueeze(n, axes)"
            " bu = Constant<value_ints = [1]>()  to = Concat<axis = 0>(bu, nu)"
            " ones = ConstantOfShape<value = float[1] {1.0}>(to)  ax = Constant<value_ints = [1, 2]>()"
            " four = Unsqueeze(ones, ax)  h = Constant<value_ints = [1, 1, -1, 1]>()"
            " wide = Concat<axis = 0>(bu, bu, nu, nu)  full = Expand(four, wide)"
            " c = Constant<value_float = 1.0>()  d = Sub(c, full)  big = Constant<value_float = -10000.0>()"
            " mask = Mul(d, big)  y = Add(scores, mask) }"
        )
        assert ops(graph) == ["Add"]
        assert [str(constant.type) for constant in graph.constants.values()] == ["float[1,1,8,8]"]

    def test_weights_are_moved_without_being_read(self) -> None:
        big = weights("w", 200, 300)
        graph = normal("(float[2,200] x) => (float[2,300] y) { t = Transpose<perm = [1, 0]>(w)"
                       " u = Transpose<perm = [1, 0]>(t)  y = MatMul(x, u) }", big)  # fmt: skip
        (constant,) = graph.constants.values()
        assert constant.tensor is not None, "two moves that undo each other give the loaded weight"
        assert ops(graph) == ["MatMul"]

    def test_outputs_that_are_constants(self) -> None:
        graph = normal("(float[2] x) => (float[2] y, float[2] z) { y = Neg(w)  z = Add(x, w) }", weights("w", 2))
        assert ops(graph) == ["Add"]

    def test_results_much_larger_than_their_inputs_stay(self) -> None:
        text = (
            "(float[2000,300] x) => (float[2000,300] y) <int64[2] s = {2000, 300}> { t = Expand(w, s)  y = Add(x, t) }"
        )
        model = parsed(text, weights("w", 300))
        graph, report = normalise(load(model))
        assert ops(graph) == ["Expand", "Add"]
        assert any("Expand over constants is not folded" in note and "larger" in note for note in report.notes)
        small = normal(text.replace("2000", "20"), weights("w", 300))
        assert ops(small) == ["Add"]

    @pytest.mark.parametrize(
        ("text", "kept"),
        [
            ("t = RandomNormal<shape = [3]>()", "RandomNormal"),
            ("t = RandomUniformLike(w)", "RandomUniformLike"),
            ("t = com.microsoft.QuickGelu(w)", "QuickGelu"),
        ],
    )
    def test_what_is_never_folded(self, text: str, kept: str) -> None:
        model = parsed(f"(float[3] x) => (float[3] y) {{ {text}  y = Add(x, t) }}", weights("w", 3))
        assert ops(normalise(load(model))[0]) == [kept, "Add"]

    def test_overridable_and_sparse_initializers_and_quantised_weights_stay(self) -> None:
        graph, report = normalise(load(parsed("(float[2] x, float[2] w) => (float[2] y) { t = Neg(w)  y = Add(x, t) }",
                                              weights("w", 2))))  # fmt: skip
        assert ops(graph) == ["Neg", "Add"]
        assert "1 initializers are also inputs: a caller may override them, so they are not folded" in report.notes
        assert ops(normalise(load(sample_models.packed_integers()))[0]) == ["DequantizeLinear", "Add"]
        assert ops(normalise(load(sample_models.sparse()))[0]) == ["Constant", "MatMul", "Add"]

    def test_what_the_reference_cannot_compute_is_left_and_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(*_: object) -> None:
            raise ZeroDivisionError("no luck")

        monkeypatch.setattr("onnx.reference.ReferenceEvaluator.run", fails)
        model = parsed("(float[3] x) => (float[3] y) { t = Cos(w)  y = Add(x, t) }", weights("w", 3))
        graph, report = normalise(load(model))
        assert ops(graph) == ["Cos", "Add"]
        assert "Cos over constants is not folded: ZeroDivisionError: no luck" in report.notes


class TestMerging:
    def test_equal_expressions_are_computed_once(self) -> None:
        graph = normal(
            "(float[3] x) => (float[3] y, float[3] z) { a = Add(x, v)  b = Add(x, w)  c = Exp(a)  d = Exp(b)"
            " y = Mul(c, d)  z = Exp(a) }",
            weights("v", 3),
            weights("w", 3),
        )
        assert ops(graph) == ["Add", "Exp", "Mul"]
        assert len(graph.constants) == 1

    def test_not_where_results_may_differ(self) -> None:
        graph = normal_random = load(
            parsed("(float[3] x) => (float[3] y) { a = RandomNormalLike(x)  b = RandomNormalLike(x)  y = Add(a, b) }")
        )
        assert ops(normalise(normal_random)[0]) == ops(graph)
        custom = load(parsed("(float[3] x) => (float[3] y) { a = custom.T(x)  b = custom.T(x)  y = Add(a, b) }"))
        assert ops(normalise(custom)[0]) == ["T", "T", "Add"]

    def test_not_where_other_outputs_are_left_out(self) -> None:
        pool = "MaxPool<kernel_shape = [2]>(x)"
        text = (
            f'(float[1,1,4] x) => (float[1,1,3] a, float[1,1,3] b, int64[1,1,3] i) {{ a, "" = {pool}  b, i = {pool} }}'
        )
        assert ops(normal(text)) == ["MaxPool", "MaxPool"]

    def test_not_where_a_subgraph_knows_the_value_by_name(self) -> None:
        model = sample_models.conditional()
        model.graph.node.insert(0, helper.make_node("Relu", ["x"], ["twin"]))
        model.graph.node[-1].input[1] = "twin"
        graph, _ = normalise(load(model))
        assert_close(run(model, feeds(model)), run(to_proto(graph), feeds(model)))

    def test_random_operators_are_those_that_onnx_calls_so(self) -> None:
        found = set()
        for schema in onnx.defs.get_all_schemas():
            determinism = getattr(schema, "node_determinism", None)
            if not schema.domain and "NonDeterministic" in str(determinism):
                found.add(schema.name)
        with_subgraphs = {"If", "Loop", "Scan", "SequenceMap"}
        assert found - with_subgraphs - {"AffineGrid"} == RANDOM  # AffineGrid reads no chance, whatever onnx says


class TestDeadNodes:
    def test_what_no_output_needs_goes(self) -> None:
        model = sample_models.spare_initializer()
        graph, report = normalise(load(model))
        assert (ops(graph), report.removed, graph.constants) == (["Neg"], 1, {})

    def test_what_we_do_not_know_stays(self) -> None:
        model = parsed("(float[3] x) => (float[3] y) { a = Neg(x)  b = custom.Log(a)  y = Abs(x) }")
        assert sorted(ops(normalise(load(model))[0])) == ["Abs", "Log", "Neg"]


class TestSymbolicShapes:
    def test_the_message_names_the_inputs_and_shows_what_to_do(self) -> None:
        inputs = "(int64[batch,seq] ids, float[batch,3,height,224] image, float[4] x)"
        graph = load(parsed(f"{inputs} => (int64[batch,seq] y) {{ y = Identity(ids) }}"))
        with pytest.raises(SymbolicShapeError) as caught:
            normalise(graph)
        message = str(caught.value)
        assert "ids [batch, seq]; image [batch, 3, height, 224]" in message
        assert "--shape ids:1,128 --shape image:1,3,224,224" in message

    def test_inputs_without_any_shape(self) -> None:
        model = parsed("(float[2] x) => (float[2] y) { y = Relu(x) }")
        model.graph.input[0].type.tensor_type.ClearField("shape")
        with pytest.raises(SymbolicShapeError, match=r"x \[\]"):
            normalise(load(model))

    def test_inputs_that_are_no_tensors_are_no_matter(self) -> None:
        model = parsed("(seq(float[2]) s) => (int64[] y) { y = SequenceLength(s) }")
        assert ops(normalise(load(model))[0]) == ["SequenceLength"]

    def test_fixed_shapes(self) -> None:
        text = "(float[batch,4] x) => (float[batch,2,2] y) <int64[3] s = {0, 2, 2}> { y = Reshape(x, s) }"
        graph, _ = normalise(load(parsed(text), {"x": (3, 4)}))
        assert [str(graph.types[value]) for value in graph.outputs] == ["float[3,2,2]"]


def test_the_report_reads_well() -> None:
    text = "(float[3] x) => (float[3] y) { a = Neg(w)  b = Add(x, a)  c = Add(x, a)  d = Exp(x)  y = Max(b, c) }"
    model = parsed(text, weights("w", 3), opset=20)
    _, report = normalise(load(model))
    assert str(report) == "opset 20 -> 23; nodes folded: 1, merged: 1, removed: 1"
    _, report = normalise(load(sample_models.overridable()))
    assert str(report).splitlines()[0] == "opset 23; nodes folded: 0, merged: 0, removed: 0"
    assert str(report).splitlines()[1].startswith("note: 1 initializers are also inputs")


def test_a_broad_sample_of_operators_keeps_its_results() -> None:
    compared = 0
    for name, model, inputs in itertools.islice(backend_cases(), None, None, 2):
        try:
            graph, report = normalise(load(model))
        except SymbolicShapeError:
            continue
        if "random" in name or "bernoulli" in name:
            continue
        assert report.to_opset >= INTERNAL_OPSET or any("stays" in note for note in report.notes), name
        try:
            expected = run(model, inputs)
        except Exception:  # an operator that this version of ONNX Runtime lacks
            continue
        assert_close(expected, run(to_proto(graph), inputs), name)
        compared += 1
    assert compared > 200


@settings(max_examples=60)
@given(model=models())
def test_random_models_keep_their_results_and_are_typed_completely(model: onnx.ModelProto) -> None:
    graph = load(model)
    result, _ = normalise(graph)
    assert_well_formed(result)
    assert None not in result.types.values()
    inputs = feeds_for(model)
    assert_same_outputs(run_graph(graph, inputs), result, inputs, 1e-6, "normalised")
    again, report = normalise(result)
    assert again.hash == result.hash
    assert (report.folded, report.merged, report.removed) == (0, 0, 0)
