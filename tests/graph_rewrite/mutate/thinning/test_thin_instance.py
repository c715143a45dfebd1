"""Thin instances: which sizes they keep, and that mutants are the same ones there."""

from __future__ import annotations

import pytest

from graph_rewrite.layouts import Fuse, Reorder, Shape, Split
from graph_rewrite.mutate.generation.instance import work_of
from graph_rewrite.mutate.moves import Move
from graph_rewrite.mutate.program import Subprogram, TensorProgram, program, step
from graph_rewrite.mutate.search import Limits, mutants_of_subprogram
from graph_rewrite.mutate.thinning import MutantJudge
from graph_rewrite.mutate.thinning.thin_instance import thin_instance
from graph_rewrite.mutate.value_types import types_of
from tests.graph_rewrite.mutate.programs import BATCH_TO_WIDTH, CONV, conv, layout

POOL = program(1, [step("pool", 0, kernel=(3, 3), strides=(1, 1), pads=(1,) * 4, counted=0)])
TWO = program(4, [conv(0, 2, pad=0), conv(1, 3, pad=0)], [4, 5])
HEADS = program(2, [step("matmul", 0, 1), layout(2, Fuse(0, (1, 128, 768)), Split(0, (1, 128, 12, 64)))])
BLOCK = program(5, [conv(0, 1, 2), step("mul", 5, 3), step("add", 4, 6)])


@pytest.mark.parametrize(
    ("made", "shapes", "wanted"),
    [
        (CONV, ((16, 64, 56, 56), (128, 64, 3, 3)), ((16, 8, 56, 56), (8, 8, 3, 3))),
        # An image of three channels, and a stride of 3 that divides the filters.
        (program(2, [conv(0, 1, stride=3)]), ((16, 3, 224, 224), (96, 3, 7, 7)), ((16, 3, 224, 224), (24, 3, 7, 7))),
        # Groups stay, and so do channels of their own.
        (CONV, ((8, 256, 28, 28), (256, 8, 3, 3)), ((8, 256, 28, 28), (32, 8, 3, 3))),
        (CONV, ((8, 256, 56, 56), (256, 1, 3, 3)), ((8, 256, 56, 56), (256, 1, 3, 3))),
        # What is added and multiplied, and biases, have the channels of the filters.
        (
            BLOCK,
            ((2, 64, 28, 28), (96, 64, 3, 3), (96,), (96, 1, 1), (2, 96, 28, 28)),
            ((2, 8, 28, 28), (8, 8, 3, 3), (8,), (8, 1, 1), (2, 8, 28, 28)),
        ),
        # Channels of parallel convolutions stay in proportion: mutants put them side by side.
        (
            TWO, ((1, 64, 56, 56), (1, 64, 56, 56), (48, 64, 1, 1), (32, 64, 1, 1)),
            ((1, 8, 56, 56), (1, 8, 56, 56), (24, 8, 1, 1), (16, 8, 1, 1)),
        ),
        (program(2, [step("matmul", 0, 1)]), ((12, 128, 64), (12, 64, 256)), ((12, 128, 8), (12, 8, 8))),
        # A layout keeps the axes that it takes apart.
        (HEADS, ((1, 128, 768), (768, 768)), ((1, 128, 8), (8, 768))),
        (
            program(2, [layout(0, Reorder((0, 3, 1, 2))), conv(2, 1)]),
            ((1, 56, 56, 64), (64, 64, 3, 3)), ((1, 56, 56, 8), (8, 8, 3, 3)),
        ),
        # Moves of images leave the channels whole.
        (BATCH_TO_WIDTH, ((16, 64, 56, 56), (64, 64, 3, 3)), ((16, 8, 56, 56), (8, 8, 3, 3))),
        (
            program(2, [layout(0, Move(1, "outer", 0, "outer", 2)), conv(2, 1)]),
            ((8, 64, 56, 56), (64, 32, 3, 3)), ((8, 64, 56, 56), (8, 32, 3, 3)),
        ),
        # Little work needs no other instance, and a pool alone takes none of its channels from another.
        (CONV, ((1, 8, 8, 8), (8, 8, 3, 3)), ((1, 8, 8, 8), (8, 8, 3, 3))),
        (POOL, ((1, 192, 35, 35),), ((1, 8, 35, 35),)),
    ],
)  # fmt: skip
def test_batches_images_and_kernels_stay(
    made: TensorProgram, shapes: tuple[Shape, ...], wanted: tuple[Shape, ...]
) -> None:
    thin = thin_instance(Subprogram(made, shapes))
    assert thin.shapes == wanted
    before, after = types_of(made, shapes), types_of(thin.program, thin.shapes)
    assert [len(type.shape) for type in before] == [len(type.shape) for type in after]
    if thin.shapes != shapes:
        assert 4 * work_of(thin.program, thin.shapes) <= work_of(made, shapes)


@pytest.mark.parametrize(
    ("made", "shapes"),
    [
        (CONV, ((4, 16, 5, 6), (32, 16, 3, 3))),
        (CONV, ((1, 32, 5, 5), (32, 16, 3, 3))),
        (program(2, [conv(0, 1, dilation=2, pad=2, rank=1)]), ((1, 16, 12), (16, 16, 3))),
        (program(2, [conv(0, 1, stride=2, rank=1)]), ((1, 16, 32), (32, 16, 3))),
        (program(3, [conv(0, 1), step("add", 2, 3)]), ((2, 16, 6, 6), (32, 16, 3, 3), (32, 1, 1))),
        (program(2, [step("matmul", 0, 1)]), ((2, 8, 16), (2, 16, 32))),
    ],
)
def test_mutants_boxes_and_shares_are_those_of_the_real_shapes(
    made: TensorProgram, shapes: tuple[Shape, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More may be found with few channels, where some rearrangements undo each other: no proof accepts them."""
    monkeypatch.setattr("graph_rewrite.mutate.thinning.thin_instance.LEAST_WORK", 0)
    sub = Subprogram(made, shapes)
    assert MutantJudge(sub).thin.shapes != shapes
    thin, direct = found_by(MutantJudge(sub)), found_by(MutantJudge(sub, thin=sub))
    assert direct.items() <= thin.items()
    assert len(thin) <= len(direct) + 1
    assert direct


def found_by(judge: MutantJudge) -> dict[str, object]:
    found = mutants_of_subprogram(judge.real, Limits(depth=2, keep=0.4), judge=judge)
    return {str(mutant.program): (mutant.finding.wrong, mutant.finding.shares) for mutant in found}
