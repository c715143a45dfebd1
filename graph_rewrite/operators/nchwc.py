"""ONNX Runtime's blocked layout NCHWc as explicit operators (domain com.microsoft.nchwc): types and meaning.

A blocked image has the shape [N, C, H, W] of the plain one, C a multiple of the block, and its elements in memory as
[N, C / block, H, W, block]. The block is the CPU's: 16 channels with AVX-512, 8 with AVX and SSE, so a model with such
operators computes something else, or nothing, on a CPU with another one. Filters of dense convolutions lie as
[O / block, I / block, h, w, block of I, block of O], those of depthwise ones as [C / block, h, w, block], and those for
plain images of fewer channels than a block as [O / block, I, h, w, block] (onnxruntime/core/mlas/lib/snchwc.cpp,
reorder.cpp; core/optimizer/nchwc_transformer.cc).

Each operator is written once, as steps in ONNX's own operators (`expand`): the float64 reference and the exact domains
of `graph_rewrite.soundness` both read that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from onnx import TensorProto

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.operator_sets import POOLS
from graph_rewrite.operators.standard_semantics import UnknownOperatorError, run_standard
from graph_rewrite.operators.standard_types import TypeInferenceError, infer_standard
from graph_rewrite.runtime import block_size as block_size  # also for those who ask about this layout

DOMAIN = "com.microsoft.nchwc"
ALIGNMENT = 4
"""ReorderInput and ReorderOutput move channels in fours."""
OPSET = 22
"""Version of ONNX's operators that `expand` is written in."""
_OPERATORS = POOLS | {"ReorderInput", "ReorderOutput", "Conv"}
_FUSED = ("activation", "activation_params")

Array = np.ndarray[Any, Any]


class Shaped(Protocol):
    """An operand of `expand`: anything with a shape."""

    @property
    def shape(self) -> tuple[int, ...]: ...


Apply = Callable[[str, Mapping[str, Any], Sequence[Any]], Any]
"""Applies one of ONNX's operators: name, attributes, inputs (values, integer arrays, or None)."""


def is_modelled(op: str) -> bool:
    """Tell whether `infer` and `run` know the operator."""
    return op in _OPERATORS


def infer(
    op: str, attrs: Mapping[str, AttrValue], inputs: Sequence[TensorType | None], outputs: int
) -> tuple[TensorType | None, ...]:
    """Return the output types of an operator; None where they are not known.

    Raises:
        TypeInferenceError: the operator refuses these inputs, or the CPU has no blocked layout.
    """
    if op not in _OPERATORS or not inputs or inputs[0] is None:
        return (None,) * outputs
    if not block_size():
        raise TypeInferenceError(f"{DOMAIN}.{op}: ONNX Runtime has no blocked layout on this CPU")
    try:
        found = _type(op, attrs, inputs[0], inputs)
    except TypeInferenceError as error:
        raise TypeInferenceError(f"{DOMAIN}.{op} cannot take {', '.join(map(str, inputs))}: {error}") from error
    return (found, *(None,) * outputs)[:outputs]


