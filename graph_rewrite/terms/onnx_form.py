"""Terms as ONNX operators: the form that an operator of TASO's algebra takes once the types of its operands are known.

A fused activation becomes an operator of its own, or `com.microsoft.FusedConv` where that is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.terms.semantics import constant_value
from graph_rewrite.terms.substitution import INPUT, Operand, Side, Substitution, Term
from graph_rewrite.terms.term_types import TermType, close, infer_side, operand_type, window

OPSET = 23
ONNX_NAMES = {
    "ewadd": "Add", "ewmul": "Mul", "smul": "Mul", "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh",
    "matmul": "MatMul", "conv": "Conv", "maxpool": "MaxPool", "avgpool": "AveragePool", "transpose": "Transpose",
    "concat": "Concat", "split": "Split", "reshape": "Reshape", "enlarge": "Pad",
}  # fmt: skip
"""ONNX's operator for each that is no constant. TASO's activations by name have the same ones."""
CONSTANT_OPS = frozenset({"imatmul", "iewmul", "iconv", "cpool"})

V = TypeVar("V")


class Maker(Protocol[V]):
    """Makes operators and constants; `ReplacementBuilder` is one."""

    def apply(
        self, op: str, domain: str, attrs: dict[str, Any], inputs: tuple[V | None, ...], outputs: int
    ) -> tuple[V, ...]: ...

    def constant(self, array: np.ndarray[Any, Any]) -> V: ...


def constant_array(constant: Term, sized: TermType, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The elements of a constant term of a size."""
    if constant.op == "cpool":
        rows, columns = sized.shape[2:]
        return np.full(sized.shape, 1 / (rows * columns), dtype)
    return constant_value(constant, sized).astype(dtype)


