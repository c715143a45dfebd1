"""Small instances, at which mutants are found."""

import numpy as np
import pytest

from graph_rewrite.mutate.generation.instance import small_instance
from graph_rewrite.mutate.program import Subprogram, program, step
from graph_rewrite.mutate.value_types import types_of
from tests.graph_rewrite.mutate.programs import CONV, conv


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
    ],
)
def test_small_instances(made: object, shapes: tuple[tuple[int, ...], ...]) -> None:
    sub = Subprogram(made, shapes)  # type: ignore[arg-type]
    small = small_instance(sub)
    assert sum(np.prod(shape) for shape in small) <= 20_000
    before, after = types_of(sub.program, shapes), types_of(sub.program, small)
    assert [len(type.shape) for type in before] == [len(type.shape) for type in after]
