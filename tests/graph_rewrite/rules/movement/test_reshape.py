"""Movement of Reshape: outputs stay, inverses come back, and what cannot move is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import Rewriter
from graph_rewrite.rules.movement import reshape as movement
from graph_rewrite.rules.movement.reshape import (
    ReshapeAfterBinary,
    ReshapeAfterNormalisation,
    ReshapeAfterTranspose,
    ReshapeAfterUnary,
    ReshapeAsTranspose,
    ReshapeBeforeBinary,
    ReshapeBeforeNormalisation,
    ReshapeBeforeUnary,
    ReshapesAfterBinary,
    ReshapesBeforeBinary,
    TransposeAfterReshape,
    TransposeAsReshape,
)
from tests.graph_rewrite.rules.checking import Case, check_rule, model, untested, weights

APPLIES = [
    Case(ReshapeAfterUnary, "(float[2,3,4] x) => (y) { a = Flatten(x) y = Erf(a) }", ["Erf", "Reshape"]),
    Case(
        ReshapeAfterUnary, "(float[2,3] x) => (y) { a = Unsqueeze(x, s) y = Clip(a, c) }", None,
        {"s": [0], "c": np.float32(0)},
    ),
    Case(
        ReshapeBeforeUnary, "(float[2,3] x) => (y) { a = Tanh(x) y = Reshape(a, s) }", ["Reshape", "Tanh"],
        {"s": [3, -1]},
    ),
    Case(
        ReshapesAfterBinary,
        "(float[2,3] x, float[2,3] z) => (y) { a = Reshape(x, s) b = Flatten<axis=2>(z) y = Mul(a, b) }",
        ["Mul", "Reshape"], {"s": [6, 1]},
    ),
    Case(
        ReshapeAfterBinary, "(float[2,3,4] x) => (y) { a = Reshape(x, s) y = Sub(c, a) }", ["Reshape", "Sub"],
        {"s": [6, 4], "c": weights(1, 4)},
    ),
    Case(
        ReshapeAfterBinary, "(float[6,4] x, float[1] z) => (y) { a = Reshape(x, s) y = Div(a, z) }", None,
        {"s": [2, 12]},
    ),
    Case(
        ReshapeBeforeBinary, "(float[2,3,4] x) => (y) { a = Sub(x, c) y = Reshape(a, s) }", ["Reshape", "Sub"],
        {"s": [6, 4], "c": weights(4)},
    ),
    Case(
        ReshapeBeforeBinary, "(float[2,3,4] x) => (y) { a = Sub(c, x) y = Reshape(a, s) }", ["Reshape", "Sub"],
        {"s": [2, 1, 3, 4], "c": weights(3, 1)},
    ),
    Case(
        ReshapesBeforeBinary,
        "(float[2,3] x, float[2,3] z) => (y) { a = Pow(x, z) b = Abs(a) c = Add(x, z) y = Reshape(c, s) }",
        None, {"s": [-1]},
    ),
    Case(
        ReshapeAfterNormalisation, "(float[2,3,4] x) => (y) { a = Reshape(x, s) y = Softmax<axis=1>(a) }",
        ["Reshape", "Softmax"], {"s": [6, 4]},
    ),
    Case(
        ReshapeAfterNormalisation, "(float[6,4] x) => (y) { a = Reshape(x, s) y = LayerNormalization(a, w) }", None,
        {"s": [2, 3, 4], "w": weights(4)},
    ),
    Case(
        ReshapeBeforeNormalisation, "(float[2,3,4] x) => (y) { a = LayerNormalization(x, w) y = Flatten<axis=2>(a) }",
        ["LayerNormalization", "Reshape"], {"w": weights(4)},
    ),
    Case(TransposeAsReshape, "(float[2,1,3,1] x) => (y) { y = Transpose<perm=[1,0,3,2]>(x) }", ["Reshape"]),
    Case(ReshapeAsTranspose, "(float[2,1,3,1] x) => (y) { y = Reshape(x, s) }", ["Transpose"], {"s": [1, 2, 1, 3]}),
    Case(
        ReshapeAfterTranspose, "(float[2,3,4,5] x) => (y) { a = Transpose<perm=[0,2,3,1]>(x) y = Reshape(a, s) }",
        ["Reshape", "Transpose"], {"s": [2, 20, 3]},
    ),
    Case(
        ReshapeAfterTranspose, "(float[6,4] x) => (y) { a = Transpose(x) y = Reshape(a, s) }", ["Reshape", "Transpose"],
        {"s": [2, 1, 2, 3, 2]},
    ),
    Case(
        TransposeAfterReshape, "(float[6,20] x) => (y) { a = Reshape(x, s) y = Transpose<perm=[2,3,0,1]>(a) }",
        ["Reshape", "Transpose"], {"s": [2, 3, 4, 5]},
    ),
    Case(
        TransposeAfterReshape, "(float[2,3,4,1] x) => (y) { a = Flatten<axis=2>(x) y = Transpose(a) }",
        ["Reshape", "Transpose"],
    ),
]  # fmt: skip

REFUSED = [
    Case(
        ReshapesAfterBinary, "(float[6] x, float[2,3] z) => (y) { a = Reshape(x, s) b = Reshape(z, s) y = Add(a, b) }",
        "differ in shape", {"s": [3, 2]},
    ),
    Case(
        ReshapeAfterBinary, "(float[2,6] x) => (y) { a = Reshape(x, s) y = Add(a, c) }",
        "axes that the Reshape changes", {"s": [2, 2, 3], "c": weights(2, 1)},
    ),
    Case(
        ReshapeAfterBinary, "(float[3] x) => (y) { a = Reshape(x, s) y = Add(a, c) }", "broadcasts the reshaped one",
        {"s": [3, 1], "c": weights(2)},
    ),
    Case(
        ReshapeBeforeBinary, "(float[2,3] x) => (y) { a = Add(x, c) y = Reshape(a, s) }",
        "axes that the Reshape changes", {"s": [6], "c": weights(3)},
    ),
    Case(
        ReshapesBeforeBinary, "(float[2,3] x) => (y) { a = Add(x, c) y = Reshape(a, s) }", "differ in shape",
        {"s": [6], "c": weights(3)},
    ),
    Case(
        ReshapeAfterNormalisation, "(float[2,6] x) => (y) { a = Reshape(x, s) y = Softmax(a) }",
        "changes the normalised axes", {"s": [4, 3]},
    ),
    Case(
        ReshapeBeforeNormalisation,
        "(float[2,3,4] x) => (y) { a = LayerNormalization<axis=1>(x, w) y = Reshape(a, s) }",
        "changes the normalised axes", {"s": [6, 4], "w": weights(3, 4)},
    ),
    Case(
        ReshapeBeforeNormalisation, "(float[2,3,4] x) => (y) { a = LayerNormalization(x, w, b) y = Reshape(a, s) }",
        "more than the normalised axes", {"s": [6, 4], "w": weights(4), "b": weights(3, 4)},
    ),
    Case(TransposeAsReshape, "(float[2,3] x) => (y) { y = Transpose(x) }", "change places"),
    Case(ReshapeAsTranspose, "(float[2,3] x) => (y) { y = Reshape(x, s) }", "not the same", {"s": [3, 2]}),
    Case(
        ReshapeAfterTranspose, "(float[2,3,4] x) => (y) { a = Transpose<perm=[0,2,1]>(x) y = Reshape(a, s) }",
        "brought together", {"s": [2, 12]},
    ),
    Case(
        ReshapeAfterTranspose, "(float[2,3] x) => (y) { a = Transpose(x) y = Reshape(a, s) }", "across all axes",
        {"s": [2, 3]},
    ),
    Case(
        TransposeAfterReshape, "(float[2,12] x) => (y) { a = Reshape(x, s) y = Transpose<perm=[1,0,2]>(a) }",
        "takes apart", {"s": [2, 3, 4]},
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", APPLIES, ids=str)
def test_rule_keeps_the_outputs(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_rule_refuses_with_a_reason(case: Case) -> None:
    case.check_refused()


def test_every_rule_is_tested() -> None:
    assert untested(movement.RULES, APPLIES, REFUSED) == []


def test_a_move_and_its_inverse_give_the_graph_they_started_from() -> None:
    text = "(float[2,3,4,5] x) => (y) { a = Transpose<perm=[0,2,3,1]>(x) y = Reshape(a, s) }"
    graph = model(text, s=[2, 20, 3])
    moved = check_rule(ReshapeAfterTranspose, graph)[0]
    assert moved.hash != graph.hash
    assert check_rule(TransposeAfterReshape, moved)[0].hash == graph.hash


@st.composite
def _moves(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """A shape, a permutation, and another shape with as many elements as the first."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=5))
    perm = draw(st.permutations(range(len(factors))))
    regrouped = [factors[axis] for axis in perm]
    for _ in range(draw(st.integers(0, 3))):
        k = draw(st.integers(0, len(regrouped) - 1))
        if len(regrouped) > 1 and draw(st.booleans()):
            k = min(k, len(regrouped) - 2)
            regrouped[k : k + 2] = [regrouped[k] * regrouped[k + 1]]
        else:
            regrouped.insert(k, 1)
    return tuple(factors), tuple(perm), tuple(regrouped)


@settings(max_examples=50)
@given(_moves())
def test_reshape_past_transpose_is_sound_for_any_shape(move: tuple[tuple[int, ...], ...]) -> None:
    shape, perm, target = move
    text = f"(float{list(shape)} x) => (y) {{ a = Transpose<perm={list(perm)}>(x) y = Reshape(a, s) }}"
    graph = model(text, s=np.array(target))
    check_rule(ReshapeAfterTranspose, graph, _count(ReshapeAfterTranspose, graph))
    split = tuple(reversed(target))
    text = f"(float{list(split)} x) => (y) {{ a = Reshape(x, s) y = Transpose<perm={list(perm)}>(a) }}"
    graph = model(text, s=np.array([shape[axis] for axis in np.argsort(perm)]))
    check_rule(TransposeAfterReshape, graph, _count(TransposeAfterReshape, graph))


def _count(rule, graph) -> int:
    return len(Rewriter([rule()], granularity="site", deployment=False).candidates(graph))
