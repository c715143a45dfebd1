"""Each model of the matrix goes through `rewritegym.optimize` as a whole; the file that it writes computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import rewritegym
from graph_rewrite import load
from tests.coverage.matrix import MATRIX
from tests.coverage.planted_meter import OPTIONS, planted_gains
from tests.coverage.test_matrix import TOLERANCE, assert_same, feeds_of, opened

NOT_WRITTEN = {
    "an operator of a custom domain": "is not a registered function/op",
    "a sequence as input": "feeds can be made for tensors of",
    "duplicate node names": "two nodes with same node name",
}
"""Features that end without a file, and what the result says."""
REWRITTEN = 35
"""Models of which the planted gains make another one, at least."""
_rewritten: set[str] = set()


@pytest.mark.parametrize("feature", sorted(MATRIX))
def test_the_result_computes_the_same(feature: str, tmp_path: Path) -> None:
    model = MATRIX[feature]()
    with planted_gains(in_process=True):
        found = rewritegym.optimize(model, threads=1, time_limit=60, **OPTIONS)
    written = found.save(tmp_path / "result.onnx")
    if feature in NOT_WRITTEN:
        assert written is None
        assert NOT_WRITTEN[feature] in found.message
        return
    assert written is not None, found.message
    if not found.result.is_original:
        _rewritten.add(feature)
    session = opened(model)
    feeds = feeds_of(session, load(model), found.problem.model.shapes)
    expected = session.run(None, feeds)
    lowest = any("float16" in item.type for item in session.get_inputs())
    assert_same(
        expected, rewritegym.session(written).run(None, feeds), "result", TOLERANCE["float16"] if lowest else 1e-4
    )


def test_most_models_were_rewritten(request: pytest.FixtureRequest) -> None:
    if request.session.testscollected < len(MATRIX):
        pytest.skip("only part of the matrix was run")
    assert len(_rewritten) >= REWRITTEN
