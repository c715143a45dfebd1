"""Small instances, at which mutants are found."""

import numpy as np
import pytest

from graph_rewrite.layouts import Crop, Fuse, Reorder, Shape, Split
from graph_rewrite.mutate.generation.instance import lifted, small_instance
from graph_rewrite.mutate.generation.sketch import Sketch
from graph_rewrite.mutate.program import Step, Subprogram, program, step
from graph_rewrite.mutate.value_types import types_of
from tests.graph_rewrite.mutate.programs import BATCH_TO_WIDTH, CONV, conv


def view(shape: Shape, other: Shape, value: int = 2) -> Step:
    return step("layout", value, chain=(Fuse(0, shape), Split(0, other)))


@pytest.mark.parametrize(
    ("made", "shapes"),
    [
        (CONV, ((1, 64, 56, 56), (128, 64, 3, 3))),
        (CONV, ((8, 32, 38, 38), (64, 4, 5, 5))),
        (program(3, [conv(0, 1, 2)]), ((1, 3, 224, 224), (64, 3, 7, 7), (64,))),
        (program(2, [step("matmul", 0, 1)]), ((12, 128, 64), (12, 64, 128))),
        (program(2, [conv(0, 1, rank=3)]), ((1, 16, 8, 56, 56), (32, 16, 3, 3, 3))),
        (program(1, [step("pool", 0, kernel=(3, 3), strides=(1, 1), pads=(1,) * 4, counted=0)]), ((1, 192, 35, 35),)),
        (
            program(4, [step("concat", 0, 1, axis=1), step("concat", 4, 2, axis=1), conv(5, 3, pad=0)]),
            ((1, 320, 17, 17), (1, 192, 17, 17), (1, 768, 17, 17), (320, 1280, 1, 1)),
        ),
        (program(3, [step("matmul", 0, 1), step("mul", 3, 2)]), ((12, 128, 64), (12, 64, 128), ())),
        (program(3, [conv(0, 1), step("mul", 3, 2)]), ((1, 64, 56, 56), (64, 64, 3, 3), ())),
        (program(4, [conv(0, 1), conv(2, 3), step("add", 4, 5)]), ((1, 64, 56, 56), (64, 64, 3, 3)) * 2),
        # The sum of a block: what is added has the size of what a stride leaves.
        (
            program(3, [conv(0, 1, stride=2, pad=0), step("add", 3, 2)]),
            ((1, 64, 56, 56), (128, 64, 1, 1), (1, 128, 28, 28)),
        ),
        (
            program(4, [conv(0, 1), conv(2, 3, stride=2, pad=0), step("add", 4, 5)]),
            ((1, 128, 28, 28), (128, 128, 3, 3), (1, 64, 56, 56), (128, 64, 1, 1)),
        ),
        # The heads of attention, the end of a network, and a part of a projection.
        (
            program(2, [step("matmul", 0, 1), view((1, 128, 768), (1, 128, 12, 64))]),
            ((1, 128, 768), (768, 768)),
        ),
        (
            program(2, [step("layout", 0, chain=(Reorder((0, 2, 1, 3)),)), step("matmul", 2, 1)]),
            ((1, 128, 12, 64), (1, 12, 64, 128)),
        ),
        (
            program(2, [view((1, 512, 7, 7), (1, 25088), value=0), step("matmul", 2, 1)]),
            ((1, 512, 7, 7), (25088, 1000)),
        ),
        (
            program(2, [step("matmul", 0, 1), step("layout", 2, chain=(Crop(2, 768, 768),))]),
            ((1, 128, 768), (768, 2304)),
        ),
    ],
)
def test_small_instances(made: object, shapes: tuple[tuple[int, ...], ...]) -> None:
    sub = Subprogram(made, shapes)  # type: ignore[arg-type]
    small = small_instance(sub)
    assert sum(np.prod(shape) for shape in small.shapes) <= 20_000
    before, after = types_of(sub.program, shapes), types_of(small.program, small.shapes)
    assert [len(type.shape) for type in before] == [len(type.shape) for type in after]


def test_moves_have_no_sizes_and_stay() -> None:
    sub = Subprogram(BATCH_TO_WIDTH, ((2, 64, 56, 56), (128, 64, 3, 3)))
    small = small_instance(sub)
    assert small.shapes != sub.shapes
    assert small.program == sub.program


def test_a_layout_of_the_original_is_carried_over_to_the_real_sizes() -> None:
    shapes = ((1, 128, 768), (768, 768))
    sub = Subprogram(program(2, [step("matmul", 0, 1), view((1, 128, 768), (1, 128, 12, 64))]), shapes)
    small = small_instance(sub)
    sketch = Sketch(2, small.program.steps, ((3, ()),), 1.0)
    first, *_ = lifted(sketch, small, sub)
    assert first.steps == sub.program.steps
