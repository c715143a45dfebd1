"""Inputs of chosen shapes, and those of the user, as files."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import TensorProto

from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.operators.input_types import element_shapes
from graph_rewrite.runtime import FeedSpec, Recipes
from graph_rewrite.runtime.ort_worker.feeds import Feeds, ModelInput, make_feeds
from graph_rewrite.runtime.ort_worker.narrow_floats import storable
from graph_rewrite.symbolic.inputs import Shapes, SymbolicInputs
from graph_rewrite.symbolic.lanes import NotGeneralError
from graph_rewrite.task.input_data import model_inputs


class NoFeedsError(NotGeneralError):
    """No inputs can be made for the model; the message says for which one and why."""


def write_feeds(graph: Graph, inputs: SymbolicInputs, shapes: Shapes, folder: Path, seed: int) -> FeedSpec:
    """Write random inputs of given shapes into `folder`, as a recipe that reads them.

    Token ids lie within the model's tables; masks are all ones for an even seed, and random for an odd one.

    Raises:
        NoFeedsError: an input of a type that no random values can be made for.
    """
    names = [graph.names[value] for value in graph.inputs if graph.names[value] in inputs.dims]
    masks = {name: (0, 2) for name in names if seed % 2 and "mask" in name.lower()}
    wanted = []
    for info in graph.header.graph.input:
        if info.name not in inputs.dims:
            continue
        dims = shapes.get(info.name) or tuple(int(dim) for dim in inputs.dims[info.name])
        kind = TensorProto.DataType.Name(info.type.tensor_type.elem_type).lower()
        wanted.append(ModelInput(info.name, f"tensor({kind})", dims))
    try:
        arrays = make_feeds(wanted, FeedSpec(seed, {**masks, **index_ranges(graph)}))
    except ValueError as error:
        raise NoFeedsError(str(error)) from error
    text = "-".join(f"{name}{'x'.join(map(str, shape))}" for name, shape in shapes.items())
    path = folder / f"feeds-{seed}-{abs(hash(text)) % 10**10}.npz"
    return _saved(arrays, path, graph)


def measured_feeds(
    graph: Graph, inputs: SymbolicInputs, shapes: Shapes, bound: Graph, data: Sequence[FeedSpec], folder: Path
) -> Recipes:
    """Return the inputs to measure a model with symbolic dimensions with: the user's, where there are any of these
    shapes, and else random ones, with token ids that lie within the model's tables.

    Args:
        graph: the graph at the shapes that were searched, from which the ranges of token ids are read.
        shapes: the shapes to measure at.
        bound: the model at the shape of the user's inputs.
        folder: where the user's inputs are written.
    """
    if data:
        return write_data(bound, data, folder)
    fixed = {name: shapes.get(name) or tuple(int(dim) for dim in dims) for name, dims in inputs.dims.items()}
    return FeedSpec(input_ranges=index_ranges(graph), element_shapes=fixed)


def write_data(bound: Graph, data: Sequence[FeedSpec], folder: Path) -> tuple[FeedSpec, ...]:
    """Write each of the user's inputs as a file of its own.

    A file that holds several is read by the shapes of the model's inputs, and a model with symbolic dimensions does not
    tell several inputs from one of a larger batch.

    Args:
        bound: the model at the shape of the inputs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, spec in enumerate(data):
        path = folder / f"{Path(spec.npz or '').stem}-{number}.npz"
        written.append(_saved(make_feeds(model_inputs(bound), spec), path, bound))
    return tuple(written)


def _saved(feeds: Feeds, path: Path, graph: Graph) -> FeedSpec:
    """Write values of tensors to a file, as a recipe that reads them."""
    with zipfile.ZipFile(path, "w") as archive:  # np.savez takes no array by the name of one of its own arguments
        for name, array in feeds.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(storable(array)), allow_pickle=False)
    return FeedSpec(npz=str(path), element_shapes=element_shapes(graph))
