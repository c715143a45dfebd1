"""Attention: the exported forms of its core as `Attention`, and back, and over to MultiHeadAttention."""

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rules.attention import core as A
from graph_rewrite.rules.attention import forms as F
from tests.graph_rewrite.rules.checking import check_rule, model, ops, refuses, weights

B, T, S, H, D = 2, 4, 6, 3, 5
MASKS = {"none": "", "full": f", float[{B},{H},{T},{S}] mask", "padding": f", float[{B},1,1,{S}] mask"}
NUMBERS = {"c": np.float32(0.4), "d": np.float32(2.5), "a": np.float32(0.6), "b": np.float32([0.7])}
FLOAT32 = 1e-6  # constants and attributes are rounded to float32, wherever the arithmetic is done

PACKED_RULES = {
    ("c", False): A.FusePackedAttention, ("c", True): A.FusePackedMaskedAttention,
    ("d", False): A.FusePackedDividedAttention, ("d", True): A.FusePackedDividedMaskedAttention,
    ("ab", False): A.FusePackedRootScaledAttention, ("ab", True): A.FusePackedRootScaledMaskedAttention,
}  # fmt: skip
HEADS_RULES = {
    ("c", False): A.FuseAttention, ("c", True): A.FuseMaskedAttention,
    ("d", False): A.FuseDividedAttention, ("d", True): A.FuseDividedMaskedAttention,
    ("", False): A.FuseUnscaledAttention, ("", True): A.FuseUnscaledMaskedAttention,
    ("ab", False): A.FuseRootScaledAttention, ("ab", True): A.FuseRootScaledMaskedAttention,
}  # fmt: skip


def core(scale, masked, operands=("q", "kt", "v"), axis=-1):
    """The text that computes `context`; `scale` names the scalars that stand in it."""
    q, k, v = operands
    product = f"qs = Mul({q}, a) ks = Mul({k}, b) s0 = MatMul(qs, ks)" if scale == "ab" else f"s0 = MatMul({q}, {k})"
    scaled = {"c": "s1 = Mul(s0, c)", "d": "s1 = Div(s0, d)"}.get(scale, "")
    scores = "s1" if scaled else "s0"
    added = f"s2 = Add(mask, {scores})" if masked else ""
    return f"{product} {scaled} {added} w = Softmax<axis={axis}>({'s2' if masked else scores}) context = MatMul(w, {v})"


def core_model(inputs, body, scale, **numbers):
    return model(f"({inputs}) => (context) {{ {body} }}", **{name: NUMBERS[name] for name in scale}, **numbers)


def over_heads(scale="c", mask="none", axis=-1, q=(B, H, T, D), dtype="float"):
    """k is [batch, heads, length, size]."""
    shapes = zip("qkv", (q, (B, H, S, D), (B, H, S, D)), strict=True)
    inputs = ", ".join(f"{dtype}[{','.join(map(str, shape))}] {name}" for name, shape in shapes) + MASKS[mask]
    body = f"kt = Transpose<perm=[0,1,3,2]>(k) {core(scale, mask != 'none', axis=axis)}"
    return core_model(inputs, body, scale)


def packed(scale="c", mask="none", shapes=((B, T, H * D), (B, S, H * D))):
    q, k = (",".join(map(str, shape)) for shape in shapes)
    body = f"""q4 = Reshape(q, sq) k4 = Reshape(k, sk) v4 = Reshape(v, sk)
        qt = Transpose<perm=[0,2,1,3]>(q4) kt = Transpose<perm=[0,2,3,1]>(k4) vt = Transpose<perm=[0,2,1,3]>(v4)
        {core(scale, mask != "none", ("qt", "kt", "vt"))}
        ct = Transpose<perm=[0,2,1,3]>(context) y = Reshape(ct, so)"""
    text = f"(float[{q}] q, float[{k}] k, float[{k}] v{MASKS[mask]}) => (y) {{ {body} }}"
    numbers = {name: NUMBERS[name] for name in scale}
    return model(text, sq=[B, T, H, D], sk=[B, S, H, D], so=[B, T, H * D], **numbers)


def attention(attrs="", mask=None, queries=S, heads=H):
    """Attention over packed heads; `mask` is a constant."""
    names = f"float[{B},{queries},{H * D}] q, float[{B},{S},{heads * D}] k, float[{B},{S},{heads * D}] v"
    operands = "q, k, v" if mask is None else "q, k, v, mask"
    call = f"Attention<q_num_heads={H}, kv_num_heads={heads}{attrs}>({operands})"
    return model(f"({names}) => (y) {{ y = {call} }}", **({} if mask is None else {"mask": mask}))


