"""Fixtures of tests of agents on e-graphs."""

from typing import Any

import pytest


@pytest.fixture(scope="module")
def tower_graph(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from graph_rewrite.task.models import open_model
    from tests.envs.fakes import write_tower

    return open_model(f"file:{write_tower(tmp_path_factory.mktemp('t') / 'tower.onnx')}").graph
