"""Each model of the matrix goes through `rewritegym.optimize` as a whole; the file that it writes computes the same."""

from __future__ import annotations

from pathlib import Path

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


def test_most_models_were_rewritten(request: pytest.FixtureRequest) -> None:
    if request.session.testscollected < len(MATRIX):
        pytest.skip("only part of the matrix was run")
    assert len(_rewritten) >= REWRITTEN
