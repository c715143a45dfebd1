"""Tiny models, and environments on them that need no runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envs import GraphRewriteEnv
from tests.envs.fakes import count_operators, write_relu, write_tower

MakeEnv = Callable[..., GraphRewriteEnv]


@pytest.fixture(scope="session")
def tower(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URI of a tower of three equal blocks."""
    return f"file:{write_tower(tmp_path_factory.mktemp('models') / 'tower.onnx')}"


@pytest.fixture(scope="session")
def relu(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URI of a model with nearly nothing to do."""
    return f"file:{write_relu(tmp_path_factory.mktemp('models') / 'relu.onnx')}"


@pytest.fixture
def make_env(tower: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeEnv:
    """Makes environments on the tower, with small limits and the operator-count meter."""
    monkeypatch.setenv("REWRITEGYM_WORKSPACE", str(tmp_path / "workspace"))

    def make(**options: Any) -> GraphRewriteEnv:
        defaults: dict[str, Any] = {
            "model": tower, "meter": count_operators, "provider": "cpu", "horizon": 8, "max_candidates": 256,
            "max_nodes": 1024, "max_edges": 2048,
        }  # fmt: skip
        return GraphRewriteEnv(**{**defaults, **options})

    return make


@pytest.fixture(scope="session")
def tower_env(tower: str) -> GraphRewriteEnv:
    """One environment on the tower for tests that run many examples; it is not to be stepped."""
    return GraphRewriteEnv(tower, meter=count_operators, provider="cpu")
