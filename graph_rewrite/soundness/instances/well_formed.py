"""Checks of an operator's use beyond onnx's type inference, which looks neither at biases and groups of convolutions
nor at what attention and normalisations take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graph_rewrite.ir.tensor_type import TensorType

Shape = tuple[int, ...]
Shapes = Sequence[Shape | None]
Attrs = Mapping[str, Any]
_WINDOWS = frozenset({"Conv", "FusedConv", "MaxPool", "AveragePool", "GlobalAveragePool"})


def is_valid(op: str, attrs: Attrs, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> bool:
    """Return whether the shapes of inputs and outputs are those of a valid use of the operator, and none is empty."""
    if any(dim < 1 for type in outputs for dim in type.shape):
        return False
    shapes = [None if type is None else type.shape for type in inputs]
    if op in _WINDOWS and len(shapes[0] or ()) < 3:
        return False
    check = _CHECKS.get(op)
    return check is None or check(attrs, shapes, [type.shape for type in outputs])


def _given(shapes: Shapes, i: int) -> Shape | None:
    return shapes[i] if i < len(shapes) else None


def _conv(attrs: Attrs, inputs: Shapes, outputs: Sequence[Shape]) -> bool:
    x, w, group = inputs[0] or (), inputs[1] or (), attrs.get("group", 1)
    if len(x) != len(w) or w[1] * group != x[1] or w[0] % group or attrs.get("kernel_shape", w[2:]) != w[2:]:
        return False
    if attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not _windows_fit(attrs, x[2:], w[2:]):
        return False
    residual = _given(inputs, 3)
    return _given(inputs, 2) in (None, w[:1]) and residual in (None, outputs[0])


def _windows_fit(attrs: Attrs, sizes: Shape, kernel: Shape) -> bool:
    """Return whether at least one window lies inside the padded image: else onnx's inference rounds to one all the
    same."""
    pads, dilations = attrs.get("pads", (0,) * (2 * len(sizes))), attrs.get("dilations", (1,) * len(sizes))
    padded = [size + pads[i] + pads[i + len(sizes)] for i, size in enumerate(sizes)]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    return all(span <= size for span, size in zip(spans, padded, strict=True))


def _pool(attrs: Attrs, inputs: Shapes, outputs: Sequence[Shape]) -> bool:
    sizes, kernel = (inputs[0] or ())[2:], attrs.get("kernel_shape", ())
    pads = attrs.get("pads", (0,) * (2 * len(sizes)))
    mode = attrs.get("auto_pad", "NOTSET")
    if len(kernel) != len(sizes) or (mode != "NOTSET" and attrs.get("ceil_mode", 0)):
        return False
    # Pads as large as the window would let it see padding alone; ONNX Runtime refuses them.
    if any(pad >= k for pad, k in zip(pads, (*kernel, *kernel), strict=True)):
        return False
    if mode.startswith("SAME"):
        # ONNX Runtime takes the difference of a longer stride for padding, and refuses it.
        return all(stride <= k for stride, k in zip(attrs.get("strides", ()), kernel, strict=False))
    return _windows_fit(attrs, sizes, kernel)


def _reshape(attrs: Attrs, inputs: Shapes, outputs: Sequence[Shape]) -> bool:
    sizes = [TensorType(0, shape or ()).size for shape in (inputs[0], outputs[0])]
    return sizes[0] == sizes[1]


def _broadcasts_to(shape: Shape | None, whole: Shape) -> bool:
    if shape is None:
        return True
    return len(shape) <= len(whole) and all(a in (1, b) for a, b in zip(shape[::-1], whole[::-1], strict=False))


def _layer_norm(attrs: Attrs, inputs: Shapes, outputs: Sequence[Shape]) -> bool:
    x = inputs[0] or ()
    axis = attrs.get("axis", -1)
    if not -len(x) <= axis < len(x):
        return False
    normalised = x[axis % len(x) :]
    return all(_broadcasts_to(_given(inputs, i), normalised) for i in (1, 2))


def _batch_norm(attrs: Attrs, inputs: Shapes, outputs: Sequence[Shape]) -> bool:
    return all(_given(inputs, i) == (inputs[0] or ())[1:2] for i in (1, 2, 3, 4))


def _attention(attrs: Attrs, inputs: Shapes, outputs: Sequence[Shape]) -> bool:
    q, k, v = (inputs[i] or () for i in (0, 1, 2))
    if len(q) == 3 and len(k) == 3 and len(v) == 3:
        heads, shared = attrs.get("q_num_heads", 0), attrs.get("kv_num_heads", 0)
        if not heads or not shared or q[2] % heads or k[2] % shared or v[2] % shared:
            return False
        q, k, v = ((s[0], h, s[1], s[2] // h) for s, h in ((q, heads), (k, shared), (v, shared)))
    if not len(q) == len(k) == len(v) == 4:
        return False
    alike = q[0] == k[0] == v[0] and k[1:3] == v[1:3] and q[3] == k[3] and q[1] % k[1] == 0
    return alike and _broadcasts_to(_given(inputs, 3), (*q[:3], k[2]))


def _multi_head(attrs: Attrs, inputs: Shapes, outputs: Sequence[Shape]) -> bool:
    q, k, v = (inputs[i] or () for i in (0, 1, 2))
    heads = attrs.get("num_heads", 0)
    if not len(q) == len(k) == len(v) == 3 or not heads or any(s[2] % heads for s in (q, k, v)):
        return False
    alike = q[0] == k[0] and k[:2] == v[:2] and q[2] == k[2]
    bias = _given(inputs, 3) in (None, (q[2] + k[2] + v[2],))
    return alike and bias and _broadcasts_to(_given(inputs, 5), (q[0], heads, q[1], k[1]))


def _biased(attrs: Attrs, inputs: Shapes, outputs: Sequence[Shape]) -> bool:
    return _given(inputs, 1) in (None, (inputs[0] or ())[-1:])


def _skip_layer_norm(attrs: Attrs, inputs: Shapes, outputs: Sequence[Shape]) -> bool:
    x, skip = inputs[0] or (), inputs[1] or ()
    vectors = all(_given(inputs, i) in (None, x[-1:]) for i in (2, 3, 4))
    return len(x) in (2, 3) and skip in (x, x[-2:], (1, *x[1:])) and vectors


_CHECKS: Mapping[str, Callable[[Attrs, Shapes, Sequence[Shape]], bool]] = {
    "Conv": _conv,
    "FusedConv": _conv,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "Reshape": _reshape,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
    "BiasGelu": _biased,
    "FastGelu": _biased,
    "SkipLayerNormalization": _skip_layer_norm,
}
