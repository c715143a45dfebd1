"""Steps with graphs inside: branches, loops, functions of the model."""

from __future__ import annotations

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, helper

from tests.fuzzing.optimisations.builder import BOOL, FLOAT, Builder, Unfit, Value, type_proto
from tests.fuzzing.optimisations.registry import floats, step, tensors

_DOMAIN = "local"


def _body(nodes: list[NodeProto], inputs: list[Value], outputs: list[Value]) -> GraphProto:
    sides = [[helper.make_value_info(v.name, type_proto(v)) for v in side] for side in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *sides)


@step(tensors, 0.6)
def branches(b: Builder, x: Value) -> Value:
    """A choice of two computations of a value outside, by an input or by a constant."""
    constant = b.chance(0.4)
    condition = b.constant(np.array(b.chance(0.5)), BOOL) if constant else b.input(BOOL, ())
    width = x.dim(-1)
    weight = b.weight(width, dtype=x.dtype)
    made = []
    for op in (b.choice(("Add", "Mul")), "Sub"):
        inner, out = b.fresh("i"), Value(b.fresh("o"), x.dtype, x.shape)
        nodes = [
            helper.make_node(op, [x.name, weight.name], [inner]),
            helper.make_node(b.choice(("Relu", "Tanh", "Identity")), [inner], [out.name]),
        ]
        made.append(_body(nodes, [], [out]))
    return b.op("If", condition, type=x, then_branch=made[0], else_branch=made[1])


@step(tensors, 0.5)
def loop(b: Builder, x: Value) -> Value:
    """A value that is halved and shifted a few times."""
    if isinstance(x.shape[0], str):
        raise Unfit("fixed shapes only")
    names = [b.fresh("l") for _ in range(6)]
    count, going = Value(names[0], TensorProto.INT64, ()), Value(names[1], BOOL, ())
    before, after, on = Value(names[2], x.dtype, x.shape), Value(names[3], x.dtype, x.shape), Value(names[4], BOOL, ())
    half = b.constant(0.5, x.dtype)
    nodes = [
        helper.make_node("Identity", [going.name], [on.name]),
        helper.make_node("Mul", [before.name, half.name], [names[5]]),
        helper.make_node("Sub", [names[5], x.name], [after.name]),
    ]
    trips = b.constant(np.array(b.choice((1, 3))), TensorProto.INT64)
    body = _body(nodes, [count, going, before], [on, after])
    return b.op("Loop", trips, b.constant(np.array(True), BOOL), x, type=x, body=body)


@step(floats, 0.6)
def function(b: Builder, x: Value) -> Value:
    """A function of the model, which is called once or twice."""
    name = f"f{len(b.functions)}"
    nodes = [
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node(b.choice(("Mul", "Add")), ["a", "s"], ["t"]),
        helper.make_node(b.choice(("Relu", "Tanh")), ["t"], ["r"]),
    ]
    made: FunctionProto = helper.make_function(_DOMAIN, name, ["a"], ["r"], nodes, [helper.make_opsetid("", b.opset)])
    b.functions.append(made)
    y = b.op(name, x, domain=_DOMAIN, type=x)
    return b.op(name, y, domain=_DOMAIN, type=y) if b.chance(0.4) else y


@step(lambda x: x.dtype == FLOAT and x.rank == 2, 0.3)
def positions_of_nonzero(b: Builder, x: Value) -> Value:
    """A number of elements that is known only when the model runs, and a sum over them."""
    places = b.op("NonZero", b.op("Relu", x), type=Value("", TensorProto.INT64, (2, "found")))
    total = b.op("ReduceSum", b.op("Cast", places, to=FLOAT, type=Value("", FLOAT, (2, "found"))), b.ints(1),
                 keepdims=0, type=Value("", FLOAT, (2,)))  # fmt: skip
    b.values = [value for value in b.values if "found" not in value.shape]
    return b.op("Mul", total, b.constant(0.125, FLOAT))
