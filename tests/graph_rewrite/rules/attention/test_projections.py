"""Queries, keys and values out of one product: their heads by Slice, Gather and Split, and the product cut apart."""

import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rules.attention import projections as P
from graph_rewrite.rules.matmul.parallel import SeparateThreeBiasedMatMuls
from tests.graph_rewrite.rules.checking import check_rule, model, ops, refuses, weights

B, T, H, D = 2, 4, 3, 5
CUTS = {
    "slices": ("{2}1 = Slice(h, i{0}, i{1}, i0) {2} = Squeeze({2}1, i0)", P.HeadsOfSlices),
    "gathers": ("{2} = Gather<axis=0>(h, g{0})", P.HeadsOfGathers),
    "split": ("{2} = Squeeze(n{0}, i0)", P.HeadsOfSplit),
}


def packed(cut="slices", *, perm="2,0,3,1,4", shape=(B, T, 3, H, D), order=(0, 1, 2), hidden=3 * H * D, linear=False):
    """Three outputs q, k and v; `order` says which index each of them takes."""
    text, _ = CUTS[cut]
    parts = " ".join(text.format(i, i + 1, name) for i, name in zip(order, "qkv", strict=True))
    split = "n0, n1, n2 = Split<axis=0, num_outputs=3>(h)" if cut == "split" else ""
    inputs, product = (f"float[{B},{T},7] u", "w0 = MatMul(u, w) x = Add(w0, c)") if linear else (
        f"float[{B},{T},{hidden}] x", ""
    )  # fmt: skip
    body = f"{product} r = Reshape(x, s) h = Transpose<perm=[{perm}]>(r) {split} {parts}"
    constants = {f"i{i}": [i] for i in range(4)} | {f"g{i}": i for i in range(4)} | {"s": list(shape)}
    numbers = {"w": weights(7, hidden), "c": weights(hidden)} if linear else {}
    return model(f"({inputs}) => (q, k, v) {{ {body} }}", **constants, **numbers)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("cut", CUTS)
def test_parts_are_cut_before_their_heads(cut, order):
    check_rule(
        CUTS[cut][1], packed(cut, order=order), becomes=[*["Reshape"] * 3, "Split", *["Transpose"] * 3]
    )  # fmt: skip


def test_heads_in_another_order_of_axes():
    check_rule(P.HeadsOfSlices, packed(perm="2,0,3,4,1"))


def test_without_heads():
    graph = model(
        f"(float[{T},{3 * D}] x) => (q, k, v) {{ r = Reshape(x, s) h = Transpose<perm=[1,0,2]>(r)"
        " q = Gather<axis=0>(h, g0) k = Gather<axis=0>(h, g1) v = Gather<axis=0>(h, g2) }",
        s=[T, 3, D], g0=0, g1=-2, g2=2,
    )  # fmt: skip
    check_rule(P.HeadsOfGathers, graph, becomes=["Split"])


def test_the_product_is_cut_apart_then():
    rewriter = Rewriter([P.HeadsOfGathers(), SeparateThreeBiasedMatMuls()], deployment=False)
    graph = packed("gathers", linear=True)
    for _ in range(2):
        graph = next(iter(rewriter.candidates(graph))).apply()
    assert [op for op in ops(graph) if op in ("MatMul", "Split")] == ["MatMul"] * 3


def test_what_is_cut_otherwise_is_refused():
    refuses(P.HeadsOfSlices, packed(order=(0, 1, 1)), "not the three indices")
    refuses(P.HeadsOfSlices, packed(perm="0,2,3,1,4", shape=(3, T, B, H, D)), "does not cut the last axis")
    refuses(P.HeadsOfGathers, packed("gathers", perm="3,0,2,1,4", shape=(B, T, H, 3, D)), "does not cut the last axis")
    refuses(P.HeadsOfSlices, packed(perm="2,0,3,1,4", shape=(B, T, 4, H, D), hidden=4 * H * D), "three parts")
