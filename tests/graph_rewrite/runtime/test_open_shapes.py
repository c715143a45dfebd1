"""Timing a model with symbolic dimensions against one of fixed shapes: both run with the same inputs, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_rewrite.latency import Deployment
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.runtime import FeedSpec, Runner
from tests.graph_rewrite.symbolic.dynamic_models import transformer


@pytest.fixture
def feeds(tmp_path: Path) -> FeedSpec:
    np.savez(tmp_path / "feeds.npz", ids=np.arange(24).reshape(1, 24))
    return FeedSpec(npz=str(tmp_path / "feeds.npz"))


def test_both_run_with_equal_inputs(tmp_path: Path, feeds: FeedSpec) -> None:
    path = transformer(tmp_path / "t.onnx", layers=1)
    fixed = materialize(load(path, {"ids": (1, 24)}), tmp_path)
    for one, other in ((path, fixed), (fixed, path)):
        baseline = Runner(str(one), Deployment(), feeds)
        candidate = Runner(str(other), Deployment(), lambda *_, made=baseline.rotation: made)
        assert np.array_equal(baseline.feeds["ids"], candidate.feeds["ids"])


def test_other_shapes_are_refused(tmp_path: Path, feeds: FeedSpec) -> None:
    path = transformer(tmp_path / "t.onnx", layers=1)
    other = materialize(load(path, {"ids": (1, 8)}), tmp_path)
    opened = Runner(str(path), Deployment(), feeds)
    with pytest.raises(ValueError, match="inputs that the baseline has not: ids"):
        Runner(str(other), Deployment(), lambda *_: opened.rotation)
