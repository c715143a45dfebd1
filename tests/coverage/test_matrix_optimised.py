"""Each model of the matrix goes through `rewritegym.optimize` as a whole: the file that is written computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import rewritegym
from graph_rewrite import load
from graph_rewrite.errors import MachineError, UserError
from tests.coverage.matrix import MATRIX
from tests.coverage.planted_meter import planted_gains
from tests.coverage.test_matrix import TOLERANCE, assert_same, feeds_of, opened

OPTIMIZE_REFUSES = {"x": ""}
@pytest.mark.parametrize("feature", sorted(MATRIX))
def test_the_result_computes_the_same(feature: str, tmp_path: Path) -> None:
    model = MATRIX[feature]()
    with planted_gains():
        found = rewritegym.optimize(model, threads=1, time_limit=5, agent="greedy", memory=False, size_price=0.0, max_size_growth=100)
        written = found.save(tmp_path / "result.onnx")
    assert written is not None, found.message
    print("RESULT", feature, found.result.is_original, found.message, len(found.rewrites))
    session = opened(model)
    feeds = feeds_of(session, load(model))
    expected = session.run(None, feeds)
    lowest = any("float16" in item.type for item in session.get_inputs())
    assert_same(expected, rewritegym.session(written).run(None, feeds), "result", TOLERANCE["float16"] if lowest else 1e-4)
