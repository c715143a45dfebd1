"""The identity of programs."""

from __future__ import annotations

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.layouts import Reorder
from graph_rewrite.mutate.canonical import identity_of
from graph_rewrite.mutate.moves import Move
from graph_rewrite.mutate.program import TensorProgram, program, step
from graph_rewrite.mutate.search import Limits, mutants_of, mutants_of_subprogram
from graph_rewrite.mutate.subprograms import split
from graph_rewrite.onnx_files.assembly import model
from tests.graph_rewrite.mutate.programs import BATCH_TO_WIDTH, CONV, conv, layout

SHAPES = ((2, 4, 4, 4), (4, 4, 3, 3), (4, 1, 1))


def biased(*, swapped: bool) -> TensorProgram:
    return program(3, [conv(0, 1), step("add", 2, 3) if swapped else step("add", 3, 2)])


def test_operands_of_sums_and_products_may_change_places_but_no_others() -> None:
    assert identity_of(biased(swapped=True), SHAPES) == identity_of(biased(swapped=False), SHAPES)
    a, b = (program(2, [step("mul", *pair)]) for pair in ((0, 1), (1, 0)))
    assert identity_of(a, ((2, 2), (2, 2))) == identity_of(b, ((2, 2), (2, 2)))
    a, b = (program(2, [step("matmul", *pair)]) for pair in ((0, 1), (1, 0)))
    assert identity_of(a, ((2, 2), (2, 2))) != identity_of(b, ((2, 2), (2, 2)))
    a, b = (program(2, [step("concat", *pair, axis=0)]) for pair in ((0, 1), (1, 0)))
    assert identity_of(a, ((2, 2), (2, 2))) != identity_of(b, ((2, 2), (2, 2)))


def test_the_order_of_steps_does_not_count_and_that_of_outputs_does() -> None:
    shapes = (SHAPES[0], SHAPES[1], SHAPES[1])
    one = program(3, [conv(0, 1), conv(0, 2), step("add", 3, 4)])
    other = program(3, [conv(0, 2), conv(0, 1), step("add", 3, 4)])
    assert identity_of(one, shapes) == identity_of(other, shapes)
    both = [conv(0, 1), conv(0, 2)]
    assert identity_of(program(3, both, [3, 4]), shapes) != identity_of(program(3, both, [4, 3]), shapes)


def test_layouts_count_by_what_they_do() -> None:
    there, back = Move(0, "inner", 3, "outer", 2), Move(3, "outer", 0, "inner", 2)
    nothing = program(2, [layout(0, there), layout(2, back), conv(3, 1)])
    assert identity_of(nothing, SHAPES[:2]) == identity_of(CONV, SHAPES[:2])
    assert identity_of(BATCH_TO_WIDTH, SHAPES[:2]) != identity_of(CONV, SHAPES[:2])
    turned = program(2, [layout(0, Reorder((0, 1, 3, 2))), conv(2, 1)])
    assert identity_of(turned, SHAPES[:2]) != identity_of(CONV, SHAPES[:2])


def sum_of_a_product() -> Graph:
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((4, 6)).astype(np.float32), rng.standard_normal(6).astype(np.float32)
    return model("(float[2,3,4] x) => (z) { y = MatMul(x, w) s = Add(y, b) z = Relu(s) }", w=w, b=b)


def test_a_program_with_swapped_operands_is_no_mutant() -> None:
    """The generator builds sums in one order of their operands, which need not be that of the original."""
    subs = split(sum_of_a_product()).subprograms
    assert [len(sub.nodes) for sub in subs] == [1, 2]
    for sub in subs:
        original = sub.program
        last = original.steps[-1]
        swapped = program(
            original.count, [*original.steps[:-1], step(last.op, *last.inputs[::-1], **dict(last.params))]
        )
        for each in (original, swapped) if last.op == "add" else (original,):
            own = type(sub)(each, sub.shapes, sub.inputs, sub.outputs, sub.nodes, sub.constants)
            for mutant in mutants_of_subprogram(own, Limits(depth=2)):
                assert identity_of(mutant.program, sub.shapes) != identity_of(original, sub.shapes)


def test_no_two_mutants_of_a_search_are_the_same() -> None:
    found = mutants_of(sum_of_a_product(), Limits(depth=2)).found
    seen = [(mutant.subprogram.nodes, identity_of(mutant.program, mutant.subprogram.shapes)) for mutant in found]
    assert len(found) > 3
    assert len(set(seen)) == len(seen)
