"""The mutation generator finds the rewrites of PET by itself."""

from collections.abc import Callable
from typing import Any

import pytest

from graph_rewrite.layouts import Crop, Shape
from graph_rewrite.mutate.equivalence import Disagreement, RandomTrials, prove
from graph_rewrite.mutate.generation.finish import Target
from graph_rewrite.mutate.generation.generator import Generator, deadline
from graph_rewrite.mutate.generation.sketch import Sketch
from graph_rewrite.mutate.program import Step, TensorProgram, program, step
from graph_rewrite.mutate.value_types import types_of
from tests.graph_rewrite.mutate.programs import CONV, DILATED, conv, layout

Wanted = Callable[[list[tuple[str, Any]]], bool]


def operators(sketch: Sketch, shapes: tuple[Shape, ...]) -> list[tuple[str, Any]]:
    """Operators other than layouts, with the shapes of what they read; dilated convolutions say so."""
    types = types_of(TensorProgram(sketch.count, sketch.steps, ()), shapes)
    return [(_name(s), tuple(types[v].shape for v in s.inputs)) for s in sketch.steps if s.op != "layout"]


def _name(s: Step) -> str:
    return "dilated" if s.op == "conv" and max(s.param("dilations")) > 1 else s.op


def found(
    original: TensorProgram, shapes: tuple[Shape, ...], wanted: Wanted, share: float
) -> tuple[TensorProgram, Disagreement]:
    """The first mutant with these operators of which so much is right, completed and proved."""
    for sketch in Generator(original, shapes).sketches():
        if sketch.share_right >= share and wanted(operators(sketch, shapes)):
            trials = RandomTrials(original, shapes)
            mutant = sketch.at([Target(values) for values in trials.outputs(0)], trials.inputs(0), 0.25)
            assert mutant is not None
            finding = prove(trials, mutant)
            assert finding is not None
            return mutant, finding
    raise AssertionError("not found")


def is_one(op: str, *shapes: Shape) -> Wanted:
    return lambda found: found == [(op, shapes)]


@pytest.mark.parametrize("wide", [(1, 2, 8, 16), (1, 2, 16, 8)])
def test_batch_into_width_and_height(wide: Shape) -> None:
    _, finding = found(CONV, ((2, 2, 8, 8), (3, 2, 3, 3)), is_one("conv", wide, (3, 2, 3, 3)), 0.5)
    assert finding.share_wrong == 1 / 8
    assert len(finding.wrong[0]) == 2


def test_dilated_to_dense() -> None:
    def dense(steps: list[tuple[str, Any]]) -> bool:
        return steps == [("conv", ((1, 2, 14, 14), (3, 2, 3, 3)))]

    mutant, finding = found(DILATED, ((1, 2, 14, 14), (3, 2, 3, 3)), dense, 0.73)
    assert [s.param("dilations") for s in mutant.steps if s.op == "conv"] == [(1, 1)]
    assert finding.share_wrong == pytest.approx(1 - (12 / 14) ** 2)


def test_an_image_of_38_by_38_to_16_of_10_by_10() -> None:
    mutant, finding = found(CONV, ((1, 2, 38, 38), (3, 2, 3, 3)), is_one("conv", (16, 2, 10, 10), (3, 2, 3, 3)), 0.5)
    assert finding.share_wrong == pytest.approx(1 - (32 / 38) ** 2)
    assert len(mutant.steps) == 3


def test_an_image_in_tiles_with_halos_is_exact() -> None:
    mutant, finding = found(CONV, ((1, 2, 14, 14), (3, 2, 3, 3)), is_one("conv", (4, 2, 9, 9), (3, 2, 3, 3)), 1)
    assert finding.exact
    assert [s.param("pads") for s in mutant.steps if s.op == "conv"] == [(0, 0, 0, 0)]


def test_stride_to_1() -> None:
    strided = program(2, [conv(0, 1, stride=2, rank=1)])
    mutant, finding = found(strided, ((1, 2, 16), (3, 2, 3)), is_one("conv", (1, 4, 8), (3, 4, 2)), 1)
    assert [s.param("strides") for s in mutant.steps if s.op == "conv"] == [(1,)]
    assert finding.exact


@pytest.mark.slow  # thousands of pairs of layouts, one of the image and one of the filters
def test_stride_to_1_of_an_image() -> None:
    strided = program(2, [conv(0, 1, stride=2)])
    _, finding = found(strided, ((1, 2, 12, 12), (3, 2, 3, 3)), is_one("conv", (1, 8, 6, 6), (3, 8, 2, 2)), 1)
    assert finding.exact


def test_group_to_dense() -> None:
    def dense(steps: list[tuple[str, Any]]) -> bool:
        return steps[-1] == ("conv", ((1, 4, 6, 6), (6, 4, 3, 3)))

    _, finding = found(CONV, ((1, 4, 6, 6), (6, 2, 3, 3)), dense, 1)
    assert finding.exact


