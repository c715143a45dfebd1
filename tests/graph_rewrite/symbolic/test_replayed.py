"""Recorded rewrites of a model with symbolic dimensions, replayed on other weights and on a deeper model, and carried
over to all shapes there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from agents.conclusion.recordings import actions_of
from graph_rewrite.replay import Recording, record, replay
from graph_rewrite.symbolic.generalise import SymbolicResult, generalise
from tests.graph_rewrite.symbolic.dynamic_models import VOCABULARY, transformer
from tests.graph_rewrite.symbolic.walks import open_dynamic, take

SHAPE = "ids:1,24"


def recorded(folder: Path) -> Recording:
    """A rewrite of both layers."""
    problem, _ = open_dynamic(transformer(folder / "recorded.onnx"), SHAPE)
    graph, step = take(problem, problem.model.graph, "FuseDividedMatMul")
    return record(problem.model.graph, problem.rewriter, [step], end=graph)


def carried_over(path: Path, recording: Recording) -> SymbolicResult:
    problem, bindings = open_dynamic(path, SHAPE)
    found = replay(recording, problem.model.graph, problem.rewriter)
    assert found.complete
    return generalise(problem, actions_of(found.applied), bindings)


def assert_same_outputs(result: SymbolicResult, original: Path) -> None:
    assert result.ok, result.message
    assert result.checked is not None
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (3, 17))
    one, other = (
        onnxruntime.InferenceSession(path).run(None, {"ids": ids})[0] for path in (original, result.checked.path)
    )
    assert np.allclose(one, other, atol=1e-4 * np.abs(one).max())


def test_on_other_weights(tmp_path: Path) -> None:
    path = transformer(tmp_path / "retrained.onnx", seed=1)
    result = carried_over(path, recorded(tmp_path))
    assert result.sites == (2,)
    assert_same_outputs(result, path)


def test_on_a_deeper_model(tmp_path: Path) -> None:
    """The recorded sites are two of the three of a class there, which no single candidate rewrites."""
    path = transformer(tmp_path / "deeper.onnx", layers=3)
    result = carried_over(path, recorded(tmp_path))
    assert result.sites == (1, 1)
    assert_same_outputs(result, path)
