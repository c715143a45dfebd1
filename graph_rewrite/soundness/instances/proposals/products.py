"""Proposals for products: MatMul, Gemm, FusedMatMul, convolutions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from graph_rewrite.soundness.instances.chooser import DeadEnd
from graph_rewrite.soundness.instances.operator_draft import DIMS, OperatorDraft, Proposal
from graph_rewrite.soundness.instances.source_state import Shape

_ALPHA = (None, 0.5, 2.0, -1.0)
_WIDE = (8, 16)
"""Channels for rules about groups, which may want many."""


def propose_matmul(a: OperatorDraft) -> None:
    """MatMul(a, b) of matrices, batches of them that broadcast, and vectors."""
    _operands(a, trans_a=False, trans_b=False, ranks=(2, 3, 4, 1))


def propose_fused_matmul(a: OperatorDraft) -> None:
    """FusedMatMul(a, b; alpha, transA, transB)."""
    a.attr("alpha", _ALPHA)
    trans_a, trans_b = (bool(a.attr(name, (None, 1, 0))) for name in ("transA", "transB"))
    _operands(a, trans_a, trans_b, ranks=(2, 3, 4))


def propose_gemm(a: OperatorDraft) -> None:
    """Gemm(a, b, c; alpha, beta, transA, transB)."""
    a.attr("alpha", _ALPHA)
    a.attr("beta", _ALPHA)
    trans_a, trans_b = (bool(a.attr(name, (None, 1, 0))) for name in ("transA", "transB"))
    _operands(a, trans_a, trans_b, ranks=(2,))
    if a.optional(2):
        rows, columns = a.shape(0)[-1 if trans_a else 0], a.shape(1)[0 if trans_b else -1]
        options = {"columns": (columns,), "one": (1,), "full": (rows, columns), "rows": (rows, 1), "scalar": ()}
        a.data(2, options[a.pick("c", tuple(options))])


def _operands(a: OperatorDraft, trans_a: bool, trans_b: bool, ranks: tuple[int, ...]) -> None:
    """The two factors; of two free ones a is made first."""
    if a.free(0) and not a.known(1):
        a.fresh_input(0, ranks)
    if a.free(1) and a.known(0):
        shape = _turned(a.shape(0), trans_a)
        if not shape:
            raise DeadEnd("a scalar has no product")
        a.data(1, _turned(_factor(a, shape[-1], shape[:-2], 1), trans_b))
    elif a.free(0) and a.known(1):
        shape = _turned(a.shape(1), trans_b)
        if not shape:
            raise DeadEnd("a scalar has no product")
        a.data(0, _turned(_factor(a, shape[-2] if len(shape) > 1 else shape[0], shape[:-2], 0), trans_a))


def _factor(a: OperatorDraft, inner: int, batch: Shape, place: int) -> Shape:
    """The shape of a factor beside one with this inner dimension and batch."""
    batches = {"none": (), "equal": batch, "ones": (1,) * len(batch), "more": (2, *batch)}
    if len(batch) > 1:
        batches["last"] = batch[1:]
        batches["first is 1"] = (1, *batch[1:])
    if 1 in batch:
        batches["ones grow"] = tuple(3 if dim == 1 else dim for dim in batch)
    if a.op == "Gemm":
        batches = {"none": ()}
    distinct: dict[Shape, str] = {}
    for name, shape in batches.items():
        distinct.setdefault(shape, name)
    wanted = a.source.ranks.of_variable(a.variable(place))
    fitting = [name for shape, name in distinct.items() if wanted is None or len(shape) + 2 in wanted]
    likely = () if a.is_constant(place) else batch
    names = sorted(fitting or distinct.values(), key=lambda name: batches[name] != likely)
    chosen = batches[a.pick("batch", names, [4.0 if batches[name] == likely else 1.0 for name in names])]
    outer = a.pick("outer", (*DIMS, "square", *(() if chosen or a.node.domain or a.op == "Gemm" else ("vector",))))
    if outer == "vector":
        return (inner,)
    size = inner if outer == "square" else outer
    return (*chosen, inner, size) if place == 1 else (*chosen, size, inner)


def _turned(shape: Shape, turned: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if turned and len(shape) > 1 else shape


def propose_conv(a: OperatorDraft) -> None:
    """Conv(x, w, b) and FusedConv(x, w, b, z) over 1 to 3 spatial axes, with groups, strides, dilations and pads."""
    if a.op == "FusedConv":
        _activation(a)
    if a.free(0) and not a.known(1):
        a.data(0, _image(a))
    if a.free(1):
        a.data(1, _filters(a))
    elif a.free(0):
        w = a.shape(1)
        group = a.attr("group", (None, 2)) or 1
        a.data(0, (a.pick("batch", (2, 1)), w[1] * group, *(a.pick(f"size {k}", (4, 3, 5)) for k in range(len(w) - 2))))
    x, w = a.shape(0), a.shape(1)
    if len(x) != len(w) or len(x) < 3 or not w[1] or x[1] % w[1]:
        raise DeadEnd("filters that don't fit")
    group = x[1] // w[1]
    a.attr("group", (group,) if group > 1 else (None, 1))
    kernel = w[2:]
    a.attr("kernel_shape", (None, kernel))
    _strides(a, kernel)
    _pads(a, kernel)
    if a.optional(2):
        a.data(2, w[:1])
    if a.op == "FusedConv" and a.optional(3):
        a.data(3, _result(a))


def propose_conv_transpose(a: OperatorDraft) -> None:
    """ConvTranspose(x, w, b) over 1 to 3 spatial axes, with strides, dilations, pads and output padding."""
    if a.free(0):
        a.data(0, _image(a))
    x = a.shape(0)
    if len(x) < 3:
        raise DeadEnd("not an image")
    a.attr("group", (None, 1), (4, 1))
    if a.free(1):
        kernel = tuple(a.pick(f"kernel {k}", (3, 2, 4, 1), (4, 4, 2, 1)) for k in range(len(x) - 2))
        a.data(1, (x[1], a.pick("filters per group", (2, 1, 3)), *kernel))
    kernel = a.shape(1)[2:]
    rank = len(kernel)
    a.attr("strides", tuple(dict.fromkeys(((2,) * rank, None, (3,) * rank, (1,) * rank, (1, 2, 2)[:rank]))))
    a.attr("dilations", (None, (1,) * rank, (2,) * rank), (6, 1, 1))
    ones, zeros = (1,) * rank, (0,) * rank
    a.attr("pads", (None, ones * 2, (*ones, *zeros), (*zeros, *ones), (2,) * 2 * rank), (4, 4, 1, 1, 1))
    a.attr("output_padding", (None, ones), (3, 1))
    a.attr("auto_pad", (None, "SAME_UPPER"), (9, 1))
    if a.optional(2):
        a.data(2, a.shape(1)[1:2])


def _image(a: OperatorDraft) -> Shape:
    name = a.variable_name(0)
    rank = a.pick("spatial axes", (2, 1, 3), (4, 2, 1))
    wanted = a.source.ranks.of_variable(a.variable(0))
    if wanted and rank + 2 not in wanted:
        raise DeadEnd("another rank is needed")
    sizes = tuple(a.pick(f"{name} size {k}", (4, 3, 5, 2, 1) if rank < 3 else (3, 4, 2)) for k in range(rank))
    return (
        a.pick(f"{name} batch", (2, 1)),
        a.pick(f"{name} channels", (2, 4, 3, 1, *_WIDE * ("group" in a.node.attrs))),
        *sizes,
    )


def _filters(a: OperatorDraft) -> Shape:
    rank = len(a.shape(0)) - 2
    if rank < 1:
        raise DeadEnd("not an image")
    channels = a.shape(0)[1]
    fixed = a.fixed("group")
    group = a.pick("groups", [g for g in (1, 2, 3, 4, 8, 16) if channels % g == 0 and fixed in (None, g)])
    count = group * a.pick("filters per group", (2, 1, 3, *([channels // group] if channels // group > 3 else [])))
    kernel = tuple(a.pick(f"kernel {k}", (1, 3, 2), (4, 2, 1)) for k in range(rank))
    return (count, channels // group, *kernel)


def _strides(a: OperatorDraft, kernel: Shape) -> None:
    rank = len(kernel)
    ones, twos, mixed = (1,) * rank, (2,) * rank, tuple(itertools.islice(itertools.cycle((1, 2)), rank))
    a.attr("strides", tuple(dict.fromkeys((None, twos, ones, mixed, mixed[::-1]))), (4, 1, 1, *(1,) * (2 * (rank > 1))))
    a.attr("dilations", tuple(dict.fromkeys((None, ones, twos, mixed[::-1]))), (4, 1, 1, *(1,) * (rank > 1)))


def _pads(a: OperatorDraft, kernel: Shape) -> None:
    rank = len(kernel)
    dilations = a.attrs.get("dilations", (1,) * rank)
    half = tuple((k - 1) // 2 * d for k, d in zip(kernel, dilations, strict=True))
    options = {
        "none": None, "same": (*half, *half), "zeros": (0,) * 2 * rank, "ones": (1,) * 2 * rank,
        "before": (*(1,) * rank, *(0,) * rank), "after": (*(0,) * rank, *(1,) * rank),
    }  # fmt: skip
    if "pads" in a.attrs or "auto_pad" in a.attrs:
        return
    kind = a.pick("padding", (*options, "SAME_UPPER", "SAME_LOWER", "VALID"), (5, 3, 1, 1, 1, 1, 1, 1, 1))
    if kind in options:
        a.attr("auto_pad", (None,))
        a.attr("pads", (options[kind],))
    else:
        a.attr("auto_pad", (kind,))


def _result(a: OperatorDraft) -> Shape:
    plain = {name: value for name, value in a.attrs.items() if not name.startswith("activation")}
    inputs = a.inputs[:2]
    return a.source.assembly.type_of("Conv", "", plain, inputs).shape


def _activation(a: OperatorDraft) -> None:
    options = {"Relu": None, "Sigmoid": None, "Tanh": None, "LeakyRelu": (0.25,), "Clip": (-0.5, 1.0), None: None}
    chosen = a.attr("activation", tuple(options))
    a.attr("activation_params", (options[chosen],))


PRODUCTS_PROPOSALS: Mapping[tuple[str, str], Proposal] = {
    ("", "MatMul"): propose_matmul,
    ("com.microsoft", "FusedMatMul"): propose_fused_matmul,
    ("", "Gemm"): propose_gemm,
    ("", "Conv"): propose_conv,
    ("com.microsoft", "FusedConv"): propose_conv,
    ("", "ConvTranspose"): propose_conv_transpose,
}
