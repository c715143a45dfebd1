"""Hypothesis strategies for layouts over small shapes, and their ONNX forms as graphs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from onnx import TensorProto

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.layouts import Crop, Fold, Fuse, Layout, Pad, Primitive, Reorder, Shape, Split, Unfold
from graph_rewrite.onnx_files.assembly import Assembly
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder

SHAPES = st.lists(st.sampled_from((1, 2, 3, 4, 6, 8)), min_size=1, max_size=4).map(tuple)
VIEWS = ("split", "fuse", "reorder")
INJECTIVE = (*VIEWS, "pad", "unfold")
KINDS = (*INJECTIVE, "crop", "fold")


@st.composite
def primitives(draw: Any, shape: Shape, kinds: tuple[str, ...] = KINDS) -> Primitive:
    """Draw a primitive that fits a shape of at least one axis."""
    kind = draw(st.sampled_from(kinds))
    axis = draw(st.integers(0, len(shape) - 1))
    size = shape[axis]
    if kind == "split":
        first = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        return Split(axis, (first, size // first))
    if kind == "fuse":
        count = draw(st.integers(1, len(shape) - axis))
        return Fuse(axis, shape[axis : axis + count])
    if kind == "pad":
        return Pad(axis, draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    if kind == "crop":
        before = draw(st.integers(0, min(size - 1, 2)))
        return Crop(axis, before, draw(st.integers(0, min(size - 1 - before, 2))))
    if kind == "unfold":
        tile = draw(st.integers(1, size))
        strides = [s for s in range(1, tile + 1) if (size - tile) % s == 0]
        return Unfold(axis, tile, draw(st.sampled_from(strides)))
    if kind == "fold" and axis + 1 < len(shape):
        return Fold(axis, draw(st.integers(1, shape[axis + 1])))
    return Reorder(tuple(draw(st.permutations(range(len(shape))))))


@st.composite
def layouts(draw: Any, kinds: tuple[str, ...] = KINDS, most: int = 6) -> Layout:
    """Draw a layout of up to `most` primitives whose results stay small."""
    layout = Layout(draw(SHAPES))
    for _ in range(draw(st.integers(0, most))):
        following = layout.then(draw(primitives(layout.shape, kinds)))
        if TensorType(TensorProto.DOUBLE, following.shape).size <= 2000 and len(following.shape) <= 7:
            layout = following
    return layout


def onnx_graph(layout: Layout, dtype: int = TensorProto.DOUBLE) -> Graph:
    """Return a graph of one input `x`, whose output is the layout's ONNX form."""
    assembly = Assembly()
    type = TensorType(dtype, layout.source)
    values = {"v0": assembly.input("x", type)}
    op = ReplacementBuilder(assembly.opset)
    replacement = op.finish((layout.onnx(op, Ref(type, external=0)),))
    for number, node in enumerate(replacement.nodes):
        refs = [ref for ref in node.inputs if ref is not None]
        for ref in refs:
            if ref.constant is not None and ref.key not in values:
                values[ref.key] = assembly.constant(f"c{len(values)}", ref.numpy())
        made = assembly.apply(node.op, node.domain, node.attrs, [values[ref.key] for ref in refs], len(node.types))
        values.update({f"n{number}.{i}": value for i, value in enumerate(made)})
    return assembly.graph([values[replacement.outputs[0].key]])
