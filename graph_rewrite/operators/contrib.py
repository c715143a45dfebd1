"""ONNX Runtime's own operators (domain com.microsoft) that rules use: types and reference semantics.

onnx has no schemas for them. Semantics follow ONNX Runtime's documentation of contrib operators; the tests compare
each with ONNX Runtime itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.functions import (
    attention,
    gelu,
    gelu_by_tanh,
    layer_norm,
    merge_heads,
    sigmoid,
    split_heads,
)
from graph_rewrite.operators.standard_semantics import EvaluationError, UnknownOperatorError, run_standard
from graph_rewrite.operators.standard_types import TypeInferenceError, infer_standard

DOMAIN = "com.microsoft"
Array = np.ndarray[Any, Any]
Attrs = Mapping[str, Any]


def infer(
    op: str, attrs: Mapping[str, AttrValue], inputs: Sequence[TensorType | None], outputs: int
) -> tuple[TensorType | None, ...]:
    """Return the output types of a contrib operator; None where they are not known.

    Raises:
        TypeInferenceError: the operator refuses these inputs.
    """
    rule = _TYPES.get(op)
    if rule is None or not inputs or inputs[0] is None:
        return (None,) * outputs
    try:
        found = rule(attrs, [t for t in inputs if t is not None])
    except TypeInferenceError as error:
        raise TypeInferenceError(f"{op} cannot take {', '.join(map(str, inputs))}: {error}") from error
    known = (found,) if isinstance(found, TensorType) else found
    return (*known, *(None,) * outputs)[:outputs]


def is_modelled(op: str) -> bool:
    """Tell whether `run` knows the operator."""
    return op in _SEMANTICS


def run(op: str, attrs: Attrs, inputs: Sequence[Array | None]) -> list[Array]:
    """Apply a contrib operator to numpy arrays.

    Raises:
        UnknownOperatorError: for an operator that is not modelled.
        EvaluationError: the operator cannot be applied to these inputs.
    """
    function = _SEMANTICS.get(op)
    if function is None:
        raise UnknownOperatorError(f"no reference semantics for {DOMAIN}.{op}")
    try:
        result = function(attrs, *inputs)
    except EvaluationError:
        raise
    except ValueError as error:  # numpy refuses shapes that do not fit
        raise EvaluationError(f"{DOMAIN}.{op}: {error}") from error
    return list(result) if isinstance(result, tuple) else [result]


def _same_as_first(attrs: Attrs, types: Sequence[TensorType]) -> TensorType:
    return types[0]


def _skip_layer_norm_types(attrs: Attrs, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    total = types[0]
    statistic = TensorType(total.dtype, (*total.shape[:-1], 1))
    return (total, statistic, statistic, total)


def _matmul_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise TypeInferenceError(f"inner dimensions of {a} and {b} differ")
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError as error:
        raise TypeInferenceError(str(error)) from error
    return (*batch, a[-2], b[-1])


def _swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) < 2:
        raise TypeInferenceError(f"an operand of shape {shape} has no transpose")
    return (*shape[:-2], shape[-1], shape[-2])


def _fused_matmul_type(attrs: Attrs, types: Sequence[TensorType]) -> TensorType:
    if len(types) < 2:
        raise TypeInferenceError("two operands are needed")
    if attrs.get("transBatchA", 0) or attrs.get("transBatchB", 0):
        raise TypeInferenceError("transposed batches are not modelled")
    a = _swapped(types[0].shape) if attrs.get("transA", 0) else types[0].shape
    b = _swapped(types[1].shape) if attrs.get("transB", 0) else types[1].shape
    return TensorType(types[0].dtype, _matmul_shape(a, b))


def _fused_conv_type(attrs: Attrs, types: Sequence[TensorType]) -> TensorType:
    plain = {k: v for k, v in attrs.items() if k not in ("activation", "activation_params")}
    found = infer_standard("Conv", "", plain, [(t, None) for t in types[:2]], 1, 22)[0]
    if found is None:
        raise TypeInferenceError("unknown shape")
    return found


def _mha_type(attrs: Attrs, types: Sequence[TensorType]) -> TensorType:
    query = types[0]
    if query.rank != 3 or len(types) < 3 or types[2].rank != 3:
        raise TypeInferenceError("query, key and value must have rank 3")
    if query.shape[2] % attrs["num_heads"]:
        raise TypeInferenceError(f"hidden size {query.shape[2]} is not a multiple of {attrs['num_heads']} heads")
    return TensorType(query.dtype, (*query.shape[:2], types[2].shape[2]))


def _gelu(attrs: Attrs, x: Array) -> Array:
    return gelu(x)


def _bias_gelu(attrs: Attrs, x: Array, bias: Array) -> Array:
    return gelu(x + bias)


def _fast_gelu(attrs: Attrs, x: Array, bias: Array | None = None) -> Array:
    return gelu_by_tanh(x if bias is None else x + bias)


def _quick_gelu(attrs: Attrs, x: Array) -> Array:
    result: Array = x * sigmoid(attrs.get("alpha", 1.702) * x)
    return result


def _skip_layer_norm(
    attrs: Attrs, x: Array, skip: Array, gamma: Array, beta: Array | None = None, bias: Array | None = None
) -> tuple[Array, ...]:
    """Return the normalised sum, its mean and inverse deviation (which the CPU kernel leaves out), and the sum
    itself."""
    total = x + skip if bias is None else x + skip + bias
    epsilon = attrs.get("epsilon", 1e-12)
    deviation = np.sqrt(total.var(axis=-1, keepdims=True) + epsilon)
    return layer_norm(total, gamma, beta, epsilon), total.mean(axis=-1, keepdims=True), 1 / deviation, total


def _fused_matmul(attrs: Attrs, a: Array, b: Array) -> Array:
    a = np.swapaxes(a, -1, -2) if attrs.get("transA", 0) else a
    b = np.swapaxes(b, -1, -2) if attrs.get("transB", 0) else b
    result: Array = attrs.get("alpha", 1.0) * np.matmul(a, b)
    return result


_ACTIVATIONS: dict[str, Callable[..., Array]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": sigmoid,
    "Tanh": np.tanh,
    "LeakyRelu": lambda x, alpha: np.where(x < 0, alpha * x, x),
    "Clip": np.clip,
}


def _fused_conv(attrs: Attrs, x: Array, w: Array, b: Array | None = None, z: Array | None = None) -> Array:
    plain = {k: v for k, v in attrs.items() if k not in ("activation", "activation_params")}
    result = run_standard("Conv", "", plain, [x, w, b], 22)[0]
    result = result if z is None else result + z
    activation = attrs.get("activation", "")
    return _ACTIVATIONS[activation](result, *attrs.get("activation_params", ())) if activation else result


def _multi_head_attention(
    attrs: Attrs, query: Array, key: Array, value: Array, bias: Array | None = None, padding: Array | None = None,
    attention_bias: Array | None = None,
) -> Array:  # fmt: skip
    if padding is not None:
        raise UnknownOperatorError(f"{DOMAIN}.MultiHeadAttention with a key padding mask is not modelled")
    heads, hidden = attrs["num_heads"], query.shape[-1]
    if bias is not None:
        parts = np.split(bias, [hidden, 2 * hidden])
        query, key, value = query + parts[0], key + parts[1], value + parts[2]
    q, k, v = (split_heads(x, heads) for x in (query, key, value))
    scale = attrs.get("scale", 0.0) or None
    return merge_heads(attention(q, k, v, attention_bias, scale, bool(attrs.get("unidirectional", 0))))


_TYPES: dict[str, Callable[[Attrs, Sequence[TensorType]], TensorType | tuple[TensorType, ...]]] = {
    "Gelu": _same_as_first,
    "BiasGelu": _same_as_first,
    "FastGelu": _same_as_first,
    "QuickGelu": _same_as_first,
    "SkipLayerNormalization": _skip_layer_norm_types,
    "FusedMatMul": _fused_matmul_type,
    "FusedConv": _fused_conv_type,
    "MultiHeadAttention": _mha_type,
}

_SEMANTICS: dict[str, Callable[..., Array | tuple[Array, ...]]] = {
    "Gelu": _gelu,
    "BiasGelu": _bias_gelu,
    "FastGelu": _fast_gelu,
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_norm,
    "FusedMatMul": _fused_matmul,
    "FusedConv": _fused_conv,
    "MultiHeadAttention": _multi_head_attention,
}
