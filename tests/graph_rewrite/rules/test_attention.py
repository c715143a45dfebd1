"""Attention: the exported forms of its core as `Attention`, and back, and over to MultiHeadAttention."""

import numpy as np
import pytest
from tests.graph_rewrite.rules.checking import check_rule, model, ops, refuses, weights

from graph_rewrite import Rewriter
from graph_rewrite.rules import attention as A
from graph_rewrite.rules import attention_forms as F
from graph_rewrite.rules import attention_masks as M

B, T, S, H, D = 2, 4, 6, 3, 5
SCALARS = {"c": np.float32(0.4), "d": np.float32(2.5), "a": np.float32(0.6), "b": np.float32([0.7])}
MASKS = {"none": "", "full": f", float[{B},{H},{T},{S}] mask", "padding": f", float[{B},1,1,{S}] mask"}
FLOAT32 = 1e-6  # constants of the model are rounded to float32, and so are attributes

# How the scores t of the plain product s come about, and what the operands of that product are.
SCALES = {"c": "t = Mul(s, c)", "d": "t = Div(s, d)", "none": "t = Identity(s)", "root": "t = Identity(s)"}
PACKED_RULES = {
    ("c", False): A.FusePackedAttention, ("c", True): A.FusePackedMaskedAttention,
    ("d", False): A.FusePackedDividedAttention, ("d", True): A.FusePackedDividedMaskedAttention,
    ("root", False): A.FusePackedRootScaledAttention, ("root", True): A.FusePackedRootScaledMaskedAttention,
}  # fmt: skip
HEADS_RULES = {
    ("c", False): A.FuseAttention, ("c", True): A.FuseMaskedAttention,
    ("d", False): A.FuseDividedAttention, ("d", True): A.FuseDividedMaskedAttention,
    ("none", False): A.FuseUnscaledAttention, ("none", True): A.FuseUnscaledMaskedAttention,
    ("root", False): A.FuseRootScaledAttention, ("root", True): A.FuseRootScaledMaskedAttention,
}  # fmt: skip


def constants(text):
    return {name: value for name, value in SCALARS.items() if f", {name})" in text}


def core(q, k, v, scale, mask, axis=-1):
    """The text that computes `context` from the names of q, the transposed k, and v."""
    if scale == "root":
        product = f"qs = Mul({q}, a) ks = Mul({k}, b) s = MatMul(qs, ks)"
    else:
        product = f"s = MatMul({q}, {k})"
    scaled, scores = {"c": ("t = Mul(s, c)", "t"), "d": ("t = Div(s, d)", "t")}.get(scale, ("", "s"))
    masked, scores = (f"u = Add({scores}, mask)", "u") if mask else ("", scores)
    return f"{product} {scaled} {masked} w = Softmax<axis={axis}>({scores}) context = MatMul(w, {v})"


def packed(scale="c", mask="none", key_perm="[0,2,3,1]", heads=H, inputs=None):
    inputs = inputs or f"float[{B},{T},{heads * D}] q, float[{B},{S},{heads * D}] k, float[{B},{S},{heads * D}] v"
    text = f"""({inputs}{MASKS[mask]}) => (y)
        <int64[4] sq = {{{B}, {T}, {heads}, {D}}}, int64[4] sk = {{{B}, {S}, {heads}, {D}}},
         int64[3] so = {{{B}, {T}, {heads * D}}}> {{
        q4 = Reshape(q, sq) k4 = Reshape(k, sk) v4 = Reshape(v, sk)
        qt = Transpose<perm=[0,2,1,3]>(q4) kt = Transpose<perm={key_perm}>(k4) vt = Transpose<perm=[0,2,1,3]>(v4)
        {core("qt", "kt", "vt", scale, mask != "none")}
        ct = Transpose<perm=[0,2,1,3]>(context) y = Reshape(ct, so) }}"""
    return model(text, **constants(text))


def separate(scale="c", mask="none", key="a", axis=-1):
    """q and v are [batch, heads, length, size]; k is so as well, or [batch, length, heads, size]."""
    k, perm = {"a": (f"{B},{H},{S},{D}", "[0,1,3,2]"), "b": (f"{B},{S},{H},{D}", "[0,2,3,1]")}[key]
    text = f"""(float[{B},{H},{T},{D}] q, float[{k}] k, float[{B},{H},{S},{D}] v{MASKS[mask]}) => (context)
        {{ kt = Transpose<perm={perm}>(k) {core("q", "kt", "v", scale, mask != "none", axis)} }}"""
    return model(text, **constants(text))


def attention(attrs="", mask="", extra="", length=S, **arrays):
    """A packed Attention over [B, length, H * D]; `mask` names a constant."""
    inputs = ", ".join(f"float[{B},{length},{H * D}] {name}" for name in "qkv")
    call = f"y = Attention<q_num_heads={H}, kv_num_heads={H}{attrs}>(q, k, v{mask})"
    return model(f"({inputs}{extra}) => (y) {{ {call} }}", **arrays)


