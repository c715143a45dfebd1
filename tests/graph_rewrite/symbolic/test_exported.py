"""Models that PyTorch exports with symbolic dimensions keep them, and nearly all that was found. What a result gains is
its number of operators, without a clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from agents.core.base import Budget
from agents.greedy import GreedyAgent
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.symbolic.generalise import generalise
from graph_rewrite.zoo.building import build_network
from graph_rewrite.zoo.registry import architecture
from tests.envs.fakes import cost
from tests.graph_rewrite.symbolic.walks import open_dynamic
from tests.small_models import SMALL

BATCH = {0: torch.export.Dim("batch", min=1, max=64)}
DYNAMIC = {"bert": {**BATCH, 1: torch.export.Dim("sequence", min=2, max=32)}, "resnet18": BATCH}
SHAPES = {"bert": "input_ids:1,16", "resnet18": "pixel_values:1,3,64,64"}


def exported(name: str, path: Path) -> Path:
    config = replace(architecture(name).defaults, **SMALL[name], batch=2)
    inputs = {key: torch.from_numpy(array) for key, array in config.example_inputs(0).items()}
    torch.onnx.export(
        build_network(name, config),
        kwargs=inputs,
        input_names=list(inputs),
        output_names=["y"],
        opset_version=20,
        dynamo=True,
        verbose=False,
        dynamic_shapes=dict.fromkeys(inputs, DYNAMIC[name]),
    ).save(path)  # type: ignore[union-attr]
    return path


def run(path: Path, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return np.asarray(onnxruntime.InferenceSession(path, options).run(None, feeds)[0])


@pytest.mark.parametrize("name", ["bert", "resnet18"])
@pytest.mark.filterwarnings("ignore")
def test_an_export_with_symbolic_dimensions_keeps_them_and_its_rewrites(name: str, tmp_path: Path) -> None:
    path = exported(name, tmp_path / f"{name}.onnx")
    problem, bindings = open_dynamic(path, SHAPES[name])
    found = GreedyAgent().optimize(problem, Budget(measurements=60, seconds=20.0))
    assert found.actions
    made = generalise(problem, found.actions, bindings)
    assert made.checked is not None, made.message
    assert made.checked.outcome.ok
    missing = sum(one.sites for one in made.left_out)
    assert sum(made.sites) >= 0.8 * (sum(made.sites) + missing), made.left_out
    assert sum(map(bool, made.sites)) >= 0.8 * len(found.actions), made.left_out
    assert len(made.verified_at) >= 5
    assert made.graph is not None
    fixed_gain = cost(problem.model.original) / cost(found.graph) - 1.0
    assert cost(load(path)) / cost(made.graph) - 1.0 >= 0.8 * fixed_gain > 0.0
    seen = {tuple(values.values()) for values in (*made.verified_at, *bindings.values)}
    rng = np.random.default_rng(3)
    for batch, length in ((13, 2), (11, 31), (23, 19), (17, 23), (37, 29)):
        assert seen.isdisjoint({(batch, length), (batch,)})
        if name == "bert":
            feeds = {"input_ids": rng.integers(0, 100, (batch, length))}
        else:
            feeds = {"pixel_values": rng.standard_normal((batch, 3, 64, 64)).astype(np.float32)}
        expected = run(path, feeds)
        assert np.allclose(run(made.checked.path, feeds), expected, atol=1e-4 * np.abs(expected).max())
