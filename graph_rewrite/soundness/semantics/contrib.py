"""The semantics of the operators of com.microsoft that rules use, after ONNX Runtime's operator documentation."""

from __future__ import annotations

from graph_rewrite.soundness.domains.domain import Array
from graph_rewrite.soundness.semantics.activations import activated, gelu_of, swish
from graph_rewrite.soundness.semantics.algebra import ALGEBRA, conv, fused_matmul
from graph_rewrite.soundness.semantics.attention import multi_head_attention
from graph_rewrite.soundness.semantics.call import Call, Semantics
from graph_rewrite.soundness.semantics.normalization import skip_layer_normalization


def _biased(call: Call) -> Array:
    bias = call.maybe(1)
    return call.array(0) if bias is None else call.domain.add(call.array(0), bias)


def _fused_conv(call: Call) -> Array:
    result, z = conv(call), call.maybe(3)
    return activated(call, result if z is None else call.domain.add(result, z))


def _fused_gemm(call: Call) -> Array:
    return activated(call, ALGEBRA["Gemm"](call))


CONTRIB: dict[str, Semantics] = {
    "Gelu": lambda c: gelu_of(c, c.array(0), False),
    "BiasGelu": lambda c: gelu_of(c, _biased(c), False),
    "FastGelu": lambda c: gelu_of(c, _biased(c), True),
    "QuickGelu": lambda c: swish(c, 1.702),
    "SkipLayerNormalization": skip_layer_normalization,
    "FusedMatMul": fused_matmul,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "MultiHeadAttention": multi_head_attention,
}
