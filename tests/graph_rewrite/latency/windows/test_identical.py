"""Graphs that ONNX Runtime optimises to the same operators take the same time, whatever was timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows.difference import Difference
from graph_rewrite.latency.windows.identical import run_alike
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.latency.windows.window_meter import CLEAR, WindowMeter
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.runtime import Block, Deployment, Plan, WorkerClient

BODY = "(float[64,64] x) => (y) {{ a = Relu(x) {} }}"
FUSED = model(
    "(float[1,4,8] x, float[1,4,8] r) => (y) { s = Add(x, r) y = LayerNormalization(s, g, b) }", g=np.ones(8),
    b=np.zeros(8),
)  # fmt: skip
TURNED = "b = Transpose<perm=[1,0]>(a) c = Transpose<perm=[1,0]>(b) y = MatMul(c, w)"


def graph(body: str, seed: int = 0) -> Graph:
    return model(BODY.format(body), w=np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32))


def deployed(*paths: Path, level: str = "all") -> list[tuple[Path, Deployment]]:
    return [(path, Deployment(optimization_level=level)) for path in paths]


@pytest.fixture
def worker() -> Iterator[WorkerClient]:
    with WorkerClient() as made:
        yield made


def test_what_optimisers_undo_is_alike(worker: WorkerClient, tmp_path: Path) -> None:
    plain, turned, other = (
        materialize(made, tmp_path) for made in (graph("y = MatMul(a, w)"), graph(TURNED), graph("y = MatMul(a, w)", 1))
    )
    there = set(tmp_path.iterdir())
    assert run_alike(worker, deployed(plain, turned))
    assert run_alike(worker, deployed(plain, other)), "weights do not change times"
    assert not run_alike(worker, deployed(plain, turned, level="none"))
    assert set(tmp_path.iterdir()) == there, "nothing is left behind"


def test_other_operators_and_other_shapes_are_not(worker: WorkerClient, tmp_path: Path) -> None:
    plain, more = (materialize(graph(body), tmp_path) for body in ("y = MatMul(a, w)", "b = MatMul(a, w) y = Relu(b)"))
    assert not run_alike(worker, deployed(plain, more))
    wide = materialize(model("(float[32,64] x) => (y) { a = Relu(x) y = MatMul(a, w) }", w=np.eye(64)), tmp_path)
    assert not run_alike(worker, deployed(plain, wide))


def test_a_model_may_run_otherwise_where_an_optimiser_is_refused(worker: WorkerClient, tmp_path: Path) -> None:
    path = materialize(FUSED, tmp_path)
    for name, alike in (("SkipLayerNormFusion", False), ("MatMulAddFusion", True)):
        refusing = Deployment(disabled_optimizers=frozenset({name}))
        assert run_alike(worker, [(path, Deployment()), (path, refusing)]) is alike


def test_what_cannot_be_opened_is_not(worker: WorkerClient, tmp_path: Path) -> None:
    plain, broken = materialize(graph("y = MatMul(a, w)"), tmp_path), tmp_path / "broken.onnx"
    broken.write_bytes(onnx.ModelProto(ir_version=10).SerializeToString()[:3])
    assert not run_alike(worker, deployed(broken, broken))
    assert not run_alike(worker, deployed(plain, broken))


PLAN = Plan(instances=2, min_instances=2, min_pairs=2, max_pairs=3, budget_s=0.1)


def timed_as(
    monkeypatch: pytest.MonkeyPatch, folder: Path, batches: Sequence[tuple[float, ...]], *, anew: bool = False
) -> Difference:
    """Return a meter's result for two models that run alike: the first takes these times in each batch, the other
    one second."""
    blocks = [Block(seconds, (1.0,) * len(seconds)) for seconds in batches]
    monkeypatch.setattr(WindowMeter, "_batch", lambda *_: list(blocks))
    cut = WindowPair(graph(TURNED), graph("y = MatMul(a, w)"), 12, "turned")
    meter = WindowMeter(workspace=folder, plan=PLAN, budget_s=0.0, exchange=False, lock_path=folder / "lock")
    with meter:
        return meter.time(cut, anew=anew)


NOISE = [(1.02, 1.01), (1.01, 1.03)]


@pytest.mark.parametrize("batches", [NOISE, [(1.0, 1.4), (0.9, 1.3)]], ids=["small", "large, but wide"])
def test_the_meter_finds_no_difference_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, batches: list[tuple[float, ...]]
) -> None:
    found = timed_as(monkeypatch, tmp_path, batches)
    assert (found.seconds, found.ci95) == (0.0, (0.0, 0.0))
    assert found.window_seconds > 0.0
    assert found.runs > 0


def test_noise_is_reported_to_those_who_ask_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As comparisons of a model with itself do."""
    found = timed_as(monkeypatch, tmp_path, NOISE, anew=True)
    assert found.seconds > 0.0
    assert found.ci95[0] < found.ci95[1]


def test_a_clear_difference_is_not_asked_about(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = timed_as(monkeypatch, tmp_path, [(1.41, 1.40), (1.40, 1.42)])
    assert found.seconds == pytest.approx(12 * 0.4, rel=0.1)


def test_each_side_runs_as_its_graph_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Time the same window with an optimiser refused that changes it, and with one that does not."""
    asked = list[tuple[frozenset[str], ...]]()

    def batch(meter: WindowMeter, files: Sequence[tuple[Path, Deployment]], *_: object) -> list[Block]:
        asked.append(tuple(deployment.disabled_optimizers for _, deployment in files))
        return [Block(seconds, (1.0,) * len(seconds)) for seconds in NOISE]

    monkeypatch.setattr(WindowMeter, "_batch", batch)
    with WindowMeter(workspace=tmp_path, plan=PLAN, budget_s=0.0, exchange=False, lock_path=tmp_path / "lock") as meter:
        skip, other = (
            meter.time(WindowPair(FUSED, FUSED.with_disabled_optimizers({name}), 1, "same key"))
            for name in ("SkipLayerNormFusion", "MatMulAddFusion")
        )
    assert asked == [(frozenset(), {"SkipLayerNormFusion"}), (frozenset(), {"MatMulAddFusion"})]
    assert skip.seconds > 0.0
    assert (other.seconds, other.ci95) == (0.0, (0.0, 0.0))


def test_real_runs_of_models_alike(tmp_path: Path) -> None:
    """Whatever the machine does meanwhile: a difference is either nothing, or its whole interval is far from it."""
    cut = WindowPair(graph(TURNED), graph("y = MatMul(a, w)"), 12, "turned")
    with WindowMeter(workspace=tmp_path, plan=PLAN, budget_s=0.0, lock_path=tmp_path / "lock") as meter:
        found = meter.time(cut)
    low, high = found.ci95
    assert low == high == 0.0 or min(abs(low), abs(high)) > CLEAR * found.window_seconds
