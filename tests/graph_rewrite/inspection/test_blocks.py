"""Repeated blocks, compared with layers that are known and with a search by brute force."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from graph_rewrite import load
from graph_rewrite.inspection.blocks import _longest_repetition, repeated_blocks
from tests.graph_rewrite.inspection.models import layers, model_of, tensor, weight


def test_layers_with_weights_of_their_own_are_one_block() -> None:
    [block] = repeated_blocks(load(layers(5)))
    assert (block.repeats, block.length, block.first) == (5, 3, "/layer0/matmul")
    assert dict(block.operators) == {"MatMul": 1, "Add": 1, "Relu": 1}


def test_nodes_of_a_block_are_those_of_all_layers() -> None:
    graph = load(layers(3))
    [block] = repeated_blocks(graph)
    assert [graph.nodes[node].op for node in block.nodes] == ["MatMul", "Add", "Relu"] * 3


def test_other_attributes_or_shapes_are_other_nodes() -> None:
    nodes = [helper.make_node("LeakyRelu", [f"h{i}"], [f"h{i + 1}"], alpha=0.1 * i) for i in range(6)]
    assert repeated_blocks(load(model_of(nodes, [tensor("h0", 4)], [tensor("h6", 4)]))) == []
    nodes = [helper.make_node("Concat", [f"h{i}", "h0"], [f"h{i + 1}"], axis=0) for i in range(6)]
    assert repeated_blocks(load(model_of(nodes, [tensor("h0", 1)], [tensor("h6", 7)]))) == []


def test_two_stages_are_two_blocks() -> None:
    operators = ["Relu", "Neg"] * 3 + ["Exp"] + ["Abs", "Sqrt", "Neg"] * 4
    nodes = [helper.make_node(op, [f"h{i}"], [f"h{i + 1}"]) for i, op in enumerate(operators)]
    blocks = repeated_blocks(load(model_of(nodes, [tensor("h0", 4)], [tensor(f"h{len(nodes)}", 4)])))
    assert [(block.repeats, block.length) for block in blocks] == [(4, 3), (3, 2)]


def test_a_block_begins_with_a_weight_where_it_may() -> None:
    # Relu MatMul Relu MatMul Relu MatMul Relu: Relu, MatMul repeats three times, and so does MatMul, Relu.
    nodes = [helper.make_node("Relu", ["x"], ["h0"])]
    for i in range(3):
        nodes.append(helper.make_node("MatMul", [f"h{i}", "w"], [f"m{i}"], f"product{i}"))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"h{i + 1}"]))
    model = model_of(nodes, [tensor("x", 4, 4)], [tensor("h3", 4, 4)], [weight("w", 4, 4)])
    [block] = repeated_blocks(load(model))
    assert (block.repeats, block.first) == (3, "product0")


def test_empty_graph_has_none() -> None:
    assert repeated_blocks(load(model_of([], [tensor("x", 4)], [tensor("x", 4)]))) == []


def most_covered(kinds: list[int]) -> int:
    """Return the most elements that a sequence repeated at least twice covers."""
    best = 0
    for begin in range(len(kinds)):
        for length in range(1, (len(kinds) - begin) // 2 + 1):
            part, repeats = kinds[begin : begin + length], 1
            while kinds[begin + repeats * length : begin + (repeats + 1) * length] == part:
                repeats += 1
            if repeats > 1:
                best = max(best, repeats * length)
    return best


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=14))
def test_longest_repetition_covers_as_much_as_brute_force_finds(kinds: list[int]) -> None:
    start, length, repeats, slack = _longest_repetition(np.array(kinds, np.int64))
    assert length * repeats == most_covered(kinds)
    part = kinds[start : start + length]
    assert kinds[start : start + length * repeats] == part * repeats
    for begin in range(start, start + slack + 1):
        assert kinds[begin : begin + length * repeats] == kinds[begin : begin + length] * repeats
