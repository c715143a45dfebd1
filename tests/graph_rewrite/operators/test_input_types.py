"""Inputs that are no tensors: their declared types, and models that cannot be fed."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from graph_rewrite import load
from graph_rewrite.errors import UserError
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.operators.input_types import SYMBOLIC_SIZE, element_shapes, element_types, require_feedable
from graph_rewrite.runtime.ort_worker.feeds import ELEMENTS
from tests.graph_rewrite.sample_models import parsed

REST = "=> (float[2] y) { y = Neg(x) }"


def test_declared_types_of_elements() -> None:
    graph = load(
        parsed(f"""(float[2] x, seq(int64[2,3]) s, optional(float[4]) o, optional(seq(string[1])) p,
        seq(float[n]) symbolic) {REST}""")
    )
    assert element_types(graph) == {
        "s": TensorType(TensorProto.INT64, (2, 3)), "o": TensorType(TensorProto.FLOAT, (4,)),
        "p": TensorType(TensorProto.STRING, (1,)), "symbolic": TensorType(TensorProto.FLOAT, (SYMBOLIC_SIZE,)),
    }  # fmt: skip
    assert element_shapes(graph) == {"s": (2, 3), "o": (4,), "p": (1,), "symbolic": (SYMBOLIC_SIZE,)}


def unranked() -> onnx.ModelProto:
    model = parsed(f"(float[2] x, seq(float[2]) s) {REST}")
    model.graph.input[1].CopyFrom(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (unranked(), "'s' is a sequence or an optional value whose tensors have no declared shape"),
        (parsed(f"(float[2] x, seq(map(int64, float)) s) {REST}"), "'s' is neither a tensor nor"),
        (parsed(f"(float[2] x, seq(seq(float[2])) s) {REST}"), "'s' is neither a tensor nor"),
        (parsed(f"(float[2] x, complex64[2] s) {REST}"), "'s' has elements of type complex64"),
        (parsed("(bfloat16[2] x, string[2] s) => (bfloat16[2] y) { y = Neg(x) }"), "output 'y' is of bfloat16"),
    ],
)
def test_models_that_cannot_be_fed(model: onnx.ModelProto, reason: str) -> None:
    with pytest.raises(UserError, match="the model cannot be run, and so not be measured") as refusal:
        require_feedable(load(model))
    assert reason in str(refusal.value)


def test_models_that_can() -> None:
    require_feedable(load(parsed(f"(float[2] x, seq(int64[2,3]) s, optional(float[4]) o, string[3] t) {REST}")))
    require_feedable(load(parsed(f"(float[2] x, seq(float[n, 2]) s) {REST}")))
    require_feedable(load(parsed("(bfloat16[2] x, float8e5m2[2] s) => (bfloat16[2] y) { y = Neg(x) }")))
    overridable = parsed(f"(float[2] x, complex64[2] c) {REST}")
    overridable.graph.initializer.append(helper.make_tensor("c", TensorProto.COMPLEX64, [2], [1.0, 2.0]))
    require_feedable(load(overridable))


def test_positions_lie_within_the_sequence() -> None:
    graph = load(
        parsed("""(seq(float[2]) s, int64 p, int64 q, int64 r, float[2] x) => (float[2] y, int64 n) {
        y = SequenceAt(s, p)  t = SequenceErase(s, q)  u = SequenceInsert(t, x, r)  n = SequenceLength(u) }""")
    )
    assert index_ranges(graph) == dict.fromkeys("pqr", (0, ELEMENTS))


def test_models_with_other_sequences_are_others() -> None:
    """A measurement of one is none of the other."""
    texts = [
        "seq(float[2]) s",
        "seq(float[3]) s",
        "seq(int64[2]) s",
        "optional(float[2]) s",
        "optional(seq(float[2])) s",
    ]
    graphs = [load(parsed(f"(float[2] x, {text}) {REST}")) for text in texts]
    assert len({graph.hash for graph in graphs}) == len(texts)
    renamed = load(parsed("(float[2] a, seq(float[2]) b) => (float[2] c) { c = Neg(a) }"))
    assert renamed.hash == graphs[0].hash


def test_numbers_of_classes_lie_within_the_scores() -> None:
    graph = load(
        parsed("""(float[3,5] x, int64[3] y, int64[3] z) => (float l, float m) {
            l = NegativeLogLikelihoodLoss(x, y) m = SoftmaxCrossEntropyLoss(x, z) }""")
    )
    assert index_ranges(graph) == {"y": (0, 5), "z": (0, 5)}


@pytest.mark.parametrize(("text", "size"), [
    ("(float[5,3] t, int64[2,2] i) => (float[2,2,3] y) { y = Gather(t, i) }", 5),
    ("(float[5,3] t, int64[5,2] i) => (float[5,2] y) { y = GatherElements<axis = -1>(t, i) }", 3),
    ("(float[5,3] t, int64[2,3] i, float[2,3] u) => (float[5,3] y) { y = ScatterElements(t, i, u) }", 5),
    ("(float[5,3] t, int64[5,2] i, float[5,2] u) => (float[5,3] y) { y = ScatterElements<axis = 1>(t, i, u) }", 3),
    ("(float[5,3] t, int64[4,1] i, float[4,3] u) => (float[5,3] y) { y = ScatterND(t, i, u) }", 5),
    ("(float[5,3] t, int64[4,2] i, float[4] u) => (float[5,3] y) { y = ScatterND(t, i, u) }", 3),
    ("(float[5,3] t, int64[5,1] i) => (float[5] y) { y = GatherND<batch_dims = 1>(t, i) }", 3),
    ("(float[1,2,4,8] x, float[9,4] c, float[9,4] s, int64[1,4] i) => (float[1,2,4,8] y) "
     "{ y = RotaryEmbedding(x, c, s, i) }", 9),
    ("(float[5,3] t, int64[8] f, float[4] u) => (float[5,3] y) <int64[2] to = {4, 2}> "
     "{ i = Reshape(f, to)  y = ScatterND(t, i, u) }", 3),
])  # fmt: skip
def test_places_lie_within_the_table(text: str, size: int) -> None:
    assert set(index_ranges(load(parsed(text))).values()) == {(0, size)}
