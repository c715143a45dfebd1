"""Facts about small models, counted by hand."""

import onnx
import pytest
from onnx import TensorProto, helper

from graph_rewrite import load
from graph_rewrite.inspection.facts import Facts, facts_of
from tests.graph_rewrite.inspection.models import model_of, tensor, weight


def facts(model: onnx.ModelProto) -> Facts:
    return facts_of(load(model))


def convolutional() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Add", ["r", "r"], ["y"], "sum"),
    ]
    initializers = [weight("w", 4, 3, 3, 3), weight("b", 4)]
    return model_of(nodes, [tensor("x", 1, 3, 8, 8)], [tensor("y", 1, 4, 8, 8)], initializers)


def test_counts_of_a_convolution_by_hand() -> None:
    found = facts(convolutional())
    assert (found.nodes, found.operators) == (3, {"Conv": 1, "Relu": 1, "Add": 1})
    assert found.opsets == {"ai.onnx": 20}
    assert found.parameters == 4 * 3 * 3 * 3 + 4
    assert found.weight_bytes == 4 * found.parameters
    # A multiply-add is 2 operations; Relu and Add take 1 per element.
    assert found.gflop == pytest.approx((2 * 256 * 27 + 256 + 256) / 1e9)
    # The most that lives at one time: the input, and what Relu reads and gives: two tensors of 1 KiB.
    assert found.peak_bytes == found.weight_bytes + 4 * 3 * 8 * 8 + 2 * 1024
    assert [str(fact) for fact in (*found.inputs, *found.outputs)] == ["x: float [1, 3, 8, 8]", "y: float [1, 4, 8, 8]"]
    assert found.opaque == ()
    assert found.symbolic == []


def test_open_dimensions_are_named_and_nothing_is_made_up() -> None:
    model = model_of(
        [helper.make_node("Relu", ["x"], ["y"])], [tensor("x", "batch", 4, None)], [tensor("y", "batch", 4, "n")]
    )
    found = facts(model)
    assert str(found.inputs[0]) == "x: float [batch, 4, ?]"
    assert found.symbolic == [found.inputs[0]]
    assert (found.gflop, found.peak_bytes, found.opaque) == (None, None, ())


def test_input_with_a_default_and_input_that_is_no_tensor() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    nodes = [helper.make_node("ConcatFromSequence", ["s"], ["c"], axis=0), helper.make_node("Mul", ["c", "k"], ["y"])]
    found = facts(model_of(nodes, [sequence, tensor("k", 2)], [tensor("y", None)], [weight("k", 2)]))
    assert [str(fact) for fact in found.inputs] == ["s: sequence", "k: float [2] (has a default)"]
    assert found.symbolic == []


def branches() -> onnx.ModelProto:
    bodies = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, ["x"], [op])], name, [], [tensor(op, 4)])
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    node = helper.make_node("If", ["flag"], ["y"], "choose", **bodies)
    return model_of([node], [tensor("x", 4), tensor("flag", kind=TensorProto.BOOL)], [tensor("y", 4)])


def function_call(version: int = 18) -> onnx.ModelProto:
    body = helper.make_function("own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
                                [helper.make_opsetid("", version)])  # fmt: skip
    node = helper.make_node("Twice", ["x"], ["y"], "twice", domain="own")
    return model_of([node], [tensor("x", 4)], [tensor("y", 4)], opsets={"own": 1}, functions=[body])


def data_dependent() -> onnx.ModelProto:
    nodes = [helper.make_node("NonZero", ["x"], ["n"], "find"), helper.make_node("Neg", ["n"], ["y"], "negate")]
    return model_of(nodes, [tensor("x", 4)], [tensor("y", 1, "n", kind=TensorProto.INT64)])


def unknown_domain() -> onnx.ModelProto:
    node = helper.make_node("Magic", ["x"], ["y"], "trick", domain="com.acme")
    return model_of([node], [tensor("x", 4)], [tensor("y", "n")], opsets={"com.acme": 1})


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (branches(), [("If", "holds subgraphs (control flow)", "choose")]),
        (function_call(), [("own::Twice", "calls a function of the model", "twice")]),
        (
            data_dependent(),
            [
                ("NonZero", "the shape of its result depends on values", "find"),
                ("Neg", "the shape of an operand is unknown", "negate"),
            ],
        ),
        (
            unknown_domain(),
            [("com.acme::Magic", "an operator of the domain com.acme that is not known here", "trick")],
        ),
    ],
    ids=["control flow", "function", "data-dependent", "unknown domain"],
)
def test_what_stays_as_it_is_is_told_with_the_reason(
    model: onnx.ModelProto, expected: list[tuple[str, str, str]]
) -> None:
    assert [(entry.operator, entry.reason, entry.example) for entry in facts(model).opaque] == expected


def test_a_call_that_is_written_out_does_not_stay() -> None:
    assert facts(function_call(version=20)).opaque == ()


def test_like_nodes_are_counted_together() -> None:
    nodes = [helper.make_node("Magic", ["x"], [f"y{i}"], f"trick{i}", domain="com.acme") for i in range(3)]
    model = model_of(nodes, [tensor("x", 4)], [tensor(f"y{i}", None) for i in range(3)], opsets={"com.acme": 1})
    [entry] = facts(model).opaque
    assert (entry.count, entry.example) == (3, "trick0")
