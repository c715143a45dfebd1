"""Problems for agents: the tower of tests.envs, measured by counting operators."""

from collections.abc import Callable
from pathlib import Path

import pytest

from graph_rewrite.task.problem import Problem, open_problem
from tests.envs.fakes import count_operators, write_tower


@pytest.fixture
def open_tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Problem]:
    """Opens a fresh problem on a tower of the given number of layers."""
    monkeypatch.setenv("REWRITEGYM_WORKSPACE", str(tmp_path / "workspace"))

    def make(layers: int = 3, granularity: str = "class") -> Problem:
        path = tmp_path / f"tower{layers}.onnx"
        write_tower(path, layers)
        return open_problem(f"file:{path}", provider="cpu", granularity=granularity, meter=count_operators)  # type: ignore[arg-type]

    return make
