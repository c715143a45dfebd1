"""Conversion to a newer operator set, node by node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graph_rewrite import load
from graph_rewrite.onnx_files.normalisation import INTERNAL_OPSET, normalise
from graph_rewrite.onnx_files.opset import ConversionError, convert_opset
from graph_rewrite.onnx_files.saving import to_proto
from tests.graph_rewrite import sample_models
from tests.graph_rewrite.onnx_files.test_loading import run
from tests.graph_rewrite.onnx_files.test_normalise import assert_close, normal
from tests.graph_rewrite.sample_models import feeds, parsed, weights


class TestOpset:
    @pytest.mark.parametrize("opset", [7, 9, 11, 12, 13, 15, 17, 18, 20, 22])
    def test_an_image_classifier_of_any_age(self, opset: int) -> None:
        reduce = "ReduceMean<axes = [2, 3], keepdims = 1>(q)" if opset < 18 else "ReduceMean<keepdims = 1>(q, axes)"
        text = f"""(float[1,2,6,6] x) => (float[1,3] y) <int64[2] axes = {{2, 3}}, int64[2] to = {{1, 4}}> {{
            c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w)  n = BatchNormalization(c, s, b, m, v)
            r = Relu(n)  p = MaxPool<kernel_shape = [2, 2]>(r)  q = AveragePool<kernel_shape = [3, 3]>(p)
            g = {reduce}  f = Reshape(g, to)  h = Gemm(f, k, o)  y = Softmax<axis = 1>(h)
        }}"""
        tensors = [weights("w", 4, 2, 3, 3), weights("k", 4, 3), weights("o", 3)]
        tensors += [numpy_helper.from_array(np.float32([1, 2, 3, 4]), name) for name in "sbmv"]
        graph = normal(text, *tensors, opset=opset)
        assert graph.opset == INTERNAL_OPSET
        assert None not in graph.types.values()
        onnx.checker.check_model(to_proto(graph), full_check=True)

    @pytest.mark.parametrize(
        ("opset", "text"),
        [
            (7, "t = Dropout<ratio = 0.3>(x)  u = Unsqueeze<axes = [0]>(t)  v = Squeeze<axes = [0]>(u)  y = Relu(v)"),
            (7, 't = Upsample<mode = "nearest", scales = [1.0, 2.0]>(x)  y = Slice<ends = [2, 4], starts = [0, 0]>(t)'),
            (10, "t = Clip<min = -1.0, max = 1.0>(x)  y = Pad<pads = [0, 0, 0, 0]>(t)"),
            (11, "s, t = Split<axis = 0>(x)  y = Concat<axis = 0>(t, s)"),
            (12, "t = Softmax<axis = 0>(x)  u = ReduceSum<axes = [1], keepdims = 1>(t)  y = Mul(u, x)"),
            (12, "s = Constant<value = float {0.5}>()  y = Pow(s, x)"),
            (17, "t = ReduceMax<axes = [1], keepdims = 1>(x)  y = Sub(x, t)"),
            (17, "s, t = Split<axis = 0>(x)  y = Concat<axis = 0>(t, s)"),
            (19, "t = Cast<to = 10>(x)  y = Cast<to = 1>(t)"),
        ],
    )  # fmt: skip
    def test_operators_that_changed(self, opset: int, text: str) -> None:
        assert normal(f"(float[2,4] x) => (float[2,4] y) {{ {text} }}", opset=opset).opset == INTERNAL_OPSET

    def test_nodes_that_did_not_change_are_kept_as_they_are(self) -> None:
        model = parsed(
            "(float[2,3] x) => (float[2,4] y) { t = MatMul(x, w)  y = Relu(t) }", weights("w", 3, 4), opset=20
        )
        model.graph.node[0].name = "first"
        model.graph.node[0].metadata_props.add(key="k", value="v")
        graph, report = normalise(load(model))
        saved = to_proto(graph)
        assert [node.SerializeToString() for node in saved.graph.node] == [
            node.SerializeToString() for node in model.graph.node
        ]
        assert (report.from_opset, report.to_opset) == (20, INTERNAL_OPSET)
        assert saved.opset_import[0].version == INTERNAL_OPSET
        assert saved.ir_version >= 11

    def test_large_weights_do_not_pass_through_the_converter(self) -> None:
        model = parsed("(float[2,600] x) => (float[2,600] y) { y = Pow(x, w) }", weights("w", 600), opset=11)
        original = load(model)
        converted = convert_opset(original, INTERNAL_OPSET)
        assert set(map(id, converted.constants.values())) == set(map(id, original.constants.values()))

    def test_newer_models_stay(self) -> None:
        model = parsed("(float[2] x) => (float[2] y) { y = Relu(x) }", opset=24)
        graph, report = normalise(load(model))
        assert (graph.opset, report.to_opset, report.notes) == (24, 24, ())

    @pytest.mark.parametrize(
        ("build", "opset", "note"),
        [
            (sample_models.conditional, 12, ""),
            (sample_models.functions, 18, ""),
            (sample_models.loop, 16, ""),
        ],
        ids=["conditional", "functions", "loop"],
    )
    def test_bodies_that_mean_the_same_are_kept_bit_by_bit(
        self, build: Callable[[], onnx.ModelProto], opset: int, note: str
    ) -> None:
        model = build()
        model.opset_import[0].version = opset
        for function in model.functions:  # in another operator set they stay functions
            function.opset_import[0].version = opset + 1
        graph, report = normalise(load(model))
        assert report.to_opset == INTERNAL_OPSET
        saved = to_proto(graph)
        opaque = [n for n in model.graph.node if n.op_type in ("If", "Loop") or n.domain == "local"]
        kept = [n for n in saved.graph.node if n.op_type in ("If", "Loop") or n.domain == "local"]
        assert [n.attribute for n in kept] == [n.attribute for n in opaque]
        assert list(saved.functions) == list(model.functions)
        assert_close(run(model, feeds(model)), run(saved, feeds(model)))

    def test_what_cannot_be_converted_keeps_its_operator_set_and_says_so(self) -> None:
        model = sample_models.conditional()
        model.opset_import[0].version = 12
        inner = model.graph.node[1].attribute[0].g.node[0]
        inner.CopyFrom(helper.make_node("ReduceSum", ["t"], [inner.output[0]], axes=[0], keepdims=1))
        graph, report = normalise(load(model))
        assert graph.opset == 12
        (note,) = [note for note in report.notes if "stays" in note]
        assert note.startswith("stays in opset 12: ReduceSum inside a subgraph or function changed between opsets 12")
        assert_close(run(model, feeds(model)), run(to_proto(graph), feeds(model)))

    def test_a_split_into_equal_parts_keeps_a_body_in_its_operator_set(self) -> None:
        """Since opset 18 the number of parts must be given where their sizes are not."""
        model = sample_models.conditional()
        model.opset_import[0].version = 17
        inner = model.graph.node[1].attribute[0].g.node[0]
        inner.CopyFrom(helper.make_node("Split", ["t"], [inner.output[0]], axis=0))
        graph, report = normalise(load(model))
        assert graph.opset == 17
        assert any(note.startswith("stays in opset 17: Split inside a subgraph") for note in report.notes)
        assert_close(run(model, feeds(model)), run(to_proto(graph), feeds(model)))

    def test_unknown_operators_are_named(self) -> None:
        graph = load(parsed("(float[2] x) => (float[2] y) { y = Nonsense(x) }", opset=20))
        with pytest.raises(ConversionError, match="Nonsense is no operator of opset 20"):
            convert_opset(graph, INTERNAL_OPSET)

    def test_foreign_operators_stay(self) -> None:
        graph = normal("(float[2] x) => (float[2] y) { t = com.microsoft.QuickGelu(x)  y = Relu(t) }", opset=18)
        assert graph.opset == INTERNAL_OPSET
