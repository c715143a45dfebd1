"""What ONNX Runtime makes the same of takes the same time, whatever was timed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from graph_rewrite.ir import Graph
from graph_rewrite.latency.alike import run_alike
from graph_rewrite.latency.client import WorkerClient
from graph_rewrite.latency.cut import Cut
from graph_rewrite.latency.deployment import Deployment
from graph_rewrite.latency.plan import Plan
from graph_rewrite.latency.region_meter import RegionalMeter
from graph_rewrite.onnx_save import materialize
from graph_rewrite.soundness.build import model

BODY = "(float[64,64] x) => (y) {{ a = Relu(x) {} }}"
TURNED = "b = Transpose<perm=[1,0]>(a) c = Transpose<perm=[1,0]>(b) y = MatMul(c, w)"


def graph(body: str, seed: int = 0) -> Graph:
    return model(BODY.format(body), w=np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32))


@pytest.fixture
def worker() -> Iterator[WorkerClient]:
    with WorkerClient() as made:
        yield made


def test_what_optimisers_undo_is_alike(worker: WorkerClient, tmp_path: Path) -> None:
    plain, turned, other = (
        materialize(made, tmp_path) for made in (graph("y = MatMul(a, w)"), graph(TURNED), graph("y = MatMul(a, w)", 1))
    )
    there = set(tmp_path.iterdir())
    assert run_alike(worker, (plain, turned), Deployment())
    assert run_alike(worker, (plain, other), Deployment()), "weights do not change times"
    untouched = Deployment(optimization_level="none")
    assert not run_alike(worker, (plain, turned), untouched)
    assert set(tmp_path.iterdir()) == there, "nothing is left behind"


def test_other_operators_and_other_shapes_are_not(worker: WorkerClient, tmp_path: Path) -> None:
    plain, more = (materialize(graph(body), tmp_path) for body in ("y = MatMul(a, w)", "b = MatMul(a, w) y = Relu(b)"))
    assert not run_alike(worker, (plain, more), Deployment())
    wide = materialize(model("(float[32,64] x) => (y) { a = Relu(x) y = MatMul(a, w) }", w=np.eye(64)), tmp_path)
    assert not run_alike(worker, (plain, wide), Deployment())


def test_what_cannot_be_opened_is_not(worker: WorkerClient, tmp_path: Path) -> None:
    plain, broken = materialize(graph("y = MatMul(a, w)"), tmp_path), tmp_path / "broken.onnx"
    broken.write_bytes(onnx.ModelProto(ir_version=10).SerializeToString()[:3])
    assert not run_alike(worker, (broken, broken), Deployment())
    assert not run_alike(worker, (plain, broken), Deployment())


def test_the_meter_finds_no_difference_where_there_is_none(tmp_path: Path) -> None:
    """Noise is not reported, but for those who ask for it: comparisons of a model with itself."""
    plan = Plan(instances=2, min_instances=2, min_pairs=2, max_pairs=3, budget_s=0.1)
    cut = Cut(graph(TURNED), graph("y = MatMul(a, w)"), 12, "turned")
    with RegionalMeter(workspace=tmp_path, plan=plan, budget_s=0.0, lock_path=tmp_path / "lock") as meter:
        timed = meter.time(cut, anew=True)
        assert timed.ci95[0] < timed.ci95[1]
    with RegionalMeter(workspace=tmp_path, plan=plan, budget_s=0.0, lock_path=tmp_path / "lock") as meter:
        found = meter.time(cut)
    assert (found.seconds, found.ci95) == (0.0, (0.0, 0.0))
    assert found.region_seconds > 0.0
    assert found.runs > 0