def pads_of(term: Term, sizes: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
    """ONNX's `pads` of a convolution or pooling over an image of these sizes: before, then after."""
    _, padding = window(term, sizes, kernel)
    before, after = zip(*padding, strict=True)
    return (*before, *after)


def geometry_attrs(term: Term, x: TermType, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Attributes of a convolution or pooling of an input of type `x`, without groups."""
    return {
        "kernel_shape": kernel, "strides": term.param("stride"), "dilations": (1, 1),
        "pads": pads_of(term, x.shape[2:], kernel),
    }  # fmt: skip


def enlarge_pads(w: TermType, kernel: Sequence[int]) -> tuple[int, ...]:
    """ONNX's `pads` of a weight that grows to `kernel` around its centre, element (k - 1) // 2 of k."""
    before = [(new - 1) // 2 - (old - 1) // 2 for new, old in zip(kernel, w.shape[2:], strict=True)]
    after = [new - old - b for new, old, b in zip(kernel, w.shape[2:], before, strict=True)]
    return (0, 0, *before, 0, 0, *after)


def build_side(
    maker: Maker[V],
    side: Side,
    inputs: Mapping[int, V],
    types: Mapping[int, TermType],
    dtype: np.dtype[Any],
    fused: bool = False,
) -> list[V]:
    """The outputs of a side, made of ONNX operators.

    Args:
        maker: makes them.
        side: the terms.
        inputs, types: the inputs and their types by number, with the borders that splits need.
        dtype: of the elements.
        fused: activations of convolutions as `FusedConv`.

    Raises:
        ValueError: the side has no types for these inputs.
    """
    values = infer_side(side, types)
    if values is None:
        raise ValueError("the side has no types for these inputs")
    made: list[tuple[V, ...]] = []
    for number, node in enumerate(side.terms):
        if node.op in CONSTANT_OPS:
            made.append(())
            continue
        open_types = [operand_type(operand, types, values) for operand in node.inputs]
        closed = close(node, open_types)
        assert closed is not None
        operands: list[V] = []
        for operand, before, sized in zip(node.inputs, open_types, closed, strict=True):
            if before.constant is not None:
                operands.append(maker.constant(constant_array(before.constant, sized, dtype)))
            else:
                operands.append(inputs[operand.index] if operand.node == INPUT else made[operand.node][operand.index])
        made.append(_make(maker, node, operands, closed, values[number], fused))
    return [inputs[o.index] if o.node == INPUT else made[o.node][o.index] for o in side.outputs]


def _make(
    maker: Maker[V],
    node: Term,
    operands: Sequence[V],
    types: Sequence[TermType],
    results: Sequence[TermType],
    fused: bool,
) -> tuple[V, ...]:
    attrs, extra = _attributes(maker, node, types, results)
    operands = list(operands)
    if node.op == "smul" and types[1].rank > types[0].rank:
        operands[1] = maker.apply("Reshape", "", {}, (operands[1], _ints(maker, ())), 1)[0]
    activation = dict(node.params).get("activation", "none")
    if fused and node.op == "conv" and activation != "none":
        attrs["activation"] = ONNX_NAMES[str(activation)]
        return maker.apply("FusedConv", "com.microsoft", attrs, (*operands, *extra), 1)
    made = maker.apply(ONNX_NAMES[node.op], "", attrs, (*operands, *extra), node.outputs)
    return made if activation == "none" else maker.apply(ONNX_NAMES[str(activation)], "", {}, made, 1)


def _attributes(
    maker: Maker[V], node: Term, types: Sequence[TermType], results: Sequence[TermType]
) -> tuple[dict[str, Any], tuple[V, ...]]:
    """Attributes, and the inputs that stand for parameters."""
    if node.op == "conv":
        x, w = types
        return {**geometry_attrs(node, x, w.shape[2:]), "group": x.shape[1] // w.shape[1]}, ()
    if node.op in ("maxpool", "avgpool"):
        attrs = geometry_attrs(node, types[0], node.param("kernel"))
        return attrs if node.op == "maxpool" else {**attrs, "count_include_pad": 1}, ()
    if node.op == "transpose":
        return {"perm": node.param("perm")}, ()
    if node.op == "concat":
        return {"axis": node.param("axis")}, ()
    if node.op == "split":
        axis = node.param("axis")
        return {"axis": axis}, (_ints(maker, tuple(part.shape[axis] for part in results)),)
    if node.op == "reshape":
        return {}, (_ints(maker, results[0].shape),)
    if node.op == "enlarge":
        return {}, (_ints(maker, enlarge_pads(types[0], node.param("kernel"))),)
    return {}, ()


def _ints(maker: Maker[V], values: tuple[int, ...]) -> V:
    return maker.constant(np.array(values, dtype=np.int64))


class _Model:
    """A Maker of ONNX nodes; values are names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self._known: dict[str, tuple[str, ...]] = {}

    def apply(
        self, op: str, domain: str, attrs: dict[str, Any], inputs: tuple[str | None, ...], outputs: int
    ) -> tuple[str, ...]:
        key = repr((op, domain, sorted(attrs.items()), inputs, outputs))
        if key not in self._known:
            names = tuple(f"v{len(self.nodes)}_{i}" for i in range(outputs))
            sources = [name or "" for name in inputs]
            self.nodes.append(helper.make_node(op, sources, list(names), domain=domain, **attrs))
            self._known[key] = names
        return self._known[key]

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        key = repr((array.dtype.str, array.shape, array.tobytes()))
        if key not in self._known:
            name = f"c{len(self.initializers)}"
            self.initializers[name] = numpy_helper.from_array(array, name)
            self._known[key] = (name,)
        return self._known[key][0]


def scalar_inputs(substitution: Substitution) -> frozenset[int]:
    """Inputs that some term multiplies by as a scalar: constants of one element in ONNX."""
    sides = (substitution.source, substitution.target)
    return frozenset(
        node.inputs[1].index
        for side in sides
        for node in side.terms
        if node.op == "smul" and node.inputs[1].node == INPUT
    )


def weight_inputs(substitution: Substitution) -> frozenset[int]:
    """Inputs that reach nothing but second operands of products and convolutions: weights, as a rule constant."""
    data: set[int] = set()
    weights: set[int] = set()
    for side in (substitution.source, substitution.target):
        for operand in side.outputs:
            _reached(side, operand, False, data, weights)
    return frozenset(weights - data)


def _reached(side: Side, operand: Operand, weight: bool, data: set[int], weights: set[int]) -> None:
    if operand.node == INPUT:
        (weights if weight else data).add(operand.index)
        return
    node = side.terms[operand.node]
    for place, source in enumerate(node.inputs):
        _reached(side, source, weight or (place == 1 and node.op in ("matmul", "conv")), data, weights)


def build_graph(
    side: Side,
    types: Mapping[int, TermType],
    *,
    constants: Collection[int] = (),
    fused: bool = False,
    joined: bool = False,
    renamed: bool = False,
    seed: int = 0,
) -> Graph:
    """Return a float32 graph of one side. Inputs are named x0, x1, ..., the same on both sides of a substitution.

    Args:
        side: the terms.
        types: types of all inputs of the substitution by number.
        constants: inputs that are initializers, with values drawn by `seed`: multiples of 1/8.
        fused: activations of convolutions as `FusedConv`.
        joined: one more output, a Concat of the others, where their shapes allow it: outputs that share no input then
            meet, and rules that merge them find them.
        renamed: each output behind an Identity, so that an input may take its place.

    Raises:
        ValueError: the side has no types for these inputs.
    """
    maker = _Model()
    names = {number: f"x{number}" for number in types}
    for number in sorted(constants):
        drawn = np.random.default_rng([seed, number]).integers(1, 25, types[number].shape) / 8
        maker.initializers[names[number]] = numpy_helper.from_array(drawn.astype(np.float32), names[number])
    outputs = build_side(maker, side, names, types, np.dtype(np.float32), fused)
    values = infer_side(side, types)
    assert values is not None
    shapes = [operand_type(operand, types, values).shape for operand in side.outputs]
    axis = _joining_axis(shapes) if joined else None
    if axis is not None:
        outputs.append(maker.apply("Concat", "", {"axis": axis}, tuple(outputs), 1)[0])
        along = sum(shape[axis] for shape in shapes)
        shapes.append((*shapes[0][:axis], along, *shapes[0][axis + 1 :]))
    # An output that is an input, or that two outputs share, needs a name of its own.
    if renamed or len(set(outputs)) < len(outputs) or set(outputs) & set(names.values()):
        maker.nodes += [helper.make_node("Identity", [name], [f"y{i}"]) for i, name in enumerate(outputs)]
        outputs = [f"y{i}" for i in range(len(outputs))]
    inputs = {names[number]: types[number].shape for number in sorted(types) if number not in constants}
    return _loaded(maker, inputs, dict(zip(outputs, shapes, strict=True)), fused)


def _loaded(
    maker: _Model, inputs: Mapping[str, tuple[int, ...]], outputs: Mapping[str, tuple[int, ...]], fused: bool
) -> Graph:
    """Return the graph of a model whose inputs and outputs are float32 of these shapes, by name."""
    given, results = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
        for shapes in (inputs, outputs)
    )
    graph = helper.make_graph(maker.nodes, "side", given, results, list(maker.initializers.values()))
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    return load(helper.make_model(graph, opset_imports=imports if fused else imports[:1], ir_version=11))


def _joining_axis(shapes: Sequence[tuple[int, ...]]) -> int | None:
    """An axis along which tensors of these shapes can be concatenated."""
    for axis in range(len(shapes[0])):
        if len({(len(shape), shape[:axis], shape[axis + 1 :]) for shape in shapes}) == 1:
            return axis
    return None
