"""Prices of programs: the sum of what their operators cost, each timed alone (TASO's cost model, as in PET, 6.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import fsum, inf

import numpy as np
import onnx

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.latency.graph_operators import spec_of
from graph_rewrite.latency.operator_spec import OperatorSpec
from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.moves import DoesNotFit
from graph_rewrite.mutate.onnx_form import build
from graph_rewrite.mutate.program import TensorProgram
from graph_rewrite.onnx_files.assembly import OPSET
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder

PriceOfOperator = Callable[[OperatorSpec], float]
"""Milliseconds of an operator alone; infinite where it cannot be run."""


def operators_of_program(
    program: TensorProgram, shapes: Sequence[Shape], constants: Collection[int], opset: int = OPSET
) -> Iterator[OperatorSpec]:
    """Yield the ONNX operators that a program takes at run time, over float inputs.

    Args:
        program: the program.
        shapes: the shapes of its inputs.
        constants: inputs that are known before run time; operators over them alone are folded, and cost nothing.
        opset: the operator set.

    Raises:
        DoesNotFit: a layout does not apply at these shapes.
        InvalidRewriteError: an operator does not.
    """
    op = ReplacementBuilder(opset)
    refs = [
        op.constant(np.full(shape, 0.5, np.float32)) if number in constants
        else Ref(TensorType(onnx.TensorProto.FLOAT, tuple(shape)), external=number)
        for number, shape in enumerate(shapes)
    ]  # fmt: skip
    for node in op.finish(build(program, op, refs)).nodes:
        known = {i: ref.constant for i, ref in enumerate(node.inputs) if ref is not None and ref.constant is not None}
        types = [None if ref is None else ref.type for ref in node.inputs]
        yield spec_of(node.op, node.domain, node.attrs, types, node.types, known, opset)


def price_of_program(
    program: TensorProgram,
    shapes: Sequence[Shape],
    constants: Collection[int],
    price: PriceOfOperator,
    most: float = inf,
) -> float:
    """Return the milliseconds of a program at these shapes; infinite where an operator cannot be run.

    Args:
        program: the program.
        shapes: the shapes of its inputs.
        constants: inputs that are known before run time.
        price: of an operator; it is asked no more once the program costs `most`.
        most: a program that costs as much costs infinitely much.
    """
    try:
        specs = list(operators_of_program(program, shapes, constants))
    except (DoesNotFit, InvalidRewriteError):
        return inf
    found: list[float] = []
    for spec in specs:
        found.append(price(spec))
        if fsum(found) >= most:
            return inf
    return fsum(found)
