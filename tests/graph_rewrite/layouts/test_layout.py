"""Layouts: their three forms agree, and what they do can be undone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.layouts import Crop, Fold, Fuse, Layout, LayoutError, Pad, Primitive, Reorder, Shape, Split, Unfold
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from tests.graph_rewrite.layouts.random_layouts import INJECTIVE, VIEWS, layouts, onnx_graph


def elements(shape: Shape) -> np.ndarray:
    """Return distinct elements, none of them zero."""
    return np.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape)


def read_by(layout: Layout, array: np.ndarray) -> np.ndarray:
    """Return the result of a layout by its index map."""
    indices = layout.index_map()
    return np.where(indices < 0, 0, array.reshape(-1)[np.maximum(indices, 0)])


class TestForms:
    @given(layout=layouts())
    @settings(max_examples=150, deadline=None)
    def test_numpy_onnx_and_index_map_agree(self, layout: Layout) -> None:
        array = elements(layout.source)
        found = layout.numpy(array)
        assert found.shape == layout.shape
        np.testing.assert_array_equal(found, read_by(layout, array))
        np.testing.assert_array_equal(run_graph(onnx_graph(layout), {"x": array})[0], found)

    @given(layout=layouts())
    @settings(max_examples=60, deadline=None)
    def test_elements_of_any_type_are_moved(self, layout: Layout) -> None:
        whole = elements(layout.source).astype(np.int64)
        np.testing.assert_array_equal(layout.numpy(whole), read_by(layout, whole))
        assert layout.numpy(whole).dtype == np.int64

    @given(layout=layouts(VIEWS))
    @settings(max_examples=60, deadline=None)
    def test_views_are_permutations(self, layout: Layout) -> None:
        assert sorted(layout.index_map().reshape(-1)) == list(range(elements(layout.source).size))

    def test_neighbours_that_one_operator_can_do_become_one(self) -> None:
        steps = (
            Split(0, (2, 2)),
            Fuse(1, (2, 3)),
            Pad(0, 1, 0),
            Pad(1, 0, 2),
            Pad(0, 1, 1),
            Crop(1, 1, 0),
            Crop(0, 0, 1),
        )
        graph = onnx_graph(Layout((4, 3), steps))
        assert [node.op for node in graph.order()] == ["Reshape", "Pad", "Pad", "Slice"]

    def test_what_moves_nothing_is_left_out(self) -> None:
        steps = (Reorder((0, 1)), Pad(0, 0, 0), Crop(1, 0, 0), Unfold(0, 4, 4), Fold(0, 4), Split(1, (3,)))
        assert not onnx_graph(Layout((4, 3), steps)).nodes

    @pytest.mark.parametrize("size", [9, 41])
    def test_overlapping_tiles_are_slices_where_they_are_few(self, size: int) -> None:
        graph = onnx_graph(Layout((size,), (Unfold(0, 5, 4),)))
        few = ["Slice", "Slice", "Concat", "Reshape"]
        assert [node.op for node in graph.order()] == (few if size == 9 else ["Gather"])

    def test_half_precision_has_an_onnx_form(self) -> None:
        layout = Layout((2, 5), (Pad(1, 1, 1), Unfold(1, 3, 2)))
        array = elements((2, 5)).astype(np.float16)
        [found] = run_graph(onnx_graph(layout, TensorProto.FLOAT16), {"x": array}, float64=False)
        np.testing.assert_array_equal(found, layout.numpy(array))


class TestInverse:
    @given(layout=layouts(INJECTIVE))
    @settings(max_examples=150, deadline=None)
    def test_undoes_what_loses_nothing(self, layout: Layout) -> None:
        array = elements(layout.source)
        assert layout.is_injective
        np.testing.assert_array_equal(layout.inverse().numpy(layout.numpy(array)), array)
        identity = np.arange(array.size).reshape(layout.source)
        np.testing.assert_array_equal(layout.then(layout.inverse()).index_map(), identity)

    @given(layout=layouts(), data=st.data())
    @settings(max_examples=100, deadline=None)
    def test_exists_where_every_element_is_kept_step_by_step(self, layout: Layout, data: st.DataObject) -> None:
        kept = True
        for primitive, shape in zip(layout.primitives, layout.shapes, strict=False):
            one = Layout(shape, (primitive,))
            everything = set(range(elements(shape).size))
            kept = kept and everything <= set(one.index_map().reshape(-1).tolist())
        assert layout.is_injective == kept

    def test_refused_where_elements_are_lost(self) -> None:
        layout = Layout((6,), (Crop(0, 1, 0),))
        assert not layout.is_injective
        with pytest.raises(LayoutError, match=r"elements are lost by \[6\] -> crop"):
            layout.inverse()


class TestErrors:
    @pytest.mark.parametrize(
        ("shape", "primitive", "reason"),
        [
            ((6,), Split(0, (4, 2)), "does not give the 6 positions"),
            ((6,), Split(0, (-2, -3)), "does not give the 6 positions"),
            ((6,), Split(1, (2, 3)), r"needs axis 1, and the shape is \[6\]"),
            ((6,), Split(-1, (2, 3)), "needs axis"),
            ((6, 2), Fuse(0, (2, 3)), "needs these sizes"),
            ((6, 2), Fuse(1, (2, 3)), "needs axis 2"),
            ((6, 2), Reorder((0, 0)), "does not name each axis"),
            ((6, 2), Reorder((0,)), "does not name each axis"),
            ((6,), Pad(0, -1, 0), "is a Crop"),
            ((6,), Crop(0, 0, -1), "is a Pad"),
            ((6,), Crop(0, 3, 3), "leaves nothing"),
            ((6,), Unfold(0, 3, 2), "do not cover"),
            ((6,), Unfold(0, 7, 1), "do not cover"),
            ((6,), Unfold(0, 2, 4), "needs a stride"),
            ((6,), Unfold(0, 2, 0), "needs a stride"),
            ((6,), Fold(0, 2), "needs axis 1"),
            ((6, 2), Fold(0, 3), "needs a stride"),
        ],
    )
    def test_primitives_refuse_shapes_they_do_not_fit(self, shape: Shape, primitive: Primitive, reason: str) -> None:
        with pytest.raises(LayoutError, match=reason):
            Layout(shape, (primitive,))
        with pytest.raises(LayoutError, match=reason):
            primitive.inverse(shape)
        with pytest.raises(LayoutError, match=reason):
            primitive.numpy(np.ones(shape))
        with pytest.raises(LayoutError, match=reason):
            primitive.onnx(ReplacementBuilder(23), Ref(TensorType(TensorProto.FLOAT, shape), external=0))

    def test_another_shape_than_the_source_is_refused(self) -> None:
        layout = Layout((2, 3), (Fuse(0, (2, 3)),))
        with pytest.raises(LayoutError, match=r"needs shape \[2,3\], and not \[3,2\]"):
            layout.numpy(np.ones((3, 2)))
        with pytest.raises(LayoutError, match=r"needs shape \[2,3\]"):
            layout.onnx(ReplacementBuilder(23), Ref(TensorType(TensorProto.FLOAT, (6,)), external=0))
        with pytest.raises(LayoutError, match=r"follows needs shape \[2,3\], and this one gives \[6\]"):
            layout.then(layout)
        with pytest.raises(LayoutError, match="positions along every axis"):
            Layout((2, 0))


class TestPrinting:
    def test_reads_from_left_to_right(self) -> None:
        steps = (
            Pad(2, 1, 1),
            Unfold(2, 6, 4),
            Reorder((0, 2, 1, 3)),
            Fuse(0, (1, 2)),
            Split(1, (2, 24)),
            Crop(0, 1, 0),
            Fold(1, 3),
        )
        assert str(Layout((1, 48, 8), steps)) == (
            "[1,48,8] -> pad(2, 1+1) -> unfold(2, 6 every 4) -> reorder(0, 2, 1, 3) -> fuse(0, 1x2)"
            " -> split(1, 2x24) -> crop(0, 1+0) -> fold(1, every 3) -> [1,27,6]"
        )
