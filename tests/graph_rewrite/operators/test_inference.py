"""Output types of operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from graph_rewrite.ir.attributes import RawAttr
from graph_rewrite.ir.constants import Constant, from_array
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.loading import attribute_value, static_type
from graph_rewrite.operators import nchwc
from graph_rewrite.operators.inference import infer
from graph_rewrite.operators.standard_semantics import run_standard
from graph_rewrite.operators.standard_types import TypeInferenceError, attribute_proto, make_node

FLOAT = TensorProto.FLOAT


def types(
    op: str, *inputs: TensorType | Constant | None, outputs: int = 1, domain: str = "", **attrs: Any
) -> list[str]:
    entries = [(i.type, i) if isinstance(i, Constant) else None if i is None else (i, None) for i in inputs]
    return [str(found) for found in infer(op, domain, attrs, entries, outputs, 23)]


def f(*shape: int) -> TensorType:
    return TensorType(FLOAT, shape)


class TestInfer:
    def test_shapes_follow_from_types_attributes_and_constants(self) -> None:
        assert types("MatMul", f(2, 3), f(3, 4)) == ["float[2,4]"]
        assert types("Transpose", f(2, 3, 4), perm=(1, 0, 2)) == ["float[3,2,4]"]
        assert types("Reshape", f(2, 6), from_array(np.array([3, -1]))) == ["float[3,4]"]
        assert types("Split", f(4, 6), outputs=2, axis=1, num_outputs=2) == ["float[4,3]", "float[4,3]"]
        assert types("Clip", f(3), None, from_array(np.float32(1))) == ["float[3]"]

    def test_memory_tells_constants_apart(self) -> None:
        for target in ([3, 4], [4, 3], [2, 6]):
            assert types("Reshape", f(12), from_array(np.array(target))) == [f"float[{target[0]},{target[1]}]"]

    def test_what_cannot_be_known_is_none(self) -> None:
        assert types("Reshape", f(2, 6), TensorType(TensorProto.INT64, (2,))) == ["None"]
        assert types("NonZero", f(2, 6)) == ["None"]
        assert infer("Relu", "", {}, [(None, None)], 1, 23) == (None,)

    @pytest.mark.parametrize("repeat", range(2))
    def test_impossible_applications_are_refused_every_time(self, repeat: int) -> None:
        with pytest.raises(TypeInferenceError, match=r"MatMul cannot take float\[2,3\], float\[4,5\]: .*"):
            types("MatMul", f(2, 3), f(4, 5))
        with pytest.raises(TypeInferenceError, match="NoSuchOperator does not exist in opset 23"):
            types("NoSuchOperator", f(1))

    def test_operators_of_onnx_runtime(self) -> None:
        assert types("QuickGelu", f(2, 3), domain="com.microsoft") == ["float[2,3]"]
        assert types("SomethingElse", f(2, 3), domain="com.microsoft") == ["None"]


class TestAttributes:
    @pytest.mark.parametrize(
        "attribute",
        [
            helper.make_attribute("a", 3),
            helper.make_attribute("a", 0.1),
            helper.make_attribute("a", "text"),
            helper.make_attribute("a", b"\xff\xfe"),
            helper.make_attribute("a", [1, 2]),
            helper.make_attribute("a", [0.1, 2.0]),
            helper.make_attribute("a", [b"x", b"y"]),
            helper.make_attribute("a", helper.make_tensor("", FLOAT, [2], [1.0, 2.0])),
            helper.make_attribute("a", helper.make_tensor("", TensorProto.STRING, [1], [b"s"])),
            helper.make_attribute("a", helper.make_tensor_type_proto(FLOAT, [1])),
            helper.make_attribute("a", [helper.make_tensor("", FLOAT, [1], [1.0])]),
        ],
        ids=lambda attribute: onnx.AttributeProto.AttributeType.Name(attribute.type),
    )
    def test_round_trip(self, attribute: onnx.AttributeProto) -> None:
        value = attribute_value(attribute)
        again = attribute_proto("a", value)
        again.ClearField("doc_string")
        if attribute.HasField("t"):
            attribute.t.name = again.t.name = "t"
        assert again.SerializeToString(deterministic=True) == attribute.SerializeToString(deterministic=True)

    def test_references_are_kept_raw(self) -> None:
        reference = onnx.AttributeProto(name="a", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
        assert isinstance(attribute_value(reference), RawAttr)
        assert attribute_proto("a", attribute_value(reference)) == reference

    def test_nodes(self) -> None:
        node = make_node("Clip", "", {"b": 1, "a": (1, 2)}, ["x", None, "z"], 2)
        assert list(node.input) == ["x", "", "z"]
        assert list(node.output) == ["o0", "o1"]
        assert [attribute.name for attribute in node.attribute] == ["a", "b"]


@pytest.mark.parametrize(
    ("proto", "expected"),
    [
        (helper.make_tensor_type_proto(FLOAT, [2, 3]), "float[2,3]"),
        (helper.make_tensor_type_proto(FLOAT, []), "float[]"),
        (helper.make_tensor_type_proto(FLOAT, ["N", 3]), "None"),
        (helper.make_tensor_type_proto(FLOAT, None), "None"),
        (helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2])), "None"),
        (onnx.TypeProto(), "None"),
    ],
)
def test_static_types(proto: onnx.TypeProto, expected: str) -> None:
    assert str(static_type(proto)) == expected


@pytest.mark.parametrize(
    "wrong", [{"kernel_shape": (2, 1)}, {"strides": (1,)}, {"dilations": (1, 1, 1)}, {"pads": (0, 0)}]
)
@pytest.mark.parametrize("first", ["wrong", "right"])
def test_an_invalid_node_tells_nothing_about_the_valid_one_it_resembles(wrong: dict[str, Any], first: str) -> None:
    """Attributes that say what the operands say are left out of signatures, under which types are remembered."""
    size = {"kernel_shape": 8, "strides": 9, "dilations": 10, "pads": 11}[next(iter(wrong))] + (first == "right")
    operands = [(TensorType(TensorProto.FLOAT, (2, 2, size, size)), None), (TensorType(1, (2, 2, 2, 2)), None)]
    right = {"kernel_shape": (2, 2), "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
    for turn in ("wrong", "right") if first == "wrong" else ("right", "wrong"):
        if turn == "right":
            (found,) = infer("Conv", "", right, operands, 1, 20)
            assert found == TensorType(TensorProto.FLOAT, (2, 2, size - 1, size - 1))
        else:
            with pytest.raises(TypeInferenceError, match="do not fit its operands"):
                infer("Conv", "", {**right, **wrong}, operands, 1, 20)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 2, 1, 2)])
@pytest.mark.parametrize("domain", ["", nchwc.DOMAIN])
def test_a_convolution_with_auto_pad_and_pads_is_refused(domain: str, pads: tuple[int, ...]) -> None:
    """ONNX Runtime refuses it. onnx's inference lets it pass."""
    block = nchwc.block_size()
    shapes = [(1, block, 8, 8), (block, block, 3, 3)]
    operands = [(TensorType(TensorProto.FLOAT, shape), None) for shape in shapes]
    (found,) = infer("Conv", domain, {"auto_pad": "SAME_UPPER"}, operands, 1, 20)
    assert found == TensorType(TensorProto.FLOAT, (1, block, 8, 8))
    with pytest.raises(TypeInferenceError, match="auto_pad"):
        infer("Conv", domain, {"auto_pad": "SAME_UPPER", "pads": pads}, operands, 1, 20)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1)])