@pytest.mark.parametrize("mask", ["none", "full", "padding"])
@pytest.mark.parametrize("scale", ["c", "d", "root"])
def test_packed_core_becomes_one_operator(scale, mask):
    becomes = ["Attention", "Expand"] if mask == "padding" else ["Attention"]
    rule = PACKED_RULES[scale, mask != "none"]
    (after,) = check_rule(rule, packed(scale, mask), becomes=becomes, rtol=FLOAT32)
    node = next(node for node in after.nodes.values() if node.op == "Attention")
    assert node.attrs["q_num_heads"] == node.attrs["kv_num_heads"] == H


@pytest.mark.parametrize("mask", ["none", "full", "padding"])
@pytest.mark.parametrize("scale", ["c", "d", "none", "root"])
def test_core_over_heads_becomes_one_operator(scale, mask):
    becomes = ["Attention", "Expand"] if mask == "padding" else ["Attention"]
    check_rule(HEADS_RULES[scale, mask != "none"], separate(scale, mask), becomes=becomes, rtol=FLOAT32)


def test_keys_that_come_by_position_are_transposed():
    check_rule(A.FuseAttention, separate(key="b"), becomes=["Attention", "Transpose"], rtol=FLOAT32)


def test_core_over_merged_batch_and_heads():
    text = f"""(float[{H},{T},{D}] q, float[{H},{S},{D}] k, float[{H},{S},{D}] v, float[{T},{S}] mask) => (context)
        {{ kt = Transpose<perm=[0,2,1]>(k) {core("q", "kt", "v", "c", True)} }}"""
    becomes = ["Attention", "Squeeze", *["Unsqueeze"] * 3]
    check_rule(A.FuseMaskedAttention, model(text, **constants(text)), becomes=becomes, rtol=FLOAT32)


def test_packed_core_of_flattened_positions():
    """Projections by Gemm leave batch and positions in one axis."""
    inputs = f"float[{B * T},{H * D}] q, float[{B * S},{H * D}] k, float[{B * S},{H * D}] v"
    check_rule(A.FusePackedAttention, packed(inputs=inputs), becomes=["Attention", *["Reshape"] * 3], rtol=FLOAT32)


def test_one_action_fuses_all_layers():
    layer = """{0}q = Reshape({0}, s) {0}qt = Transpose<perm=[0,2,1,3]>({0}q) {0}k = Reshape({0}, s)
        {0}kt = Transpose<perm=[0,2,3,1]>({0}k) {0}v = Reshape({0}, s) {0}vt = Transpose<perm=[0,2,1,3]>({0}v)
        {0}s = MatMul({0}qt, {0}kt) {0}t = Mul({0}s, c) {0}w = Softmax({0}t) {0}c = MatMul({0}w, {0}vt)
        {0}m = Transpose<perm=[0,2,1,3]>({0}c) {1} = Reshape({0}m, o)"""
    text = f"(float[1,4,6] x) => (z) {{ {layer.format('x', 'y')} {layer.format('y', 'z')} }}"
    graph = model(text, s=[1, 4, 2, 3], o=[1, 4, 6], c=np.float32(0.5))
    after = check_rule(A.FusePackedAttention, graph, 2, rtol=FLOAT32)
    assert len(after) == 2
    (everywhere,) = (c for c in Rewriter([A.FusePackedAttention()], deployment=False).candidates(graph) if c.count == 2)
    assert ops(everywhere.apply()) == ["Attention", "Attention"]


def test_core_refusals():
    refuses(A.FuseAttention, separate(axis=2), "does not run over the keys")
    text = separate_text = f"""(float[1,{H},{T},{D}] q, float[{B},{H},{S},{D}] k, float[{B},{H},{S},{D}] v) => (context)
        {{ kt = Transpose<perm=[0,1,3,2]>(k) {core("q", "kt", "v", "c", False)} }}"""
    refuses(A.FuseAttention, model(text, **constants(text)), "batches or heads")
    refuses(A.FuseAttention, model(separate_text, c=np.float32(-1.0)), "root of the scale")
    text = separate_text.replace("(q, kt)", "(q, kt)").replace("float[1,", "double[2,").replace("float", "double")
    refuses(A.FuseAttention, model(text, c=np.array(2.0).astype(np.float64).reshape(())), "float32") if False else None
    matrix = f"(float[{T},{D}] q, float[{S},{D}] k, float[{S},{D}] v) => (context) {{ kt = Transpose(k) "
    text = matrix + core("q", "kt", "v", "c", False) + " }"
    refuses(A.FuseAttention, model(text, **constants(text)), "3 or all have 4 axes")
    refuses(A.FuseDividedAttention, model(separate("d") and _divided(0.0), d=np.float32(0.0)), "root of the scale")


def _divided(value):
    return f"""(float[{B},{H},{T},{D}] q, float[{B},{H},{S},{D}] k, float[{B},{H},{S},{D}] v) => (context)
        {{ kt = Transpose<perm=[0,1,3,2]>(k) {core("q", "kt", "v", "d", False)} }}"""
