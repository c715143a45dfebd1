"""Each model of the matrix goes through `rewritegym.optimize` as a whole; the file that it writes computes the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

import rewritegym
from graph_rewrite import load
from graph_rewrite.errors import UserError
from tests.coverage_of_models.matrix import MATRIX
from tests.coverage_of_models.planted_meter import OPTIONS, planted_gains
from tests.coverage_of_models.test_matrix import TOLERANCE, assert_same, feeds_of, opened, outputs_of
from tests.graph_rewrite import custom_ops

REFUSED = {
    "an operator of a custom domain": "custom domain",
    "duplicate node names": "two nodes with same node name",
}
"""Features that end without a file, and what is said of it."""
LIBRARY = "an operator of a library"
REWRITTEN = 35
"""Models of which the planted gains make another one, at least."""
KEPT = {"documented", "NonZero"}
"""Models with a symbolic dimension in which there is nothing to rewrite."""
UNSEEN = (2, 5, 9, 23, 64)
"""Sizes of symbolic dimensions, none of which a search takes by itself."""
_rewritten: set[str] = set()


@pytest.mark.parametrize("feature", sorted(MATRIX))
def test_the_result_computes_the_same(feature: str, tmp_path: Path) -> None:
    model = MATRIX[feature]()
    libraries = (custom_ops.library(),) if feature == LIBRARY else ()
    try:
        # The library is for a process of its own: one that is loaded here would serve other models too.
        with planted_gains(in_process=not libraries):
            found = rewritegym.optimize(model, threads=1, time_limit=60, custom_ops=libraries, **OPTIONS)
        written, message = found.save(tmp_path / "result.onnx"), found.message
    except UserError as error:
        written, message = None, str(error)
    if feature in REFUSED:
        assert written is None
        assert REFUSED[feature] in message
        return
    assert written is not None, message
    if not found.result.is_original:
        _rewritten.add(feature)
    session, result = opened(model), rewritegym.session(written, custom_ops=libraries)
    feeds = feeds_of(session, load(model), found.problem.model.shapes)
    types = " ".join(item.type for item in session.get_inputs())
    tolerance = max((allowed for name, allowed in TOLERANCE.items() if name in types), default=1e-4)
    assert_same(outputs_of(session, feeds), outputs_of(result, feeds), "result", tolerance)
    symbols = symbolic_dimensions(model)
    assert not symbols or feature in KEPT or not found.result.is_original
    assert [entry.shape for entry in result.get_inputs()] == [entry.shape for entry in session.get_inputs()]
    for size in UNSEEN if symbols else ():
        shapes = at_sizes(model, {symbol: size + number for number, symbol in enumerate(symbols)})
        feeds = feeds_of(session, load(model, shapes), shapes)
        assert_same(outputs_of(session, feeds), outputs_of(result, feeds), f"result at {shapes}", tolerance)


def symbolic_dimensions(model: onnx.ModelProto) -> list[str]:
    dims = [dim.dim_param for info in model.graph.input for dim in info.type.tensor_type.shape.dim]
    return list(dict.fromkeys(filter(None, dims)))


def at_sizes(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs where the symbolic dimensions have these sizes."""
    shapes = {
        info.name: tuple(sizes.get(dim.dim_param, dim.dim_value) for dim in info.type.tensor_type.shape.dim)
        for info in model.graph.input
    }
    return {name: shape for name, shape in shapes.items() if shape}


def test_most_models_were_rewritten(request: pytest.FixtureRequest) -> None:
    if request.session.testscollected < len(MATRIX):
        pytest.skip("only part of the matrix was run")
    assert len(_rewritten) >= REWRITTEN
