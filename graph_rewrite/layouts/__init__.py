"""Layouts: how the elements of a tensor are arranged, as sequences of primitives that are values.

`Split`, `Fuse`, `Reorder`, `Pad`, `Crop`, `Unfold` and `Fold` are the primitives. A `Layout` is a sequence of them
over a shape. Each has a form in NumPy, a form in ONNX and an index map.
"""

from graph_rewrite.layouts.layout import Layout
from graph_rewrite.layouts.primitive import LayoutError, Primitive, Shape
from graph_rewrite.layouts.sizes import Crop, Fold, Pad, Unfold
from graph_rewrite.layouts.views import Fuse, Reorder, Split

__all__ = [
    "Crop",
    "Fold",
    "Fuse",
    "Layout",
    "LayoutError",
    "Pad",
    "Primitive",
    "Reorder",
    "Shape",
    "Split",
    "Unfold",
]
