"""Reference semantics of ONNX's own operators over numpy arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.operators.functions import (
    attention,
    erf,
    gelu,
    gelu_by_tanh,
    layer_norm,
    merge_heads,
    sigmoid,
    softmax,
    split_heads,
)
from graph_rewrite.operators.standard_types import make_node

Array = np.ndarray[Any, Any]
_SMALL = 64
"""Most elements of the matrices of a stack that are multiplied as one."""


class EvaluationError(InvalidRewriteError):
    """An operator cannot be applied to these inputs."""


class UnknownOperatorError(EvaluationError, NotImplementedError):
    """An operator has no reference semantics."""


def run_standard(
    op: str, domain: str, attrs: Mapping[str, AttrValue], inputs: Sequence[Array | None], opset: int, outputs: int = 1
) -> list[Array]:
    """Apply an operator that onnx's reference evaluator knows.

    Raises:
        UnknownOperatorError: the reference evaluator does not know the operator.
        EvaluationError: it cannot apply the operator to these inputs.
    """
    if defaults := _float_defaults(op, domain, opset):
        attrs = {**defaults, **attrs}
    direct: Any = _DIRECT.get(op) if op != "Softmax" or opset >= 13 else _softmax_of_rows
    if direct is not None and _is_direct(op, inputs, outputs, opset):
        try:
            return [np.asarray(direct(attrs, *inputs))]
        except (TypeError, ValueError) as error:  # numpy has no arithmetic for some of ONNX's element types
            raise EvaluationError(f"{type(error).__name__}: {error}") from error
    node = make_node(op, domain, attrs, [None if a is None else f"i{k}" for k, a in enumerate(inputs)], outputs)
    feeds = {f"i{k}": array for k, array in enumerate(inputs) if array is not None}
    try:
        results = _evaluator(node.SerializeToString(), opset).run(None, feeds)
    except NotImplementedError as error:
        raise UnknownOperatorError(f"{type(error).__name__}: {error}") from error
    except Exception as error:  # the evaluator raises whatever its numpy code happens to raise
        raise EvaluationError(f"{type(error).__name__}: {error}") from error
    return [np.asarray(array) for array in results]


@lru_cache(maxsize=1024)
def _float_defaults(op: str, domain: str, opset: int) -> Mapping[str, float]:
    """Return the defaults of an operator's numbers as runtimes have them: the epsilon of float32 nearest to 1e-5, in
    models of float64 too. The reference evaluator has that of float64."""
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return {}
    defaults = [attribute.default_value for attribute in schema.attributes.values()]
    return {value.name: value.f for value in defaults if value.type == onnx.AttributeProto.FLOAT}


@lru_cache(maxsize=1024)
def _evaluator(node: bytes, opset: int) -> ReferenceEvaluator:
    return ReferenceEvaluator(_as_model(onnx.NodeProto.FromString(node), opset))


def _as_model(node: onnx.NodeProto, opset: int) -> onnx.ModelProto:
    untyped = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(node.input) if name]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = onnx.helper.make_graph([node], "operator", untyped, outputs)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])


def _reshape(attrs: Mapping[str, AttrValue], data: Array, shape: Array) -> Array:
    target = [int(dim) for dim in shape]
    if not attrs.get("allowzero", 0):
        if 0 in target[data.ndim :]:
            raise ValueError(f"a target of 0 in {target} stands for a size that {data.shape} does not have")
        target = [data.shape[i] if dim == 0 else dim for i, dim in enumerate(target)]
    return data.reshape(target)


def _is_direct(op: str, inputs: Sequence[Array | None], outputs: int, opset: int) -> bool:
    """Tell whether the shortcut in `_DIRECT` covers this use of the operator."""
    if op == "Attention":
        return outputs == 1 and len(inputs) <= 4 and opset < 25  # no cache; opset 25 has windows
    if op == "MaxPool":
        return outputs == 1 and inputs[0] is not None and inputs[0].dtype.kind in "fiu"
    if op == "QuantizeLinear":
        to_bytes = len(inputs) == 3 and inputs[2] is not None and inputs[2].dtype in (np.int8, np.uint8)
        return to_bytes and inputs[1] is not None and inputs[1].ndim == 0
    return outputs == 1


def _quantize(attrs: Mapping[str, AttrValue], x: Array, scale: Array, zero: Array) -> Array:
    """Quantise by one scale. The reference evaluator gives wrong integers for numbers beyond 2**31 steps."""
    ends = np.iinfo(zero.dtype)
    steps: Array = np.clip(np.rint(x / scale) + zero.astype(x.dtype), ends.min, ends.max)
    return steps.astype(zero.dtype)


def _gelu(attrs: Mapping[str, AttrValue], x: Array) -> Array:
    return gelu_by_tanh(x) if attrs.get("approximate") == "tanh" else gelu(x)


def _softmax_of_rows(attrs: Mapping[str, AttrValue], x: Array) -> Array:
    """Apply Softmax as before opset 13, over all axes from `axis` on together. The reference evaluator knows the newer
    definition only."""
    rows = x.reshape(math.prod(x.shape[: attrs.get("axis", 1) % x.ndim]), -1)
    return softmax(rows).reshape(x.shape)


def _max_pool(attrs: Mapping[str, AttrValue], x: Array) -> Array:
    """Apply MaxPool over any number of spatial axes; the reference evaluator fails on some of its attributes
    together."""
    kernel, sizes = attrs["kernel_shape"], x.shape[2:]
    rank, mode = len(kernel), attrs.get("auto_pad", "NOTSET")
    strides, dilations = attrs.get("strides", (1,) * rank), attrs.get("dilations", (1,) * rank)
    pads = attrs.get("pads", (0,) * (2 * rank)) if mode == "NOTSET" else (0,) * (2 * rank)
    before, counts = list(pads[:rank]), []
    for i, (size, k, stride, dilation) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        span = (k - 1) * dilation + 1
        if mode.startswith("SAME"):
            counts.append(-(-size // stride))
            total = max((counts[-1] - 1) * stride + span - size, 0)
            before[i] = total // 2 if mode == "SAME_UPPER" else total - total // 2
            continue
        room = size + before[i] + pads[rank + i] - span
        count = (-(-room // stride) if attrs.get("ceil_mode", 0) else room // stride) + 1
        # A window must not start in the padding at the end.
        counts.append(count - (attrs.get("ceil_mode", 0) and (count - 1) * stride >= size + before[i]))
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    reach = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(counts, strides, kernel, dilations, strict=True)]
    room_after = [max(r - b - size, 0) for r, b, size in zip(reach, before, sizes, strict=True)]
    padded = np.pad(x, [(0, 0), (0, 0), *zip(before, room_after, strict=True)], constant_values=least)
    taps = []
    for offset in itertools.product(*map(range, kernel)):
        starts = [o * d for o, d in zip(offset, dilations, strict=True)]
        steps = zip(starts, counts, strides, strict=True)
        taps.append(padded[:, :, *(slice(start, start + (n - 1) * s + 1, s) for start, n, s in steps)])
    result: Array = np.max(taps, axis=0)
    return result


def _layer_normalization(attrs: Mapping[str, AttrValue], x: Array, scale: Array, bias: Array | None = None) -> Array:
    # `stash_type` only names the precision of the statistics; here everything has that of x, or better.
    return layer_norm(x, scale, bias, attrs.get("epsilon", 1e-5), attrs.get("axis", -1))


def _rms_normalization(attrs: Mapping[str, AttrValue], x: Array, scale: Array) -> Array:
    axes = tuple(range(attrs.get("axis", -1) % x.ndim, x.ndim))
    mean_square = np.mean(x * x, axis=axes, keepdims=True)
    result: Array = x / np.sqrt(mean_square + attrs.get("epsilon", 1e-5)) * scale
    return result


def _attention(
    attrs: Mapping[str, AttrValue], query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """Apply Attention without a cache to [batch, heads, length, size], or [batch, length, hidden] with the numbers of
    heads given."""
    packed = query.ndim == 3
    if packed:
        query = split_heads(query, attrs["q_num_heads"])
        key, value = (split_heads(x, attrs["kv_num_heads"]) for x in (key, value))
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = np.repeat(key, groups, axis=1), np.repeat(value, groups, axis=1)
    if mask is not None and mask.dtype == np.bool_:
        mask = np.where(mask, 0.0, -np.inf).astype(query.dtype)
    if mask is not None and mask.shape[-1] < key.shape[2]:
        missing = [(0, 0)] * (mask.ndim - 1) + [(0, key.shape[2] - mask.shape[-1])]
        mask = np.pad(mask, missing, constant_values=-np.inf)
    result = attention(
        query, key, value, mask, attrs.get("scale"), bool(attrs.get("is_causal", 0)), attrs.get("softcap", 0.0)
    )
    return merge_heads(result) if packed else result


def _matmul(a: Array, b: Array) -> Array:
    """`numpy.matmul`, but stacks of small matrices, such as kernels on their way into Winograd's domain, are multiplied
    as one product: NumPy takes them one by one."""
    product: Array | None = None
    if a.dtype.kind == b.dtype.kind == "f" and a.size and b.size:
        if a.ndim > 2 and b.ndim == 2:
            product = (a.reshape(-1, a.shape[-1]) @ b).reshape(*a.shape[:-1], b.shape[-1])
        elif a.ndim == 2 and b.ndim > 2 and b.shape[-2] * b.shape[-1] <= _SMALL:
            rows, (inner, columns) = a.shape[0], b.shape[-2:]
            if np.isfinite(a).all() and np.isfinite(b).all():  # the zeros of the identity would turn others into NaN
                spread = np.kron(a, np.eye(columns, dtype=a.dtype))
                product = (b.reshape(-1, inner * columns) @ spread.T).reshape(*b.shape[:-2], rows, columns)
    return np.asarray(np.matmul(a, b)) if product is None else product


# The reference evaluator takes about 100 us per call, and down-casts or loops over elements in some operators; these
# are the ones that weights pass through, and those of transformers.
_DIRECT: dict[str, Any] = {
    "QuantizeLinear": _quantize,
    "Transpose": lambda attrs, x: np.asarray(np.transpose(x, attrs.get("perm")), order="C"),
    "Reshape": _reshape,
    "Concat": lambda attrs, *xs: np.concatenate(xs, axis=attrs["axis"]),
    "MatMul": lambda attrs, a, b: _matmul(a, b),
    "Mul": lambda attrs, a, b: a * b,
    "Add": lambda attrs, a, b: a + b,
    "Sub": lambda attrs, a, b: a - b,
    "Identity": lambda attrs, x: x,
    "MaxPool": _max_pool,
    # The reference evaluator drops an axis where there is one spatial axis alone.
    "GlobalMaxPool": lambda attrs, x: x.max(axis=tuple(range(2, x.ndim)), keepdims=True),
    "Softsign": lambda attrs, x: x / (1 + np.abs(x)),
    "Sigmoid": lambda attrs, x: sigmoid(x),
    "Softmax": lambda attrs, x: softmax(x, attrs.get("axis", -1)),
    "Erf": lambda attrs, x: erf(x),
    "Gelu": _gelu,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "Attention": _attention,
}
