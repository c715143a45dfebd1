"""Masks of attention: dropped, turned into a flag and back, and causal attention in blocks."""

import numpy as np
import pytest
from onnx import numpy_helper

from graph_rewrite.rules.attention import forms as F
from graph_rewrite.rules.attention import masks as M
from tests.graph_rewrite.rules.attention.test_core import B, D, H, S, T, attention, triangle
from tests.graph_rewrite.rules.checking import check_rule, model, refuses
from tests.graph_rewrite.sample_models import parsed


def test_mask_that_hides_nothing_is_dropped():
    check_rule(M.DropOpenMask, attention(mask=np.zeros((1, S), dtype=np.float32).repeat(S, 0)), becomes=["Attention"])
    check_rule(M.DropOpenMask, attention(mask=np.ones((S, S), dtype=bool)), becomes=["Attention"])
    refuses(M.DropOpenMask, attention(mask=triangle()), "changes scores")
    refuses(M.DropOpenMask, attention(mask=np.zeros((S, S - 1), dtype=np.float32)), "shorter")


SEEN = np.tri(S, dtype=bool)


@pytest.mark.parametrize("mask", [triangle(), triangle(-np.inf), triangle(-1e9), triangle()[None, None], SEEN])
def test_causal_mask_is_a_flag(mask):
    (flagged,) = check_rule(M.CausalMaskAsFlag, attention(mask=mask), becomes=["Attention"])
    assert [node.attrs["is_causal"] for node in flagged.nodes.values()] == [1]
    check_rule(M.CausalFlagAsMask, flagged, becomes=["Attention"])


def test_other_masks_are_no_flag():
    refuses(M.CausalMaskAsFlag, attention(mask=triangle(-100.0)), "not 0 up to the diagonal and very negative above")
    refuses(M.CausalMaskAsFlag, attention(mask=triangle().T.copy()), "not 0 up to the diagonal")
    refuses(M.CausalMaskAsFlag, attention(mask=np.zeros((S, S - 1), dtype=np.float32)), "column per key")


def test_selection_by_a_constant_is_a_mask():
    text = f"(float[{B},{H},{S},{S}] x) => (y) {{ s = Where(seen, x, c) y = Softmax(s) }}"
    check_rule(M.SelectionAsMask, model(text, seen=SEEN, c=np.float32(-3.4e38)), becomes=["Add", "Softmax"])
    refuses(M.SelectionAsMask, model(text, seen=SEEN, c=np.float32(-100)), "may still matter")
    refuses(M.SelectionAsMask, model(text, seen=np.tri(S, k=-1, dtype=bool), c=np.float32(-1e30)), "sees nothing")
    across = model(text.replace("Softmax", "Softmax<axis=2>"), seen=SEEN, c=np.float32(-1e30))
    refuses(M.SelectionAsMask, across, "does not run over the keys")
    old = parsed(
        f"(float[{B},{H},{S},{S}] x) => (float[{B},{H},{S},{S}] y) {{ s = Where(seen, x, c) y = Softmax(s) }}",
        numpy_helper.from_array(SEEN, "seen"), numpy_helper.from_array(np.float32(-1e30), "c"), opset=12, ir_version=7,
    )  # fmt: skip
    refuses(M.SelectionAsMask, old, "several axes")


def test_the_keys_are_counted_in_what_a_selection_broadcasts_scores_to():
    text = f"(float[{S},{S}] x) => (y) {{ s = Where(seen, x, c) y = Softmax<axis=AXIS>(s) }}"
    selection = {"seen": SEEN[None, None], "c": np.float32(-1e30)}
    check_rule(M.SelectionAsMask, model(text.replace("AXIS", "3"), **selection), becomes=["Add", "Softmax"])
    refuses(M.SelectionAsMask, model(text.replace("AXIS", "1"), **selection), "does not run over the keys")


def test_attributes_of_later_opsets_are_refused():
    inputs = ", ".join(f"float[{B},8,{H * D}] {x}" for x in "qkv")
    call = f"Attention<q_num_heads={H}, kv_num_heads={H}, is_causal=1, left_window_size=2>(q, k, v)"
    later = model(f"({inputs}) => (float[{B},8,{H * D}] y) {{ y = {call} }}", 25)
    for rule in (M.CausalAttentionInBlocks, F.ExpandAttention, F.AttentionAsMultiHead):
        refuses(rule, later, "the meaning of left_window_size is not known")


@pytest.mark.parametrize("packed_heads", [True, False])
def test_causal_attention_in_blocks(packed_heads):
    shape = (B, 8, H * D) if packed_heads else (B, H, 8, D)
    attrs = f"is_causal=1, q_num_heads={H}, kv_num_heads={H}" if packed_heads else "is_causal=1"
    inputs = ", ".join(f"float[{','.join(map(str, shape))}] {x}" for x in "qkv")
    graph = model(f"({inputs}) => (y) {{ y = Attention<{attrs}>(q, k, v) }}")
    check_rule(M.CausalAttentionInBlocks, graph, becomes=[*["Attention"] * 4, "Concat", *["Slice"] * 6, "Split"])


def test_causal_attention_that_makes_no_blocks():
    refuses(M.CausalAttentionInBlocks, attention(", is_causal=1"), "6 queries do not make 4 equal blocks")
    refuses(M.CausalAttentionInBlocks, attention(", is_causal=1", queries=T), "differ in number")
