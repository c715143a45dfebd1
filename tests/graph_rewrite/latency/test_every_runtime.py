"""Meters in every runtime that runs here: the same measurements, remembered by runtime and version."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from onnx import TensorProto

from graph_rewrite import Rewriter
from graph_rewrite.latency import Deployment, MeasurementCache, OperatorCostMeter, OperatorSpec, OrtMeter, Plan
from graph_rewrite.latency.windows.window_meter import WindowMeter, clock_of
from graph_rewrite.runtime import runtime_of
from tests.envs.fakes import tower_graph
from tests.runtimes import every_provider, needs_openvino

MakeMeter = Callable[..., OrtMeter]
QUICK = Plan(min_pairs=2, max_pairs=4, budget_s=0.05)
MATRIX = (TensorProto.FLOAT, (32, 32))


def versions(provider: str) -> dict[str, str]:
    """Return what tells the runtime apart in a key."""
    return {"onnxruntime": onnxruntime.__version__} if provider == "cpu" else runtime_of(provider).version()


@needs_openvino
def test_each_runtime_remembers_its_own_latencies(make_meter: MakeMeter, model: Any, tmp_path: Path) -> None:
    cache = MeasurementCache(tmp_path / "cache.sqlite3")
    for provider in ("cpu", "openvino"):
        first, again = (make_meter(cache=cache, deployment=Deployment(provider)) for _ in range(2))
        found = first.measure(model("other", 1))
        assert found.ok
        assert again.measure(model("other", 1)) == found
        assert (first.measurements, again.measurements) == (1, 0)


@every_provider
def test_another_version_measures_anew(
    make_meter: MakeMeter, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    cache = MeasurementCache(tmp_path / "cache.sqlite3")
    meter = make_meter(cache=cache, deployment=Deployment(provider))
    key = meter._disk_key(meter._plain_baseline(), meter._as_deployed(model("a", 1)), "screen")
    assert {name: key[name] for name in key if name in ("onnxruntime", "openvino")} == versions(provider)
    meter.measure(model("a", 1))
    newer = {next(iter(versions(provider))): "99.0"}
    monkeypatch.setattr(type(runtime_of(provider)), "version", lambda self: newer)
    updated = make_meter(cache=cache, deployment=Deployment(provider))
    updated.measure(model("a", 1))
    assert updated.measurements == 1


@every_provider
def test_operators_are_timed_alone(tmp_path: Path, lock_path: Path, provider: str) -> None:
    product = OperatorSpec("MatMul", "", {}, (MATRIX, MATRIX), (MATRIX,), {1: None})
    unknown = OperatorSpec("NoSuchOperator", "", {}, (MATRIX,), (MATRIX,))
    cache, options = MeasurementCache(tmp_path / "cache.sqlite3"), {"workspace": tmp_path, "lock_path": lock_path}

    def made() -> OperatorCostMeter:
        baseline: Any = None
        return OperatorCostMeter(baseline, lambda _: (), Deployment(provider), cache=cache, plan=QUICK, **options)

    with made() as meter, made() as again:
        cost = meter.cost(product)
        assert cost.status == "ok", cost.message
        assert cost.ms > 0.0
        assert again.is_known(product)
        failed = meter.cost(unknown)
        assert failed.status == "error"
        assert "NoSuchOperator" in failed.message
        assert meter.cost(product) == cost
    assert versions(provider).items() <= meter._disk_key(product).items()


@every_provider
def test_windows_are_timed_alone(tmp_path: Path, lock_path: Path, provider: str) -> None:
    tower, deployment = tower_graph(tmp_path, 3), Deployment(provider)
    found = Rewriter(granularity="class", deployment=False).candidates(tower)
    after = next(candidate for candidate in found if candidate.rule == "ComposeTransposes").apply()
    work = tmp_path / "work"
    work.mkdir()
    with WindowMeter(deployment, workspace=work, plan=QUICK, budget_s=0.0, lock_path=lock_path) as meter:
        difference = meter.difference(tower, after)
        assert (difference.how, difference.sites) == ("window", 3)
        assert difference.ci95[0] <= difference.seconds <= difference.ci95[1]
        assert meter.measurements >= 1
    assert clock_of(deployment) == "cpu"
    assert not list(work.glob("*.onnx"))
