"""Valid models that hold everything a graph does not model: what loading and saving must keep bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]


def parsed(text: str, *tensors: onnx.TensorProto, opset: int = 23, ir_version: int = 11) -> onnx.ModelProto:
    """A model out of ONNX's text syntax, and initializers."""
    head = f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "com.microsoft" : 1, "custom" : 1]>\n'
    model = onnx.parser.parse_model(head + "g " + text.strip())
    model.graph.initializer.extend(tensors)
    return model


def weights(name: str, *shape: int, seed: int = 0, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.random.default_rng(seed).standard_normal(shape).astype(dtype), name)


def several_outputs() -> onnx.ModelProto:
    """An input and an initializer are outputs, one value is read twice by one node."""
    return parsed(
        "(float[2,3] x) => (float[2,3] y, float[2,3] x, float[3] w, float[2,3] t) { t = Mul(x, x)  y = Add(t, w) }",
        weights("w", 3),
    )


def overridable() -> onnx.ModelProto:
    """An initializer that is an input too, and one that is not."""
    return parsed(
        "(float[2,3] x, float[3,4] w) => (float[2,4] y) { t = MatMul(x, w)  y = Add(t, b) }",
        weights("w", 3, 4),
        weights("b", 4),
    )


def old() -> onnx.ModelProto:
    """Opset 7 in IR version 3, where every initializer must be an input; numbers in typed fields."""
    flat = [1.0, -2.0, 0.5, 3.0]
    model = parsed(
        "(float[1,2,4,4] x, float[2,2,1,1] w, float[2] b) => (float[1,2,4,4] y)"
        "{ t = Conv<kernel_shape = [1, 1]>(x, w, b)  y = Relu(t) }",
        helper.make_tensor("w", TensorProto.FLOAT, [2, 2, 1, 1], flat),
        helper.make_tensor("b", TensorProto.FLOAT, [2], flat[:2]),
        opset=7,
        ir_version=3,
    )
    del model.opset_import[1:]
    return model


def conditional() -> onnx.ModelProto:
    """Branches that read outer values and an outer initializer, one of them nested."""
    return parsed(
        """(bool c, float[2] x) => (float[2] y, float[2] t) {
            t = Relu(x)
            s = If (c) <
                then_branch = a () => (float[2] p) { q = Neg(t)  p = Add(q, w) },
                else_branch = b () => (float[2] r) {
                    r = If (c) <then_branch = d () => (float[2] u) { u = Abs(x) },
                                else_branch = e () => (float[2] v) { v = Mul(t, t) }>
                }
            >
            y = Add(s, x)
        }""",
        weights("w", 2),
    )


def loop() -> onnx.ModelProto:
    """A loop that carries a value, reads an outer one and gathers a scan output."""
    return parsed(
        """(float[3] x) => (float[3] last, float[4,3] every) {
            n = Constant<value = int64 {4}>()
            go = Constant<value = bool {1}>()
            step = Neg(x)
            last, every = Loop(n, go, x) <
                body = b (int64 i, bool on, float[3] acc) => (bool on_out, float[3] next, float[3] row) {
                    on_out = Identity(on)  next = Sub(acc, step)  row = Mul(next, w)
                }
            >
        }""",
        weights("w", 3),
    )


def functions() -> onnx.ModelProto:
    """Local functions that call each other, with an attribute reference and opset imports of their own."""
    return onnx.parser.parse_model(
        """<ir_version: 11, opset_import: ["" : 23, "local" : 1]>
        g (float[2,3] x) => (float[2,3] y) { t = local.twice(x)  y = local.leaky<slope = 0.25>(t) }
        <domain: "local", opset_import: ["" : 23]> twice (a) => (b) { b = Add(a, a) }
        <domain: "local", opset_import: ["" : 23, "local" : 1]> leaky <slope>(a) => (b) {
            c = LeakyRelu<alpha: float = @slope>(a)  b = local.twice(c)
        }"""
    )


def strings() -> onnx.ModelProto:
    words = helper.make_tensor("words", TensorProto.STRING, [2], [b"a", "\u00e9".encode()])
    return parsed(
        "(string[2] x) => (string[2] y, bool[2] z) { y = StringConcat(x, words)  z = Equal(x, words) }", words
    )


def sequences() -> onnx.ModelProto:
    return parsed(
        """(float[2] x, float[2] y) => (seq(float[2]) s, float[4] z) {
            s = SequenceConstruct(x, y)  z = ConcatFromSequence<axis = 0>(s)
        }"""
    )


def optionals() -> onnx.ModelProto:
    return parsed(
        """(float[2] x) => (float[2] y, bool[] has) {
            o = Optional(x)  has = OptionalHasElement(o)  y = OptionalGetElement(o)
        }"""
    )


def omitted() -> onnx.ModelProto:
    """Optional inputs and outputs left out in the middle and at the end."""
    return parsed(
        """(float[3,1,2] x) => (float[1,1,4] last, float[3,1,2] y) {
            _, last = GRU<hidden_size = 4>(x, w, r, , , h)
            y, _ = Dropout(x)
        }""".replace("_, last", '"", last').replace("y, _", 'y, ""'),
        weights("w", 1, 12, 2),
        weights("r", 1, 12, 4),
        weights("h", 1, 1, 4),
    )


