"""Shapes that onnx's inference lets pass and that no runtime takes.

Rules rely on them: that a Reshape keeps the number of elements, and that a convolution has weights of its input's rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.tensor_type import TensorType

_KEEP_ELEMENTS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv"})
_PER_AXIS = {"strides": 1, "dilations": 1, "pads": 2, "output_padding": 1}
"""Attributes of operators on images, and how many elements they have per axis."""
_OVER_AXES = frozenset({"LayerNormalization", "RMSNormalization"})
_WEIGHTS = {"QLinearConv": 3}
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def is_possible(
    op: str,
    attrs: Mapping[str, AttrValue],
    inputs: Sequence[TensorType | None],
    outputs: Sequence[TensorType | None],
) -> bool:
    """Tell whether a standard operator can take operands of these types and give these results."""
    if op in _KEEP_ELEMENTS:
        x, y = next(iter(inputs), None), next(iter(outputs), None)
        return x is None or y is None or x.size == y.size
    if op in _CONVOLUTIONS:
        return _is_convolution(op, attrs, inputs)
    if op in _POOLS:
        # ONNX Runtime pads a window with gaps as if it had none, and gives fewer elements than the standard says.
        return not attrs.get("auto_pad", "").startswith("SAME") or all(d == 1 for d in attrs.get("dilations", ()))
    if op == "Slice":
        return len({bounds.shape for bounds in inputs[1:] if bounds is not None}) <= 1
    return op not in _OVER_AXES or inputs[0] is None or inputs[0].rank > 0


def pads_twice(op: str, attrs: Mapping[str, AttrValue]) -> bool:
    """Tell whether a convolution has both `pads` and an `auto_pad`. The standard allows one of them, and ONNX Runtime
    opens no model with both; onnx's inference goes by `pads`, its reference evaluator by `auto_pad`."""
    return op in _CONVOLUTIONS and _has_both(attrs)


def without_unread_pads(attrs: Mapping[str, AttrValue]) -> Mapping[str, AttrValue]:
    """Return the attributes that a pool is computed by: some exporters write zeros as its `pads` beside an `auto_pad`.
    onnx's inference goes by them, ONNX Runtime does not."""
    return {name: value for name, value in attrs.items() if name != "pads"} if _has_both(attrs) else attrs


def _has_both(attrs: Mapping[str, AttrValue]) -> bool:
    return "pads" in attrs and attrs.get("auto_pad", "NOTSET") != "NOTSET"


def fits_operands(op: str, attrs: Mapping[str, AttrValue], x: TensorType | None, weights: TensorType | None) -> bool:
    """Tell whether those attributes of an operator on images that its operands imply say what they imply.

    Signatures leave out attributes that say nothing (`attribute_defaults`): where one contradicts the operands, the
    node is no other form of the node without it, but is invalid.

    Args:
        x: the type of the image, the first operand.
        weights: the type of the second operand, which are the weights where the operator is a convolution.
    """
    if pads_twice(op, attrs):
        return False
    if x is None or x.rank < 3:
        return True
    for name, count in _PER_AXIS.items():
        if name in attrs and len(attrs[name]) != count * (x.rank - 2):
            return False
    if weights is None or op not in ("Conv", "ConvTranspose") or "kernel_shape" not in attrs:
        return True
    return tuple(attrs["kernel_shape"]) == tuple(weights.shape[2:])


def _is_convolution(op: str, attrs: Mapping[str, AttrValue], inputs: Sequence[TensorType | None]) -> bool:
    place = _WEIGHTS.get(op, 1)
    x, w = inputs[0], inputs[place] if place < len(inputs) else None
    if x is None or w is None:
        return True
    group = attrs.get("group", 1)
    # ONNX Runtime refuses to convolve nothing.
    if x.rank != w.rank or x.rank < 3 or group < 1 or not x.size:
        return False
    into, out = (w.shape[0], w.shape[1] * group) if op == "ConvTranspose" else (w.shape[1] * group, w.shape[0])
    return into == x.shape[1] and out % group == 0