def multi_head(attrs="", mask="", inputs="", **constants):
    names = ", ".join(f"float[{B},{S},{H * D}] {x}" for x in "qkv")
    call = f"com.microsoft.MultiHeadAttention<num_heads={H}{attrs}>(q, k, v{mask})"
    return model(f"({names}{inputs}) => (y) {{ y = {call} }}", **constants)


def triangle(hidden=-3.4e38):
    return np.where(np.tri(S, dtype=bool), 0, hidden).astype(np.float32)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scale", ["c", "d", "ab"])
def test_packed_core_becomes_one_operator(scale, mask):
    rule = PACKED_RULES[scale, mask != "none"]
    becomes = ["Attention", "Expand"] if mask == "padding" else ["Attention"]
    check_rule(rule, packed(scale, mask), becomes=becomes, rtol=FLOAT32)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scale", ["c", "d", "", "ab"])
def test_core_over_heads_becomes_one_operator(scale, mask):
    rule = HEADS_RULES[scale, mask != "none"]
    becomes = ["Attention", "Expand"] if mask == "padding" else ["Attention"]
    check_rule(rule, over_heads(scale, mask), becomes=becomes, rtol=FLOAT32)


def test_keys_by_position_keep_a_transpose():
    inputs = f"float[{B},{H},{T},{D}] q, float[{B},{S},{H},{D}] k, float[{B},{H},{S},{D}] v"
    graph = core_model(inputs, f"kt = Transpose<perm=[0,2,3,1]>(k) {core('c', False)}", "c")
    check_rule(A.FuseAttention, graph, becomes=["Attention", "Transpose"], rtol=FLOAT32)


def test_core_with_heads_merged_into_the_batch():
    inputs = f"float[{H},{T},{D}] q, float[{H},{S},{D}] k, float[{H},{S},{D}] v, float[{H},1,{S}] mask"
    graph = core_model(inputs, f"kt = Transpose<perm=[0,2,1]>(k) {core('c', True)}", "c")
    becomes = ["Attention", "Expand", "Squeeze", "Unsqueeze", "Unsqueeze", "Unsqueeze"]
    check_rule(A.FuseMaskedAttention, graph, becomes=becomes, rtol=FLOAT32)


def test_packed_core_with_positions_merged_into_the_batch():
    graph = packed(shapes=((B * T, H * D), (B * S, H * D)))
    check_rule(A.FusePackedAttention, graph, becomes=["Attention", "Reshape", "Reshape", "Reshape"], rtol=FLOAT32)


def test_one_action_fuses_all_layers():
    layer = """{0}q = Reshape({0}, s) {0}qt = Transpose<perm=[0,2,1,3]>({0}q) {0}k = Reshape({0}, s)
        {0}kt = Transpose<perm=[0,2,3,1]>({0}k) {0}v = Reshape({0}, s) {0}vt = Transpose<perm=[0,2,1,3]>({0}v)
        {0}s = MatMul({0}qt, {0}kt) {0}t = Mul({0}s, c) {0}w = Softmax({0}t) {0}c = MatMul({0}w, {0}vt)
        {0}m = Transpose<perm=[0,2,1,3]>({0}c) {1} = Reshape({0}m, o)"""
    text = f"(float[1,4,6] x) => (z) {{ {layer.format('x', 'y')} {layer.format('y', 'z')} }}"
    graph = model(text, s=[1, 4, 2, 3], o=[1, 4, 6], c=np.float32(0.5))
    check_rule(A.FusePackedAttention, graph, 2, rtol=FLOAT32)
    candidates = Rewriter([A.FusePackedAttention()], deployment=False).candidates(graph)
    everywhere = next(candidate for candidate in candidates if candidate.kind == "class")
    assert ops(everywhere.apply()) == ["Attention", "Attention"]


def test_what_is_no_attention_is_refused():
    refuses(A.FuseAttention, over_heads(axis=2), "does not run over the keys")
    refuses(A.FuseAttention, over_heads(q=(1, H, T, D)), "batches or heads")
    refuses(A.FuseUnscaledAttention, over_heads("", dtype="double"), "float32 and float16")
    inputs = f"float[{T},{D}] q, float[{S},{D}] k, float[{S},{D}] v"
    body = f"kt = Transpose<perm=[1,0]>(k) {core('', False)}"
    refuses(A.FuseUnscaledAttention, core_model(inputs, body, ""), "3 or all have 4 axes")


