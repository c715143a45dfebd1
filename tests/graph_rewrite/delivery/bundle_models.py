"""A bundle made by hand: a transformer for all shapes, and the same with fixed shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from graph_rewrite.delivery.checked_bundle import BundlePart, CheckedBundle, checked_bundle
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.latency import Deployment
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.onnx_files.normalisation import normalise
from tests.graph_rewrite.symbolic.dynamic_models import VOCABULARY, transformer

SHAPES = ((1, 24), (2, 9))
"""Shapes of `ids` with a model of their own."""


def agreeing(path: Path, deployment: Deployment) -> Equivalence:
    """A comparison that finds nothing wrong."""
    return Equivalence(path.is_file(), 0.0, 1e-4, "planted")


def made_bundle(folder: Path, layers: int = 1, shapes: tuple[tuple[int, int], ...] = SHAPES) -> CheckedBundle:
    """Return a bundle of a transformer that lies in `folder` as t.onnx."""
    path = transformer(folder / "t.onnx", layers=layers)
    parts = [BundlePart(load(path), Deployment(), agreeing)]
    for shape in shapes:
        graph = normalise(load(path, {"ids": shape}))[0]
        parts.append(BundlePart(graph, Deployment(), agreeing, {"ids": shape}))
    return checked_bundle(parts, folder / "work")


def ids(batch: int, length: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"ids": np.random.default_rng(batch * 100 + length).integers(0, VOCABULARY, (batch, length))}


def expected(folder: Path, feeds: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the output of the original."""
    session = onnxruntime.InferenceSession(folder / "t.onnx", providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])
