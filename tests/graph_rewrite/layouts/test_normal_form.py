"""The normal form of a layout: the same index map, with inverse groups gone."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings

from graph_rewrite.layouts import Crop, Fold, Fuse, Layout, Pad, Primitive, Reorder, Shape, Split, Unfold
from tests.graph_rewrite.layouts.random_layouts import INJECTIVE, KINDS, layouts, onnx_graph


@given(layout=layouts(KINDS, most=9))
@settings(max_examples=300, deadline=None)
def test_keeps_the_meaning(layout: Layout) -> None:
    normal = layout.normalised()
    assert normal.shape == layout.shape
    np.testing.assert_array_equal(normal.index_map(), layout.index_map())


@given(layout=layouts(KINDS, most=9))
@settings(max_examples=300, deadline=None)
def test_is_idempotent(layout: Layout) -> None:
    normal = layout.normalised()
    assert normal.normalised() == normal


@given(layout=layouts(INJECTIVE, most=7))
@settings(max_examples=150, deadline=None)
def test_inverse_groups_vanish(layout: Layout) -> None:
    assert layout.then(layout.inverse()).normalised() == Layout(layout.source)


def views_of(shape: Shape) -> list[Primitive]:
    """Return the views of a shape, but those that change nothing."""
    found: list[Primitive] = [Reorder(perm) for perm in permutations(range(len(shape))) if list(perm) != sorted(perm)]
    for axis, size in enumerate(shape):
        found += [Split(axis, (d, size // d)) for d in range(2, size) if size % d == 0]
        found += [Fuse(axis, shape[axis : axis + 2])] if axis + 1 < len(shape) else []
    return found


@pytest.mark.parametrize("shape", [(2, 4), (3, 4), (1, 2, 4)])
def test_views_with_one_transpose_and_equal_maps_are_equal(shape: Shape) -> None:
    known: dict[tuple[Shape, bytes], Layout] = {}
    level = [Layout(shape)]
    for _ in range(4):
        for layout in level:
            normal = layout.normalised()
            if sum(isinstance(each, Reorder) for each in normal.primitives) < 2:
                assert known.setdefault((layout.shape, layout.index_map().tobytes()), normal) == normal
        level = [layout.then(view) for layout in level for view in views_of(layout.shape)]
    assert len(known) >= 20


@pytest.mark.parametrize(
    ("source", "primitives", "normal"),
    [
        # Two Reorders are one, whatever views stand between them.
        ((2, 3, 4), (Reorder((0, 2, 1)), Fuse(1, (4, 3)), Split(1, (4, 3)), Reorder((2, 0, 1))), (Reorder((1, 0, 2)),)),
        # A batch goes into the width and comes back.
        ((2, 3, 4, 5), (Reorder((1, 2, 0, 3)), Fuse(2, (2, 5)), Split(2, (2, 5)), Reorder((2, 0, 1, 3))), ()),
        # Paddings add up, and move before views of other axes.
        (
            (2, 3), (Pad(1, 1, 2), Reorder((1, 0)), Pad(0, 1, 0), Crop(1, 0, 1)),
            (Crop(0, 0, 1), Pad(1, 2, 2), Fuse(0, (1, 7)), Split(0, (7, 1))),
        ),
        # Cropped padding.
        ((4,), (Pad(0, 2, 2), Crop(0, 1, 3)), (Crop(0, 0, 1), Pad(0, 1, 0))),
        ((1,), (Pad(0, 2, 2), Crop(0, 4, 0)), (Pad(0, 2, 2), Crop(0, 4, 0))),
        # A mask is not nothing.
        ((4,), (Crop(0, 1, 1), Pad(0, 1, 1)), (Crop(0, 1, 1), Pad(0, 1, 1))),
        # Tiles that do not overlap are views.
        ((6, 5), (Unfold(0, 2, 2), Reorder((0, 2, 1))), (Split(0, (3, 2)), Reorder((0, 2, 1)))),
        ((7,), (Unfold(0, 3, 2), Reorder((1, 0)), Reorder((1, 0)), Fold(0, 2)), ()),
        ((7,), (Unfold(0, 7, 3),), (Split(0, (1, 7)),)),
        # Tiles of one axis leave others alone.
        (
            (7, 4, 5), (Unfold(1, 2, 1), Pad(3, 1, 0), Pad(0, 0, 2), Fold(1, 1), Crop(2, 0, 1), Pad(1, 1, 0)),
            (Pad(0, 0, 2), Pad(1, 1, 0), Crop(2, 0, 1), Pad(2, 1, 0)),
        ),
        # Axes of size 1 are views.
        ((1, 4, 1, 5), (Reorder((2, 1, 0, 3)),), ()),
        ((1, 4, 5), (Reorder((0, 2, 1)),), (Reorder((0, 2, 1)),)),
        # No shape has the axes of both.
        (
            (2, 3), (Reorder((1, 0)), Fuse(0, (3, 2)), Split(0, (2, 3)), Reorder((1, 0))),
            (Reorder((1, 0)), Fuse(0, (3, 2)), Split(0, (2, 3)), Reorder((1, 0))),
        ),
    ],
)  # fmt: skip
def test_examples(source: tuple[int, ...], primitives: tuple[Primitive, ...], normal: tuple[Primitive, ...]) -> None:
    found = Layout(source, primitives).normalised()
    np.testing.assert_array_equal(found.index_map(), Layout(source, primitives).index_map())
    assert found.primitives == normal


def test_neighbouring_subprograms_keep_one_transpose() -> None:
    """Figure 7 of PET: what one subprogram puts back and the next takes apart in another way is one step."""
    back = Layout(
        (16, 48, 10, 10), (Split(0, (1, 4, 4)), Reorder((0, 3, 1, 4, 2, 5)), Fuse(2, (4, 10)), Fuse(3, (4, 10)))
    )
    apart = Layout(
        (1, 48, 40, 40), (Split(2, (2, 20)), Split(4, (2, 20)), Reorder((0, 2, 4, 1, 3, 5)), Fuse(0, (1, 2, 2)))
    )
    both = back.then(apart).normalised()
    assert both.shape == (4, 48, 20, 20)
    assert [node.op for node in onnx_graph(both).order()] == ["Reshape", "Transpose", "Reshape"]
    np.testing.assert_array_equal(both.index_map(), back.then(apart).index_map())