@pytest.mark.parametrize("divisor", [0.0, -2.0])
def test_scales_without_a_root_are_refused(divisor):
    inputs = f"float[{B},{H},{T},{D}] q, float[{B},{H},{S},{D}] k, float[{B},{H},{S},{D}] v"
    body = f"kt = Transpose<perm=[0,1,3,2]>(k) {core('d', False)}"
    refuses(A.FuseDividedAttention, core_model(inputs, body, "", d=np.float32(divisor)), "the root of the scale")


def test_mask_that_enlarges_the_scores_is_refused():
    inputs = f"float[1,{H},{T},{D}] q, float[1,{H},{S},{D}] k, float[1,{H},{S},{D}] v, float[{B},1,{T},{S}] mask"
    body = f"kt = Transpose<perm=[0,1,3,2]>(k) {core('c', True)}"
    refuses(A.FuseMaskedAttention, core_model(inputs, body, "c"), "enlarges the scores")


def test_core_whose_weights_are_read_elsewhere_is_refused():
    inputs = f"float[{B},{H},{T},{D}] q, float[{B},{H},{S},{D}] k, float[{B},{H},{S},{D}] v"
    text = f"({inputs}) => (context, w) {{ kt = Transpose<perm=[0,1,3,2]>(k) {core('', False)} }}"
    refuses(A.FuseUnscaledAttention, model(text), "used elsewhere")


def test_heads_are_packed_and_unpacked():
    shapes = {"s": [B, T, H, D], "o": [B, T, H * D]}
    split = " ".join(f"{x}4 = Reshape({x}, s) {x}t = Transpose<perm=[0,2,1,3]>({x}4)" for x in "qkv")
    inputs = ", ".join(f"float[{B},{T},{H * D}] {x}" for x in "qkv")
    call = "a = Attention<is_causal=1>(qt, kt, vt) m = Transpose<perm=[0,2,1,3]>(a) y = Reshape(m, o)"
    graph = model(f"({inputs}) => (y) {{ {split} {call} }}", **shapes)
    (joined,) = check_rule(F.PackAttention, graph, becomes=["Attention"])
    check_rule(F.UnpackAttention, joined, becomes=["Attention", *["Reshape"] * 4, *["Transpose"] * 4])


def test_grouped_heads():
    check_rule(F.UnpackAttention, attention(heads=1), becomes=["Attention", *["Reshape"] * 4, *["Transpose"] * 4])
    refuses(F.ExpandAttention, attention(heads=1), "share a key")
    refuses(F.AttentionAsMultiHead, attention(heads=1), "as many of the keys")


def test_heads_that_are_an_axis_already():
    heads = ", ".join(f"float[{B},{H},{S},{D}] {x}" for x in "qkv")
    graph = model(f"({heads}) => (y) {{ y = Attention(q, k, v) }}")
    check_rule(F.ExpandAttention, graph, becomes=["MatMul", "MatMul", "Mul", "Softmax", "Transpose"], rtol=FLOAT32)
    refuses(F.UnpackAttention, graph, "axis of their own already")


@pytest.mark.parametrize("attrs", ["", ", scale=0.3", ", scale=1.0", ", is_causal=1"])
def test_attention_expands_to_its_core(attrs):
    check_rule(F.ExpandAttention, attention(attrs), rtol=FLOAT32)


def test_expanded_core_is_recognised_again():
    (expanded,) = check_rule(F.ExpandAttention, attention(", scale=0.3"), rtol=FLOAT32)
    check_rule(A.FusePackedAttention, expanded, becomes=["Attention"], rtol=FLOAT32)


@pytest.mark.parametrize("rule", [F.ExpandAttention, F.AttentionAsMultiHead])
@pytest.mark.parametrize("mask", [weights(S, S), weights(1, H, S, S), np.tri(S, dtype=bool), triangle(-np.inf)])
def test_constant_masks_go_along(rule, mask):
    check_rule(rule, attention(", is_causal=1", mask), rtol=FLOAT32)


