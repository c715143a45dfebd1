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
from graph_rewrite.operators.work import estimate_flops
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder

PriceOfOperator = Callable[[OperatorSpec], float]
"""Milliseconds of an operator alone; infinite where it cannot be run."""
_FASTER = 1.25
"""A product may compute so many times faster than the fastest one that was timed, by the bound of its price."""


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


class Prices:
    """Prices of operators, each asked for once, and the least that an operator can cost before it is timed.

    A search meets thousands of programs, and most of them are dearer by their layouts alone. Their products need no
    timing: no product computes much faster than the fastest one so far.

    Args:
        time_alone: returns the milliseconds of an operator alone.
    """

    def __init__(self, time_alone: PriceOfOperator) -> None:
        self._time_alone = time_alone
        self._known: dict[str, float] = {}
        self._fastest = 0.0
        """Floating-point operations per millisecond of the fastest product so far."""

    def price(self, spec: OperatorSpec) -> float:
        """Return the milliseconds of an operator alone; infinite where it cannot be run."""
        ms = self._known.get(spec.key)
        if ms is None:
            ms = self._known[spec.key] = self._time_alone(spec)
            if 0.0 < ms < inf:
                self._fastest = max(self._fastest, flops_of_product(spec) / ms)
        return ms

    def at_least(self, spec: OperatorSpec) -> float:
        """Return the price of an operator that was asked for before, and a lower bound of it for others."""
        ms = self._known.get(spec.key)
        if ms is not None or self._fastest == 0.0:
            return ms or 0.0
        return flops_of_product(spec) / (_FASTER * self._fastest)


def flops_of_product(spec: OperatorSpec) -> float:
    """Return the floating-point operations of a convolution or matrix product; 0 for operators that are bound by the
    memory that they move."""
    inputs, outputs = (
        [None if type is None else TensorType(*type) for type in types]
        for types in (spec.input_types, spec.output_types)
    )
    flops = estimate_flops(spec, inputs, outputs)
    return flops if flops > sum(type.size for type in outputs if type is not None) else 0.0


def price_of_program(
    program: TensorProgram, shapes: Sequence[Shape], constants: Collection[int], prices: Prices, most: float = inf
) -> float:
    """Return the milliseconds of a program at these shapes; infinite where an operator cannot be run.

    Args:
        program: the program.
        shapes: the shapes of its inputs.
        constants: inputs that are known before run time.
        prices: of operators. Those of products are asked for last, and none once it is sure that the program costs
            `most`.
        most: a program that costs as much costs infinitely much.
    """
    try:
        specs = sorted(operators_of_program(program, shapes, constants), key=flops_of_product)
    except (DoesNotFit, InvalidRewriteError):
        return inf
    for spec in specs:
        if fsum(map(prices.at_least, specs)) >= most:
            return inf
        prices.price(spec)
    ms = fsum(map(prices.price, specs))
    return ms if ms < most else inf
