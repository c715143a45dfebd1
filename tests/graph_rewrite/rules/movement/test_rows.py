"""Moves of whole rows, put together in one Gather."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite.egraph import apply_rule, from_graph
from graph_rewrite.egraph.costs import extract_graph
from graph_rewrite.rules.movement.rows import MovesAsGather, row_length
from tests.graph_rewrite.rules.checking import check_rule, model, ops, refuses

ROLLED = """(float[1,4,6,{c}] x) => (y) {{
    n = Neg(x) a, b = Split<axis=1>(n, s) r = Concat<axis=1>(b, a) c, d = Split<axis=2>(r, t)
    q = Concat<axis=2>(d, c) w = Reshape(q, i) p = Transpose<perm=[0,1,3,2,4,5]>(w) z = Reshape(p, j) y = Relu(z)
}}"""
"""Windows of 2 by 3 of an image that is rolled by 1 and 2."""


def rolled(channels: int) -> dict[str, list[int]]:
    return {"s": [1, 3], "t": [2, 4], "i": [1, 2, 2, 2, 3, channels], "j": [4, 6, channels]}


@pytest.mark.parametrize("channels", [16, 48])
def test_windows_of_a_rolled_image_are_one_gather(channels: int) -> None:
    (after,) = check_rule(
        MovesAsGather, model(ROLLED.format(c=channels), **rolled(channels)),
        becomes=["Gather", "Neg", "Relu", "Reshape", "Reshape"],
    )  # fmt: skip
    gather = next(node for node in after.nodes.values() if node.op == "Gather")
    table, indices = (after.types[value] for value in gather.inputs if value is not None)
    assert [None if type is None else type.shape for type in (table, indices)] == [(24, channels), (24,)]


def test_it_sees_the_moves_in_an_egraph() -> None:
    egraph = from_graph(model(ROLLED.format(c=16), **rolled(16)))
    assert apply_rule(egraph, MovesAsGather()).applied == 1
    best, _ = extract_graph(egraph)
    assert ops(best) == ["Gather", "Neg", "Relu", "Reshape", "Reshape"]


def test_moves_that_cancel_become_a_reshape() -> None:
    text = (
        "(float[2,3,16] x) => (y) { p = Transpose<perm=[1,0,2]>(x) q = Reshape(p, i) y = Transpose<perm=[1,0,2,3]>(q) }"
    )
    check_rule(MovesAsGather, model(text, i=[3, 2, 1, 16]), becomes=["Reshape"])


def test_moves_of_a_value_that_others_read_begin_behind_it() -> None:
    text = """(float[2,3,16] x) => (y, z) {
        p = Transpose<perm=[1,0,2]>(x) z = Relu(p)
        q = Transpose<perm=[1,0,2]>(p) a = Slice(q, o, f, o) y = Concat<axis=1>(a, q)
    }"""
    check_rule(MovesAsGather, model(text, o=[1], f=[9]), becomes=["Gather", "Relu", "Reshape", "Reshape", "Transpose"])


@pytest.mark.parametrize(
    ("text", "constants", "reason"),
    [
        (ROLLED.format(c=8), rolled(8), "rows of 8 elements"),
        (
            "(float[2,3,8] x) => (y) { p = Transpose<perm=[1,0,2]>(x) r = Slice(p, z, o) y = Neg(r) }",
            {"z": [0], "o": [2]}, "the moves go on",
        ),
        ("(float[2,3,16] x) => (y) { p = Transpose<perm=[1,0,2]>(x) y = Reshape(p, i) }", {"i": [6, 16]}, "one copy"),
        (
            "(float[2,3,16] x) => (y) { p = Transpose<perm=[1,0,2]>(x) y = Transpose<perm=[0,2,1]>(p) }",
            {}, "one copy",
        ),
        (
            "(float[2,3,16] x, float[1,3,16] z) => (y) { a = Concat<axis=0>(x, z) y = Transpose<perm=[1,0,2]>(a) }",
            {}, "several values",
        ),
        (
            "(float[4,16] x, int64[3] i) => (y) { a = Gather(x, i) y = Slice(a, z, o) }", {"z": [0], "o": [2]},
            "one copy",
        ),
        (
            "(float[2048,2048,3] x) => (y) { p = Transpose<perm=[1,0,2]>(x) y = Slice(p, z, o) }",
            {"z": [0], "o": [4]}, "too large",
        ),
    ],
)  # fmt: skip
def test_refusals(text: str, constants: dict[str, list[int]], reason: str) -> None:
    refuses(MovesAsGather, model(text, **constants), reason)


SHAPES = st.lists(st.integers(1, 4), min_size=2, max_size=4)


@given(shape=SHAPES, data=st.data())
def test_any_moves_keep_the_outputs(shape: list[int], data: st.DataObject) -> None:
    lines, constants, value = list[str](), dict[str, list[int]](), "x"
    given_shape = f"float[{','.join(map(str, shape))}]"
    for step in range(data.draw(st.integers(2, 4), label="steps")):
        op = data.draw(st.sampled_from(["Transpose", "Reshape", "Slice", "Roll", "Gather"]), label="operator")
        axis, out = data.draw(st.integers(0, len(shape) - 1), label="axis"), f"v{step}"
        size = shape[axis]
        if op == "Transpose":
            perm = data.draw(st.permutations(range(len(shape))), label="perm")
            lines.append(f"{out} = Transpose<perm={list(perm)}>({value})")
            shape = [shape[i] for i in perm]
        elif op == "Reshape":
            shape = [math.prod(shape[: axis + 1]), *shape[axis + 1 :], 1]
            constants[f"i{step}"] = shape
            lines.append(f"{out} = Reshape({value}, i{step})")
        elif op == "Slice":
            start, by = data.draw(st.integers(0, size - 1), label="start"), data.draw(st.sampled_from([1, 2, -1]))
            constants |= {f"b{step}": [start], f"e{step}": [-9 if by < 0 else 9], f"a{step}": [axis], f"k{step}": [by]}
            lines.append(f"{out} = Slice({value}, b{step}, e{step}, a{step}, k{step})")
            shape = [*shape[:axis], len(range(size)[start : None if by < 0 else 9 : by]), *shape[axis + 1 :]]
        elif op == "Roll" and size > 1:
            constants[f"s{step}"] = [1, size - 1]
            lines.append(f"p{step}, q{step} = Split<axis={axis}>({value}, s{step})")
            lines.append(f"{out} = Concat<axis={axis}>(q{step}, p{step})")
        else:
            constants[f"g{step}"] = data.draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=4))
            lines.append(f"{out} = Gather<axis={axis}>({value}, g{step})")
            shape = [*shape[:axis], len(constants[f"g{step}"]), *shape[axis + 1 :]]
        value = out
    copies = sum("Reshape" not in line for line in lines)
    copies -= sum(
        "Transpose" in one and "Transpose" in other for one, other in pairwise(lines)
    )  # in a row they are one
    graph = model(f"({given_shape} x) => (y) {{ {' '.join(lines)} y = Neg({value}) }}", **constants)
    check_rule(MovesAsGather().at_any_size, graph, sites=int(copies > 1))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 4))
def test_row_length_is_the_longest_that_moves_as_a_whole(rows: list[int], length: int) -> None:
    places = np.concatenate([np.arange(row * length, (row + 1) * length) for row in rows])
    found = row_length(places, 6 * length)
    assert (found % length, places.size % found, 6 * length % found) == (0, 0, 0)
    for begin, end in pairwise(range(0, places.size + 1, found)):
        assert places[begin] % found == 0
        np.testing.assert_array_equal(places[begin:end], np.arange(places[begin], places[begin] + found))
    longer = [n for n in range(found + 1, places.size + 1) if places.size % n == 6 * length % n == 0]
    assert not any(
        all((places[i : i + n] == np.arange(places[i], places[i] + n)).all() and places[i] % n == 0
            for i in range(0, places.size, n))
        for n in longer
    )  # fmt: skip