@pytest.mark.parametrize("rule", [F.ExpandAttention, F.AttentionAsMultiHead])
def test_masks_that_may_hide_all_keys_are_refused(rule):
    blind = np.zeros((S, S), dtype=np.float32)
    blind[2] = -np.inf
    refuses(rule, attention(mask=blind), "hide all keys")
    refuses(rule, attention(mask=np.zeros((S, S), dtype=bool)), "hide all keys")
    # The mask leaves the last key to all queries, and causality hides that from all but the last query.
    last = np.where(np.arange(S) == S - 1, 0.0, -np.inf).astype(np.float32)
    refuses(rule, attention(", is_causal=1", last), "hide all keys")
    names = ", ".join(f"float[{B},{S},{H * D}] {x}" for x in "qkv")
    call = f"Attention<q_num_heads={H}, kv_num_heads={H}>(q, k, v, mask)"
    refuses(rule, model(f"({names}, float[{S},{S}] mask) => (y) {{ y = {call} }}"), "hide all keys")
    refuses(rule, attention(mask=weights(S, S - 1)), "shorter than the keys")


def test_attention_with_a_cap_has_no_plain_core():
    refuses(F.ExpandAttention, attention(", softcap=2.0"), "caps its scores")
    refuses(F.AttentionAsMultiHead, attention(", softmax_precision=11"), "another precision")


@pytest.mark.parametrize("attrs", ["", ", scale=0.3", ", is_causal=1"])
def test_multi_head_attention_and_back(attrs):
    (fused,) = check_rule(F.AttentionAsMultiHead, attention(attrs), becomes=["MultiHeadAttention"], rtol=FLOAT32)
    check_rule(F.MultiHeadAsAttention, fused, becomes=["Attention"], rtol=FLOAT32)


def test_causal_cross_attention_stays():
    refuses(F.AttentionAsMultiHead, attention(", is_causal=1", queries=T), "differ in number")


def test_multi_head_attention_with_a_bias_of_the_scores():
    graph = multi_head(mask=", , , mask", inputs=f", float[1,{H},{S},{S}] mask")
    check_rule(F.MultiHeadAsAttention, graph, becomes=["Attention"], rtol=FLOAT32)


def test_biases_of_projections_move_into_multi_head_attention_and_out():
    adds = " ".join(f"{x}b = Add({x}, b{x})" for x in "qkv")
    names = ", ".join(f"float[{B},{S},{H * D}] {x}" for x in "qkv")
    call = f"com.microsoft.MultiHeadAttention<num_heads={H}, scale=0.3>(qb, kb, vb)"
    biases = {f"b{x}": weights(H * D, seed=i) for i, x in enumerate("qkv")}
    graph = model(f"({names}) => (y) {{ {adds} y = {call} }}", **biases)
    (fused,) = check_rule(F.ProjectionBiasIntoMultiHead, graph, becomes=["MultiHeadAttention"])
    check_rule(F.ProjectionBiasOutOfMultiHead, fused, becomes=["Add", "Add", "Add", "MultiHeadAttention"])
    biases["bk"] = weights(S, H * D)
    graph = model(f"({names}) => (y) {{ {adds} y = {call} }}", **biases)
    refuses(F.ProjectionBiasIntoMultiHead, graph, "one number per channel")


def test_scale_of_the_query():
    names = ", ".join(f"float[{B},{H},{S},{D}] {x}" for x in "qkv")
    text = f"({names}) => (y) {{ s = Mul(q, a) y = Attention(s, k, v) }}"
    check_rule(F.ScaleOfQueryIntoAttention, model(text, a=np.float32(0.3)), becomes=["Attention"], rtol=FLOAT32)
    refuses(F.ScaleOfQueryIntoAttention, model(text, a=np.float32(-0.3)), "the root of the scale")


def test_transpose_between_reshapes_that_merge_and_split():
    text = """(float[2,3,4,5] x) => (y) <int64[3] merged = {-1, 4, 5}, int64[4] split = {2, 3, 5, 4}>
        { m = Reshape(x, merged) t = Transpose<perm=[0,2,1]>(m) y = Reshape(t, split) }"""
    check_rule(F.TransposeOfMergedBatch, model(text), becomes=["Transpose"])
    refuses(F.TransposeOfMergedBatch, model(text.replace("{-1, 4, 5}", "{-1, 2, 10}")), "merge the leading axes")
    refuses(F.TransposeOfMergedBatch, model(text.replace("{2, 3, 5, 4}", "{3, 2, 5, 4}")), "split the leading axes")
