"""Tables in place of products: what is looked up, what stays, and what is refused."""

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.onnx_files.assembly import named_in
from graph_rewrite.rules.fusion.normalizations import BiasIntoLayerNormalization
from graph_rewrite.rules.matmul import embedding as E
from graph_rewrite.rules.matmul.parallel import MergeTwoBiasedMatMuls
from tests.graph_rewrite.rules.checking import check_rule, eighths, model, ops, refuses

NORM = "x = LayerNormalization<epsilon=1e-3>(e, g, s)"
QKV = "qm = MatMul(x, wq) q = Add(qm, bq) km = MatMul(x, wk) k = Add(bk, km) vm = MatMul(x, wv) v = Add(vm, bv)"


SIZES = {
    "t": (7, 8), "u": (2, 8), "p": (1, 3, 8), "c": (8,), "g": (8,), "s": (8,), "wq": (8, 4), "wk": (8, 4), "wv": (8, 6),
    "bq": (4,), "bk": (1,), "bv": (1, 6), "w": (8, 4), "b": (4,), "narrow": (1, 3, 1),
}  # fmt: skip


def graph(body, outputs="y", inputs="int64[1,3] i", **given):
    found = {k: eighths(*size, seed=n) for n, (k, size) in enumerate(named_in(body, SIZES).items())}
    return model(f"({inputs}) => ({outputs}) {{ {body} }}", **(found | given))


def embedded(total, layers="m = MatMul(x, w) y = Add(m, b)", **more):
    return graph(f"i0 = Gather(t, i) {total} {NORM} {layers}", **more)


@pytest.mark.parametrize(
    ("total", "gathers", "adds"),
    [
        ("e = Add(i0, p)", 2, 3),
        ("a = Add(p, i0) e = Add(a, c)", 2, 4),
        ("j0 = Gather(u, j) a = Add(i0, j0) e = Add(a, p)", 4, 5),
        ("j0 = Gather(u, j) e = Sum(p, j0, i0)", 4, 3),
    ],
)
def test_a_linear_layer_of_embeddings_is_looked_up(total, gathers, adds):
    inputs = "int64[1,3] i, int64[1,3] j" if "j)" in total else "int64[1,3] i"
    (after,) = check_rule(E.LinearOfEmbedding, embedded(total, inputs=inputs))
    found = ops(after)
    assert "MatMul" not in found
    assert (found.count("Gather"), found.count("Add")) == (gathers, adds)


def test_the_normalised_rows_stay_for_other_readers():
    body = embedded("e = Add(i0, p)", "m = MatMul(x, w) y = Add(m, b) z = Neg(x)", outputs="y, z")
    (after,) = check_rule(E.LinearOfEmbedding, body)
    norms = [node for node in after.nodes.values() if node.op == "LayerNormalization"]
    assert [len(node.outputs) for node in norms] == [3]


def test_query_key_and_value_share_a_table():
    body = embedded("a = Add(i0, p) e = Add(a, c)", f"{QKV} z = Neg(x)", outputs="q, k, v, z")
    (after,) = check_rule(E.ThreeLinearsOfEmbedding, body)
    found = ops(after)
    assert "MatMul" not in found
    assert (found.count("Gather"), found.count("Split")) == (2, 1)
    widths = sorted(after.types[node.inputs[0]].shape[1] for node in after.nodes.values() if node.op == "Gather")
    assert widths == [8, 4 + 4 + 6]


def test_three_layers_after_the_normalisation_was_inserted_by_another_rewrite():
    """The order in which nodes were made does not decide what matches."""
    body = graph(
        "i0 = Gather(t, i) e = Add(i0, p) n = LayerNormalization<epsilon=1e-3>(e, g) x = Add(n, s) " + QKV,
        outputs="q, k, v",
    )
    # Without a shift before: what is added is one.
    (candidate,) = Rewriter([BiasIntoLayerNormalization()], "site", deployment=False).candidates(body)
    check_rule(E.ThreeLinearsOfEmbedding, candidate.apply())


def test_two_layers_are_for_a_rule_that_merges_them():
    layers = "a = MatMul(x, wq) y = Add(a, bq) d = MatMul(x, wk) z = Add(d, bk)"
    body = embedded("e = Add(i0, p)", layers, outputs="y, z")
    refuses(E.LinearOfEmbedding, body, "2 products read the normalised rows")
    (merged,) = check_rule(MergeTwoBiasedMatMuls, body)
    check_rule(E.LinearOfEmbedding, merged)


