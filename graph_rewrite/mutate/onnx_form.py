"""Programs as ONNX operators, and as graphs that `graph_rewrite.soundness` evaluates by its own semantics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod

import numpy as np
import onnx

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.layouts import Shape
from graph_rewrite.layouts.operators import padded
from graph_rewrite.mutate.moves import layout_of
from graph_rewrite.mutate.program import Step, TensorProgram
from graph_rewrite.onnx_files.assembly import OPSET, Assembly
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder

_LARGEST_MASK = 1 << 16
"""Elements of a constant that is looked at."""


def build(program: TensorProgram, op: ReplacementBuilder, inputs: Sequence[Ref]) -> tuple[Ref, ...]:
    """Return the outputs of a program as ONNX operators over its inputs; steps over constants alone are folded.

    Raises:
        DoesNotFit: a layout does not apply at these shapes.
        TypeInferenceError: an operator does not.
    """
    values = list(inputs)
    for step in program.steps:
        values.append(_BUILD[step.op](step, op, [values[value] for value in step.inputs]))
    return tuple(values[value] for value in program.outputs)


def as_graph(
    program: TensorProgram, shapes: Sequence[Shape], opset: int = OPSET, constants: Collection[int] = ()
) -> Graph:
    """Return a program over float inputs x0, x1, ... as a graph of the operators that `build` gives.

    Args:
        constants: inputs that are constants of random numbers instead.
    """
    types = [TensorType(onnx.TensorProto.FLOAT, tuple(shape)) for shape in shapes]
    op, rng = ReplacementBuilder(opset), np.random.default_rng(0)
    known = {number: rng.standard_normal(shapes[number]).astype(np.float32) for number in sorted(constants)}
    refs = [
        op.constant(known[number]) if number in known else Ref(type, external=number)
        for number, type in enumerate(types)
    ]
    made = op.finish(build(program, op, refs))
    assembly = Assembly(opset)
    inputs = {number: assembly.input(f"x{number}", type) for number, type in enumerate(types) if number not in known}
    results: list[tuple[int, ...]] = []

    def value(ref: Ref) -> int:
        if ref.external is not None:
            return inputs[ref.external]
        if ref.constant is not None:
            return assembly.constant(f"c{len(assembly.types)}", ref.constant.numpy())
        return results[ref.node][ref.index]

    for node in made.nodes:
        operands = [None if ref is None else value(ref) for ref in node.inputs]
        results.append(assembly.apply(node.op, node.domain, node.attrs, operands, len(node.types)))
    return assembly.graph([value(ref) for ref in made.outputs])


def _conv(step: Step, op: ReplacementBuilder, operands: list[Ref]) -> Ref:
    x, w = operands[:2]
    made: Ref = op.Conv(
        *operands, group=x.shape[1] // w.shape[1], kernel_shape=w.shape[2:], pads=step.param("pads"),
        strides=step.param("strides"), dilations=step.param("dilations"),
    )  # fmt: skip
    return made


def _pool(step: Step, op: ReplacementBuilder, operands: list[Ref]) -> Ref:
    made: Ref = op.AveragePool(
        operands[0], kernel_shape=step.param("kernel"), pads=step.param("pads"), strides=step.param("strides"),
        count_include_pad=step.param("counted"),
    )  # fmt: skip
    return made


def _diagonal(step: Step, op: ReplacementBuilder, operands: list[Ref]) -> Ref:
    """Return copies side by side, times a mask of blocks."""
    (x,) = operands
    count, source, target = step.param("count"), step.param("source"), step.param("target")
    mask = np.ones([1] * x.rank, dtype=onnx.helper.tensor_dtype_to_np_dtype(x.dtype))
    blocks = np.kron(np.eye(count), np.ones((x.shape[source] // count, x.shape[target])))
    shape = [size if axis == source else size * count if axis == target else 1 for axis, size in enumerate(x.shape)]
    mask = (blocks if source < target else blocks.T).reshape(shape).astype(mask.dtype)
    made: Ref = op.Mul(op.Concat(*[x] * count, axis=target), op.constant(mask))
    return made


def _averaging(step: Step, op: ReplacementBuilder, operands: list[Ref]) -> Ref:
    kernel = step.param("kernel")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(operands[0].dtype)
    # A quotient of constants, which exact proofs read as the fraction that it is.
    ones = op.constant(np.ones((operands[0].shape[1], 1, *kernel), dtype=dtype))
    made: Ref = op.Div(ones, op.constant(np.array(prod(kernel), dtype=dtype)))
    return made


def _fit(step: Step, op: ReplacementBuilder, operands: list[Ref]) -> Ref:
    x, like = operands
    return padded(op, x, {axis: (0, like.shape[axis] - size) for axis, size in enumerate(x.shape)})


def _constant(step: Step, op: ReplacementBuilder, operands: list[Ref]) -> Ref:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(operands[0].dtype)
    numbers = np.array(step.param("numerators"), dtype=np.float64) / step.param("denominator")
    shape = step.param("shape")
    numbers = numbers.reshape(shape) if numbers.size == prod(shape) else np.full(shape, numbers[0])
    return op.constant(numbers.astype(dtype))


def _is_mask(ref: Ref) -> bool:
    constant = ref.constant
    if constant is None or constant.expression is not None or constant.type.size > _LARGEST_MASK:
        return False
    return bool(np.isin(constant.numpy(), (0, 1)).all())


def _mul(step: Step, op: ReplacementBuilder, operands: list[Ref]) -> Ref:
    """Return a product. Times a mask it is a choice, which zeroes what is not finite as well."""
    x, mask = operands
    made: Ref
    if _is_mask(mask):
        made = op.Where(op.constant(mask.numpy() != 0), x, op.constant(np.zeros((), dtype=mask.numpy().dtype)))
    else:
        made = op.Mul(x, mask)
    return made


def _layout(step: Step, op: ReplacementBuilder, operands: list[Ref]) -> Ref:
    return layout_of(step.chain, operands[0].shape).normalised().onnx(op, operands[0])


_BUILD: dict[str, Callable[[Step, ReplacementBuilder, list[Ref]], Ref]] = {
    "conv": _conv,
    "pool": _pool,
    "matmul": lambda step, op, operands: op.MatMul(*operands),
    "add": lambda step, op, operands: op.Add(*operands),
    "mul": _mul,
    "concat": lambda step, op, operands: op.Concat(*operands, axis=step.param("axis")),
    "fit": _fit,
    "layout": _layout,
    "diagonal": _diagonal,
    "averaging": _averaging,
    "constant": _constant,
}