def test_batched_to_plain_product() -> None:
    product = program(2, [step("matmul", 0, 1)])
    _, finding = found(product, ((2, 3, 4), (2, 4, 5)), is_one("matmul", (1, 6, 4), (1, 4, 10)), 0.5)
    assert finding.share_wrong == 0.5
    _, finding = found(product, ((2, 3, 4), (1, 4, 5)), is_one("matmul", (1, 6, 4), (1, 4, 5)), 0.5)
    assert finding.exact


@pytest.mark.parametrize(("counted", "wrong"), [(1, 0.0), (0, 1 - 0.8**2)])
def test_average_pool_to_convolution(counted: int, wrong: float) -> None:
    pool = program(1, [step("pool", 0, kernel=(3, 3), strides=(1, 1), pads=(1,) * 4, counted=counted)])
    mutant, finding = found(pool, ((1, 3, 10, 10),), lambda steps: steps[-1][0] == "conv", 0.6)
    assert finding.share_wrong == pytest.approx(wrong)
    assert [s.op for s in mutant.steps] == ["averaging", "conv"]


def two_convolutions(filters: int, others: int) -> tuple[TensorProgram, tuple[Shape, ...]]:
    both = program(4, [conv(0, 2), conv(1, 3)], [4, 5])
    return both, ((1, 2, 6, 6), (1, 2, 6, 6), (filters, 2, 3, 3), (others, 2, 3, 3))


def test_parallel_convolutions_with_padded_filters_become_groups() -> None:
    """Figure 10a of PET: the smaller filters get zeros, and their outputs are thrown away."""
    original, shapes = two_convolutions(3, 2)

    def grouped(steps: list[tuple[str, Any]]) -> bool:
        return "fit" in dict(steps) and steps[-1] == ("conv", ((1, 4, 6, 6), (6, 2, 3, 3)))

    mutant, finding = found(original, shapes, grouped, 1)
    assert finding.exact
    assert sum(s.op == "conv" for s in mutant.steps) == 1


def test_parallel_convolutions_with_a_copied_input_become_groups() -> None:
    """Figure 10b of PET: an input twice gives groups of equal size."""
    original, shapes = two_convolutions(4, 2)

    def grouped(steps: list[tuple[str, Any]]) -> bool:
        return steps[-1] == ("conv", ((1, 6, 6, 6), (6, 2, 3, 3)))

    _, finding = found(original, shapes, grouped, 1)
    assert finding.exact


def test_convolutions_of_one_image_become_one() -> None:
    original = program(3, [conv(0, 1), conv(0, 2)], [3, 4])
    shapes = ((1, 2, 6, 6), (3, 2, 3, 3), (2, 2, 3, 3))
    mutant, finding = found(original, shapes, lambda steps: steps[-1][1] == (shapes[0], (5, 2, 3, 3)), 1)
    assert finding.exact
    assert len(mutant.outputs) == 2


def test_convolutions_of_parts_become_groups() -> None:
    """Table 1 of PET has split among its operators: here each half of the channels has filters of its own."""
    halves = [layout(0, Crop(1, 0, 2)), layout(0, Crop(1, 2, 0))]
    original = program(3, [*halves, conv(3, 1), conv(4, 2), step("concat", 5, 6, axis=1)])
    shapes = ((1, 4, 6, 6), (3, 2, 3, 3), (3, 2, 3, 3))
    mutant, finding = found(original, shapes, lambda steps: steps[-1] == ("conv", (shapes[0], (6, 2, 3, 3))), 1)
    assert finding.exact
    assert [s.op for s in mutant.steps] == ["concat", "conv"]


def test_every_sketch_keeps_what_was_asked_for() -> None:
    shapes = ((2, 2, 6, 6), (2, 2, 3, 3))
    trials = RandomTrials(CONV, shapes)
    targets = [Target(values) for values in trials.outputs(0)]
    sketches = list(Generator(CONV, shapes, depth=2, keep=0.6).sketches())
    assert len(sketches) > 3
    for sketch in sketches:
        mutant = sketch.at(targets, trials.inputs(0), 0.6)
        assert mutant is not None
        assert prove(trials, mutant) is not None
        *_, (mask,) = trials.agreement(mutant)
        assert mask.mean() == sketch.share_right >= 0.6


def test_the_generator_stops_when_told() -> None:
    asked = iter([False] * 50 + [True] * 10**6)
    generator = Generator(CONV, ((2, 2, 6, 6), (2, 2, 3, 3)), stop=lambda: next(asked))
    list(generator.sketches())
    assert 0 < generator.tried <= 50


def test_a_deadline_passes() -> None:
    now = iter([0.0, 4.9, 5.0])
    passed = deadline(5, clock=lambda: next(now))
    assert [passed(), passed()] == [False, True]


def test_the_original_itself_is_no_mutant() -> None:
    def is_the_original(each: Step) -> bool:
        return each == CONV.steps[0]

    for sketch in Generator(CONV, ((1, 2, 5, 5), (2, 2, 3, 3)), depth=1).sketches():
        assert not is_the_original(sketch.steps[0])
