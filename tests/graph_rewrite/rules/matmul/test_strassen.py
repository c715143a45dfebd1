"""Strassen's algorithm for linear layers: the products, what lies between two layers, odd rows, and refusals."""

import math

import numpy as np
import pytest

from graph_rewrite.rules.matmul import strassen as S
from tests.graph_rewrite.rules.checking import check_rule, eighths, model, ops, refuses

LINEAR = "(float[{}] x) => (y) {{ p = MatMul(x, w)  y = Add(p, b) }}"
FEED_FORWARD = """(float[{}] x) => (y) {{
    p = MatMul(x, v)  d = Add(p, a)  h = {}(d)  q = MatMul(h, w)  y = Add(q, b)
}}"""


def layers(width=32, hidden=64):
    return {"v": eighths(width, hidden), "a": eighths(hidden), "w": eighths(hidden, width, seed=1), "b": eighths(width)}


def multiplications(graph):
    """Numbers of a graph's dense convolutions and matrix products, for one image each."""
    count = 0
    for node in graph.nodes.values():
        if node.op == "Conv" and node.attrs.get("group", 1) == 1:
            count += math.prod(graph.types[node.inputs[1]].shape) * graph.types[node.outputs[0]].shape[3]
        elif node.op == "MatMul":
            count += graph.types[node.outputs[0]].size * graph.types[node.inputs[1]].shape[0]
    return count


@pytest.mark.parametrize("shape", ["256,32", "2,128,32", "1,2,130,32"])
def test_a_linear_layer_takes_seven_of_eight_multiplications(shape):
    graph = model(LINEAR.format(shape), w=eighths(32, 64), b=eighths(64))
    (after,) = check_rule(S.StrassenLinear, graph)
    assert ops(after).count("Conv") == 7
    assert 8 * multiplications(after) == 7 * multiplications(graph)


def test_a_product_without_bias():
    graph = model("(float[257,32] x) => (y) { y = MatMul(x, w) }", w=eighths(32, 64))
    check_rule(S.StrassenMatMul, graph)
    biased = model(LINEAR.format("256,32"), w=eighths(32, 64), b=eighths(64))
    refuses(S.StrassenMatMul, biased, "constant bias")


@pytest.mark.parametrize("b", [(), (1,), (1, 64)])
def test_biases_of_all_forms(b):
    check_rule(S.StrassenLinear, model(LINEAR.format("256,32"), w=eighths(32, 64), b=eighths(*b)))


@pytest.mark.parametrize("f", ["Gelu", "Relu", 'Gelu<approximate="tanh">'])
@pytest.mark.parametrize("rows", ["64", "1,65", "3,33"])
def test_two_layers_stay_in_quarters_between(f, rows):
    graph = model(FEED_FORWARD.format(f"{rows},32", f), **layers())
    (after,) = check_rule(S.StrassenFeedForward, graph)
    found = ops(after)
    assert found.count(f.split("<")[0]) == 4
    assert found.count("Conv") == 7 + 7 + 3  # three differences of hidden values
    assert found.count("Concat") == 3


@pytest.mark.parametrize("rows", [384, 385, 386, 387])
def test_quarters_of_quarters(rows):
    graph = model(FEED_FORWARD.format(f"{rows},64", "Relu"), **layers(64, 128))
    (after,) = check_rule(S.StrassenFeedForwardTwice, graph)
    dense = [n for n in after.nodes.values() if n.op == "Conv" and n.attrs.get("group", 1) == 1]
    assert len(dense) == 2 * 49
    part = math.ceil(math.ceil(rows / 2) / 2)
    assert multiplications(after) == 98 * part * 16 * 32  # halves of an odd number of rows share one


def test_conditions():
    few = model(LINEAR.format("255,32"), w=eighths(32, 64), b=eighths(64))
    refuses(S.StrassenLinear, few, "fewer than 256 rows")
    narrow = model(LINEAR.format("256,32"), w=eighths(32, 48), b=eighths(48))
    refuses(S.StrassenLinear, narrow, "do not fill blocks of 16")
    along_rows = model(LINEAR.format("256,32"), w=eighths(32, 64), b=eighths(256, 1))
    refuses(S.StrassenLinear, along_rows, "more than the columns")
    batched = model("(float[2,128,32] x) => (y) { y = MatMul(x, w) }", w=eighths(2, 32, 64))
    refuses(S.StrassenMatMul, batched, "not a matrix")
    halves = model("(float16[256,32] x) => (y) { y = MatMul(x, w) }", w=eighths(32, 64).astype(np.float16))
    refuses(S.StrassenMatMul, halves, "float32")
    hidden = model(FEED_FORWARD.format("63,32", "Relu"), **layers())
    refuses(S.StrassenFeedForward, hidden, "fewer than 64 rows")
    wide = model(FEED_FORWARD.format("64,32", "Relu"), **{**layers(), "a": eighths(64, 1)})
    refuses(S.StrassenFeedForward, wide, "more than the columns")