def sparse() -> onnx.ModelProto:
    """A sparse initializer, with indices per axis, and a sparse constant, with flat indices."""
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [2.0, -1.0])
    indices = helper.make_tensor("", TensorProto.INT64, [2, 2], [0, 1, 2, 0])
    flat = helper.make_sparse_tensor(
        helper.make_tensor("", TensorProto.FLOAT, [1], [5.0]), helper.make_tensor("", TensorProto.INT64, [1], [3]), [4]
    )
    model = parsed("(float[2,3] x) => (float[2,4] y) { t = MatMul(x, w)  y = Add(t, b) }")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3, 4]))
    model.graph.node.insert(0, helper.make_node("Constant", [], ["b"], sparse_value=flat))
    return model


def documented() -> onnx.ModelProto:
    """Everything that does not change results: texts, metadata, names, value_info, denotations."""
    model = parsed("(float[N,3] x) => (float[N,3] y) { t = Relu(x)  y = Exp(t) }")
    model.producer_name, model.producer_version, model.domain, model.model_version = "me", "1.0", "org.example", 7
    model.doc_string = "a model"
    model.metadata_props.add(key="author", value="someone")
    model.graph.doc_string = "a graph"
    model.graph.metadata_props.add(key="g", value="h")
    model.graph.node[0].name, model.graph.node[0].doc_string = "first", "an operator"
    model.graph.node[0].metadata_props.add(key="n", value="m")
    model.graph.input[0].doc_string = "an input"
    model.graph.input[0].type.denotation = "TENSOR"
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    model.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, ["N", 3]))
    model.graph.quantization_annotation.add(tensor_name="t").quant_parameter_tensor_names.add(key="SCALE", value="s")
    return model


def spare_initializer() -> onnx.ModelProto:
    """An initializer that nothing reads, and a node that no output needs."""
    return parsed("(float[2] x) => (float[2] y) { y = Neg(x)  z = Abs(x) }", weights("spare", 5))


def half_precision() -> onnx.ModelProto:
    tensor = weights("w", 3, dtype=np.float16)
    bits = onnx.TensorProto(name="b", data_type=TensorProto.FLOAT16, dims=[3], int32_data=[0x3C00, 0x4000, 0xBC00])
    return parsed("(float16[2,3] x) => (float16[2,3] y) { t = Mul(x, w)  y = Add(t, b) }", tensor, bits)


def packed_integers() -> onnx.ModelProto:
    """Weights of four bits, two to a byte."""
    packed = onnx.TensorProto(name="q", data_type=TensorProto.INT4, dims=[3], raw_data=bytes([0x7F, 0x02]))
    scale = numpy_helper.from_array(np.float32(0.5), "s")
    return parsed("(float[3] x) => (float[3] y) { w = DequantizeLinear(q, s)  y = Add(x, w) }", packed, scale)


def domain_alias() -> onnx.ModelProto:
    """The standard domain under its long name."""
    model = parsed("(float[2] x) => (float[2] y) { y = ai.onnx.Relu(x) }")
    model.opset_import[0].domain = "ai.onnx"
    return model


def contrib_only() -> onnx.ModelProto:
    """No operator of the standard domain, which is not imported."""
    model = parsed("(float[2] x) => (float[2] y) { y = com.microsoft.QuickGelu(x) }")
    del model.opset_import[0]
    return model


def custom() -> onnx.ModelProto:
    """An operator that nobody knows, with attributes of every kind. ONNX Runtime cannot run it."""
    model = parsed("(float[2] x) => (float[2] y, float[2] z) { y, z = custom.Thing(x) }")
    body = parsed("(float[2] a) => (float[2] b) { b = Relu(a) }").graph
    model.graph.node[0].attribute.extend(
        [
            helper.make_attribute("f", 0.1),
            helper.make_attribute("fs", [0.1, -0.0]),
            helper.make_attribute("i", 3),
            helper.make_attribute("is", [1, 2]),
            helper.make_attribute("empty", [], attr_type=onnx.AttributeProto.STRINGS),
            helper.make_attribute("s", b"\xff\x00raw"),
            helper.make_attribute("ss", [b"a", b"b"]),
            helper.make_attribute("t", weights("t", 2)),
            helper.make_attribute("ts", [weights("t", 2), weights("u", 2)]),
            helper.make_attribute("g", body),
            helper.make_attribute("type", helper.make_tensor_type_proto(1, [2])),
        ]
    )
    return model


RUNNABLE: Sequence[Callable[[], onnx.ModelProto]] = (
    several_outputs, overridable, old, conditional, loop, functions, strings, sequences, optionals, omitted, sparse,
    documented, spare_initializer, half_precision, packed_integers, domain_alias, contrib_only,
)  # fmt: skip


def feeds(model: onnx.ModelProto, seed: int = 0) -> dict[str, Any]:
    """Seeded inputs by name; symbolic dimensions are 2."""
    rng = np.random.default_rng(seed)
    stored = {tensor.name for tensor in model.graph.initializer}
    found: dict[str, Any] = {}
    for info in model.graph.input:
        if info.name in stored:
            continue
        tensor = info.type.tensor_type
        shape = [dim.dim_value or 2 for dim in tensor.shape.dim]
        if tensor.elem_type == TensorProto.STRING:
            found[info.name] = np.array([b"x", b"y"], dtype=np.object_)
        elif tensor.elem_type == TensorProto.BOOL:
            found[info.name] = np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
        else:
            array = np.asarray(rng.standard_normal(shape))
            found[info.name] = array.astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return found