@pytest.mark.parametrize(
    "total",
    ["e = Add(i0, h)", "a = Mul(i0, i0) e = Add(a, p)", "e = Add(i0, narrow)", "e = Identity(i0)"],
)
def test_refusals_of_what_is_normalised(total):
    body = embedded(total, inputs="int64[1,3] i, float[1,3,8] h")
    refuses(E.LinearOfEmbedding, body, "sum of constants and of rows")


def test_other_refusals():
    over_all = graph(
        "i0 = Gather(t, i) e = Add(i0, p) x = LayerNormalization<axis=1>(e, scale) m = MatMul(x, w) y = Add(m, b)",
        scale=eighths(3, 8),
    )
    refuses(E.LinearOfEmbedding, over_all, "over the last axis")
    wide = graph(f"i0 = Gather(t, i) e = Add(i0, p) {NORM} m = MatMul(x, w) y = Add(m, rows)", rows=eighths(3, 4))
    refuses(E.LinearOfEmbedding, wide, "varies along more than the columns")
    columns = graph(f"i0 = Gather<axis=1>(t, i) e = Add(i0, c) {NORM} m = MatMul(x, w) y = Add(m, b)",
                    t=eighths(1, 7), inputs="int64[8] i")  # fmt: skip
    refuses(E.LinearOfEmbedding, columns, "sum of constants and of rows")
    constant = graph(f"n = Neg(h) e = Add(n, p) {NORM} m = MatMul(x, w) y = Add(m, b)", inputs="float[1,3,8] h")
    refuses(E.LinearOfEmbedding, constant, "sum of constants and of rows")


@pytest.mark.parametrize("tokens", ["1,3", "2", "2,1,2"])
def test_products_of_rows(tokens):
    body = graph("r = Gather(t, i) y = MatMul(r, w)", inputs=f"int64[{tokens}] i")
    check_rule(E.MatMulOfLookup, body, becomes=["Gather"])


def test_what_is_looked_up_may_have_other_readers():
    body = graph("r = Gather(t, i) y = MatMul(r, w) z = Neg(r)", outputs="y, z")
    check_rule(E.MatMulOfLookup, body, becomes=["Gather", "Gather", "Neg"])


@pytest.mark.parametrize(
    "norm",
    ["LayerNormalization<axis=2>(r, g)", "LayerNormalization<epsilon=1e-2>(r, g, s)", "RMSNormalization(r, g)"],
)
def test_normalised_rows(norm):
    # The table is normalised in float32.
    body = graph(f"r = Gather(t, i) y = {norm}")
    check_rule(E.NormOfLookup, body, becomes=["Gather"], rtol=1e-6)


def test_a_normalisation_over_more_than_a_row():
    body = graph("r = Gather(t, i) y = LayerNormalization<axis=1>(r, both)", both=eighths(3, 8))
    refuses(E.NormOfLookup, body, "more than the last axis")


def test_a_scale_that_differs_from_position_to_position():
    body = graph("r = Gather(t, i) y = LayerNormalization(r, both)", both=eighths(3, 8))
    refuses(E.NormOfLookup, body, "more than the normalised axes")


@pytest.mark.parametrize("f", ["Add(r, c)", "Sub(c, r)", "Mul(r, two)", "Div(r, two)", "Add(one, r)"])
def test_arithmetic_with_rows(f):
    body = graph(f"r = Gather(t, i) y = {f}", two=np.float32(2), one=eighths(1, 8) + 1)
    check_rule(E.ArithmeticOfLookup, body, becomes=["Gather"])


def test_arithmetic_along_the_tokens():
    body = graph("r = Gather(t, i) y = Add(r, p)")
    refuses(E.ArithmeticOfLookup, body, "more than the columns")
    matrix = graph("r = Gather(t, i) y = Add(r, high)", inputs="int64[3] i", high=eighths(1, 1, 8))
    refuses(E.ArithmeticOfLookup, matrix, "more than the columns")
    grid = graph("r = Gather(cube, i) y = MatMul(r, w)", cube=eighths(7, 2, 8))
    refuses(E.MatMulOfLookup, grid, "not a table")