def _type(op: str, attrs: Mapping[str, AttrValue], x: TensorType, inputs: Sequence[TensorType | None]) -> TensorType:
    block = block_size()
    if x.rank != 4 or x.dtype != TensorProto.FLOAT:
        raise TypeInferenceError("only images [N, C, H, W] of float32 have a blocked layout")
    channels = x.shape[1]
    if attrs.get("channels_last", 0):
        raise TypeInferenceError("channels_last is not modelled")
    if op == "ReorderInput":
        if channels % ALIGNMENT:
            raise TypeInferenceError(f"{channels} channels are no multiple of {ALIGNMENT}")
        return TensorType(x.dtype, (x.shape[0], -(-channels // block) * block, *x.shape[2:]))
    if op == "ReorderOutput":
        kept = attrs.get("channels", 0)
        if channels % block or not channels - block < kept <= channels:
            raise TypeInferenceError(f"{kept} of {channels} channels in blocks of {block}")
        return TensorType(x.dtype, (x.shape[0], kept, *x.shape[2:]))
    if channels % block and not (op == "Conv" and channels < block):
        raise TypeInferenceError(f"{channels} channels do not fill blocks of {block}")
    found = _plain_type(op, attrs, inputs)
    if op == "Conv":
        _check_filters(attrs, inputs, found)
    return found


def _plain_type(op: str, attrs: Mapping[str, AttrValue], inputs: Sequence[TensorType | None]) -> TensorType:
    plain = {name: value for name, value in attrs.items() if name not in _FUSED}
    entries = [None if t is None else (t, None) for t in (inputs[:2] if op == "Conv" else inputs[:1])]
    found = infer_standard(op, "", plain, entries, 1, OPSET)[0]
    if found is None:
        raise TypeInferenceError("unknown shape")
    return found


def _check_filters(attrs: Mapping[str, AttrValue], inputs: Sequence[TensorType | None], result: TensorType) -> None:
    block, w, group = block_size(), inputs[1], attrs.get("group", 1)
    assert w is not None  # or there would be no result
    depthwise = group > 1 and group == w.shape[0] and w.shape[1] == 1
    if w.shape[0] % block or (group > 1 and not depthwise and (w.shape[0] // group % block or w.shape[1] % block)):
        raise TypeInferenceError(f"the filters {w} do not fill blocks of {block}")
    if len(inputs) > 3 and inputs[3] is not None and inputs[3] != result:
        raise TypeInferenceError(f"the sum {inputs[3]} is not of the result's type {result}")


def run(op: str, attrs: Mapping[str, AttrValue], inputs: Sequence[Array | None]) -> list[Array]:
    """Apply an operator to numpy arrays.

    Raises:
        UnknownOperatorError: for an operator that is not modelled.
    """

    def apply(op: str, attrs: Mapping[str, Any], inputs: Sequence[Any]) -> Array:
        return run_standard(op, "", attrs, inputs, OPSET)[0]

    return [np.asarray(expand(op, attrs, inputs, apply))]


def expand(op: str, attrs: Mapping[str, AttrValue], inputs: Sequence[Any], apply: Apply) -> Any:
    """Return the operator as steps in ONNX's own operators, done by `apply`.

    Raises:
        UnknownOperatorError: for an operator that is not modelled.
    """
    if op not in _OPERATORS or attrs.get("channels_last", 0):
        raise UnknownOperatorError(f"no reference semantics for {DOMAIN}.{op}, or not for channels_last")
    x, block = inputs[0], block_size()
    if op == "ReorderInput":
        return _blocked(_more_channels(x, -x.shape[1] % block, apply), apply)
    if op == "ReorderOutput":
        plain = _plain(x, apply)
        return apply("Slice", {}, [plain, _ints(0), _ints(attrs["channels"]), _ints(1)])
    if op in POOLS:
        return _blocked(apply(op, attrs, [_plain(x, apply)]), apply)
    w, bias, total = (*inputs[1:], None, None)[:3]
    plain = {name: value for name, value in attrs.items() if name not in _FUSED}
    image = x if x.shape[1] < block else _plain(x, apply)
    result = _blocked(apply("Conv", plain, [image, plain_filters(w, attrs, x.shape[1], apply), bias]), apply)
    result = result if total is None else apply("Add", {}, [result, total])
    return _activated(attrs, result, apply)


def plain_filters(w: Any, attrs: Mapping[str, AttrValue], channels: int, apply: Apply) -> Any:
    """Return blocked filters, for images of `channels` channels, as Conv takes them."""
    block, (count, depth, *kernel) = block_size(), w.shape
    if attrs.get("group", 1) > 1 and depth == 1:
        return _moved(w, (count // block, *kernel, block), (0, 3, 1, 2), w.shape, apply)
    if channels < block:
        return _moved(w, (count // block, depth, *kernel, block), (0, 4, 1, 2, 3), w.shape, apply)
    blocks = (count // block, depth // block, *kernel, block, block)
    return _moved(w, blocks, (0, 5, 1, 4, 2, 3), w.shape, apply)


def blocked_filters(w: Any, group: int, channels: int, apply: Apply) -> Any:
    """Return filters [O, I, h, w] of Conv as the blocked operator takes them: the inverse of `plain_filters`.

    Inputs of fewer channels than a block stay plain images; otherwise I is a multiple of the block, except for
    depthwise filters.
    """
    block, (count, depth, *kernel) = block_size(), w.shape
    if group > 1 and depth == 1:
        return _moved(w, (count // block, block, *kernel), (0, 2, 3, 1), w.shape, apply)
    if channels < block:
        return _moved(w, (count // block, block, depth, *kernel), (0, 2, 3, 4, 1), w.shape, apply)
    blocks = (count // block, block, depth // block, block, *kernel)
    return _moved(w, blocks, (0, 2, 4, 5, 3, 1), w.shape, apply)


def _moved(x: Any, split: Sequence[int], perm: Sequence[int], shape: Sequence[int], apply: Apply) -> Any:
    parts = apply("Reshape", {}, [x, _ints(*split)])
    return apply("Reshape", {}, [apply("Transpose", {"perm": tuple(perm)}, [parts]), _ints(*shape)])


def _blocked(x: Any, apply: Apply) -> Any:
    n, c, h, w = x.shape
    block = block_size()
    return _moved(x, (n, c // block, block, h, w), (0, 1, 3, 4, 2), x.shape, apply)


def _plain(x: Any, apply: Apply) -> Any:
    n, c, h, w = x.shape
    block = block_size()
    return _moved(x, (n, c // block, h, w, block), (0, 1, 4, 2, 3), x.shape, apply)


def _more_channels(x: Any, more: int, apply: Apply) -> Any:
    return apply("Pad", {}, [x, _ints(0, 0, 0, 0, 0, more, 0, 0)]) if more else x


def _activated(attrs: Mapping[str, AttrValue], x: Any, apply: Apply) -> Any:
    name, params = attrs.get("activation", ""), attrs.get("activation_params", ())
    if not name:
        return x
    if name in ("Relu", "Sigmoid", "Tanh", "HardSwish"):
        return apply(name, {}, [x])
    if name == "LeakyRelu":
        return apply(name, {"alpha": params[0]}, [x])
    if name == "HardSigmoid":
        return apply(name, {"alpha": params[0], "beta": params[1]}, [x])
    raise UnknownOperatorError(f"{DOMAIN}.Conv with the activation {name}")


def _ints(*values: int) -> Array:
    return np.array(values, dtype=np.int64)
