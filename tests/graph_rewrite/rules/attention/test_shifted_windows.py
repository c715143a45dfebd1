"""Attention over shifted windows: positions and masks of windows become one mask."""

import pytest

from graph_rewrite.rules.attention.core import FuseShiftedWindowAttention
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

B, T, S, H, D = 2, 4, 6, 3, 5


def shifted(windows=(1, B, H, T, S), mask=(B, 1, T, S), axis=-1, out=(B, H, T, S), batch=B):
    """Scores with positions, and with a mask per window while these are an axis of their own."""
    body = f"""kt = Transpose<perm=[0,1,3,2]>(k) s0 = MatMul(q, kt) s1 = Add(s0, p) s2 = Reshape(s1, sw)
        s3 = Add(s2, mask) s4 = Reshape(s3, so) w = Softmax<axis={axis}>(s4) y = MatMul(w, v)"""
    inputs = f"float[{batch},{H},{T},{D}] q, float[{batch},{H},{S},{D}] k, float[{batch},{H},{S},{D}] v"
    numbers = {"p": weights(H, T, S), "mask": weights(*mask, seed=1)}
    return model(f"({inputs}) => (y) {{ {body} }}", sw=list(windows), so=list(out), **numbers)


@pytest.mark.parametrize("windows", [(1, B, H, T, S), (B, 1, H, T, S)])
def test_masks_of_windows_join_the_positions(windows):
    mask = (B, 1, T, S) if windows[0] == 1 else (1, 1, T, S)
    check_rule(FuseShiftedWindowAttention, shifted(windows, mask), becomes=["Attention"], rtol=1e-6)


def test_windows_that_are_no_axis_of_their_own_may_be_masked_too():
    check_rule(FuseShiftedWindowAttention, shifted((B * H, T, S), (T, S)), becomes=["Attention"], rtol=1e-6)


def test_what_is_no_attention_is_refused():
    refuses(FuseShiftedWindowAttention, shifted(axis=2), "does not run over the keys")
    merged = shifted((1, 1, H, T, S), (1, T, S), out=(H, T, S), batch=1)
    refuses(FuseShiftedWindowAttention, merged, "changes the shape")