def test_a_pool_goes_by_auto_pad_and_not_by_pads_as_in_the_runtime(pads: tuple[int, ...]) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> agraph (float[1,2,7,8] x) => (float[1,2,4,4] y) {{
        y = MaxPool<kernel_shape=[2,3], strides=[2,2], auto_pad="SAME_UPPER", pads={list(pads)}>(x)
    }}"""
    x = np.random.default_rng(0).standard_normal((1, 2, 7, 8)).astype(np.float32)
    model = onnx.parser.parse_model(text).SerializeToString()
    (ran,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    attrs = {"kernel_shape": (2, 3), "strides": (2, 2), "auto_pad": "SAME_UPPER", "pads": pads}
    (found,) = infer("MaxPool", "", attrs, [(TensorType(TensorProto.FLOAT, x.shape), None)], 1, 17)
    (computed,) = run_standard("MaxPool", "", attrs, [x], 17)
    assert found == TensorType(TensorProto.FLOAT, ran.shape)
    np.testing.assert_array_equal(ran, computed)


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_a_pool_with_gaps_has_no_type_where_its_size_decides_on_the_padding(op: str) -> None:
    """ONNX Runtime gives two elements here, and the standard says three."""
    text = f"""<ir_version: 8, opset_import: ["": 19]> agraph (float[1,1,5] x) => (float[1,1,N] y) {{
        y = {op}<kernel_shape=[3], strides=[2], dilations=[2], auto_pad="SAME_UPPER">(x)
    }}"""
    model = onnx.parser.parse_model(text).SerializeToString()
    (ran,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": np.ones((1, 1, 5), "f4")})
    assert ran.shape == (1, 1, 2)
    attrs = {"kernel_shape": (3,), "strides": (2,), "dilations": (2,)}
    operands = [(TensorType(TensorProto.FLOAT, (1, 1, 5)), None)]
    with pytest.raises(TypeInferenceError):
        infer(op, "", {**attrs, "auto_pad": "SAME_UPPER"}, operands, 1, 19)
    (found,) = infer(op, "", {**attrs, "auto_pad": "VALID"}, operands, 1, 19)
    assert found == TensorType(TensorProto.FLOAT, (1, 1, 1))
