"""TASO's cost model: operators timed alone and summed."""

import math
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from graph_rewrite.latency import (
    BaselineError,
    LatencyMeter,
    MeasurementCache,
    OperatorCost,
    OperatorCostMeter,
    OperatorSpec,
    Plan,
)
from graph_rewrite.latency.models import operator_model

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
QUICK = Plan(min_pairs=2, max_pairs=5, warmup=1, target_ci_width=0.2, budget_s=0.05)


def matmul(size: int) -> OperatorSpec:
    kind = (FLOAT, (size, size))
    return OperatorSpec("MatMul", "", {}, (kind, kind), (kind,), {1: None})


RELU = OperatorSpec("Relu", "", {}, ((FLOAT, (64, 64)),), ((FLOAT, (64, 64)),))
RESHAPE = OperatorSpec(
    "Reshape", "", {}, ((FLOAT, (4, 6)), (INT64, (2,))), ((FLOAT, (6, 4)),), {1: np.array([6, 4], np.int64)}
)
UNKNOWN = replace(RELU, op="NoSuchOperator")


@dataclass(frozen=True)
class Operators:
    """A graph that is only a list of operators."""

    hash: str
    operators: tuple[OperatorSpec, ...]
    disabled_optimizers: frozenset[str] = frozenset()
    session_settings: tuple[tuple[str, bool | int | str], ...] = ()


BASELINE = Operators("baseline", (matmul(128), matmul(128), RELU))


@pytest.fixture
def make_meter(tmp_path: Path, lock_path: Path) -> Iterator[Callable[..., OperatorCostMeter]]:
    made: list[OperatorCostMeter] = []

    def make(baseline: Operators = BASELINE, **options: Any) -> OperatorCostMeter:
        options = {"workspace": tmp_path, "plan": QUICK, "lock_path": lock_path, **options}
        made.append(OperatorCostMeter(baseline, lambda graph: graph.operators, **options))  # type: ignore[attr-defined]
        return made[-1]

    yield make
    for meter in made:
        meter.close()


def test_sums_of_operators(make_meter: Callable[..., OperatorCostMeter], tmp_path: Path) -> None:
    meter: LatencyMeter = make_meter()
    itself = meter.measure(Operators("itself", BASELINE.operators))
    assert (itself.speedup, itself.ci95) == (1.0, (1.0, 1.0))
    assert meter.measurements == 3  # each distinct operator once, and the cost of an empty run
    half = meter.measure(Operators("half", (matmul(128), RELU)))
    assert meter.measurements == 3
    assert 1 < half.speedup <= 2.2
    assert half.ci95[0] <= half.speedup <= half.ci95[1]
    assert half.ms < itself.ms
    assert not list(tmp_path.glob("*.onnx"))


def test_constant_operators_cost_nothing(make_meter: Callable[..., OperatorCostMeter]) -> None:
    """They are computed once, when the model is opened."""
    meter = make_meter()
    folded = replace(RELU, constant_inputs={0: None})
    assert meter.cost(folded).ms == 0.0
    more = meter.measure(Operators("more", (*BASELINE.operators, folded)))
    assert more.speedup == 1.0


def test_costs_are_cached_on_disk(
    make_meter: Callable[..., OperatorCostMeter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_meter(cache=MeasurementCache(tmp_path / "c.sqlite3")).measure(Operators("a", (RELU,)))
    monkeypatch.setattr(subprocess, "Popen", None)
    meter = make_meter(cache=MeasurementCache(tmp_path / "c.sqlite3"))
    assert meter.measure(Operators("a", (RELU,))) == first
    assert meter.measurements == 0


def test_the_clock_of_the_thread_has_costs_of_its_own(
    make_meter: Callable[..., OperatorCostMeter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    whole = OperatorCostMeter._request

    def noting(meter: OperatorCostMeter, path: Path, spec: OperatorSpec) -> dict[str, object]:
        request = whole(meter, path, spec)
        asked.append(str(request["clock"]))
        return request

    monkeypatch.setattr(OperatorCostMeter, "_request", noting)
    cache = MeasurementCache(tmp_path / "cache.sqlite3")
    spec = RELU
    for clock in ("wall", "cpu", "cpu"):
        cost = make_meter(cache=cache, clock=clock).cost(spec)
        assert cost.status == "ok"
        assert cost.ms > 0.0
    # What a run costs by itself, and the operator; the third meter finds both costs on disk, or only the operator's.
    assert asked == ["wall", "wall", "cpu", "cpu"]


def test_an_operator_that_fails_is_a_result(make_meter: Callable[..., OperatorCostMeter]) -> None:
    meter = make_meter()
    failed = meter.measure(Operators("bad", (RELU, UNKNOWN)))
    assert failed.status == "error"
    assert "NoSuchOperator" in failed.message
    assert meter.measure(Operators("good", (RELU,))).ok
    with pytest.raises(BaselineError, match="NoSuchOperator"):
        make_meter(Operators("bad", (UNKNOWN,))).measure(BASELINE)


def test_a_crash_is_a_result(make_meter: Callable[..., OperatorCostMeter], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITEGYM_WORKER_FAULT", f"segfault:{matmul(8).key[:32]}")
    meter = make_meter()
    crashed = meter.measure(Operators("bad", (matmul(8),)))
    assert (crashed.status, crashed.message.split(":")[0]) == ("crash", "MatMul")
    assert meter.measure(Operators("good", (RELU,))).ok


@pytest.mark.parametrize("op", ["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"])
def test_a_view_is_not_timed_and_costs_no_more_than_its_dispatch(
    make_meter: Callable[..., OperatorCostMeter], op: str
) -> None:
    """Alone it takes the time of a copy, as a model's outputs have memory of their own."""
    meter, view = make_meter(), replace(RESHAPE, op=op)
    assert meter.is_known(view)
    assert 0.0 < meter.cost(view).ms < 1e-3
    assert meter.measurements == 0
    other = replace(view, domain="com.example")
    assert not other.is_view
    assert not meter.is_known(other)
    with_views = meter.measure(Operators("views", (*BASELINE.operators, view)))
    assert with_views.speedup == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    "spec",
    [
        matmul(8),
        OperatorSpec("Tile", "", {}, ((FLOAT, (2, 3)), (INT64, (2,))), ((FLOAT, (4, 3)),),
                     {1: np.array([2, 1], np.int64)}),
        OperatorSpec("Gather", "", {"axis": 0}, ((FLOAT, (50, 4)), (INT64, (7,))), ((FLOAT, (7, 4)),), {0: None}),
        OperatorSpec("Conv", "", {"pads": (1, 1, 1, 1)}, ((FLOAT, (1, 3, 8, 8)), (FLOAT, (4, 3, 3, 3)), None),
                     ((FLOAT, (1, 4, 8, 8)),), {1: None}),
        OperatorSpec("Split", "", {"axis": 1, "num_outputs": 2}, ((FLOAT, (2, 8)),), ((FLOAT, (2, 4)),) * 2),
        OperatorSpec("FusedMatMul", "com.microsoft", {"alpha": 0.5}, ((FLOAT, (4, 4)),) * 2, ((FLOAT, (4, 4)),),
                     opset=1),
        OperatorSpec("ConstantOfShape", "", {"value": np.ones(1, np.float32)}, ((INT64, (2,)),), ((FLOAT, (1, 1)),)),
        OperatorSpec("Clip", "", {}, ((FLOAT, (4,)), None, (FLOAT, ())), ((FLOAT, (4,)),),
                     {2: np.array(6, np.float32)}),
    ],
    ids=lambda spec: spec.op,
)  # fmt: skip
def test_operators_of_every_kind_run(make_meter: Callable[..., OperatorCostMeter], spec: OperatorSpec) -> None:
    cost = make_meter().cost(spec)
    assert cost.status == "ok", cost.message
    assert cost.ms > 0
    assert cost.runs >= 2


def test_key_follows_what_matters() -> None:
    assert matmul(8).key == matmul(8).key
    others = [
        matmul(16),
        replace(matmul(8), attrs={"a": 1}),
        replace(matmul(8), opset=13),
        replace(matmul(8), constant_inputs={}),
        replace(matmul(8), domain="com.microsoft"),
        replace(RESHAPE, constant_inputs={1: np.array([4, 6], np.int64)}),
        RESHAPE,
        replace(RELU, attrs={"t": np.zeros(2)}),
        replace(RELU, attrs={"t": np.ones(2)}),
        replace(RELU, attrs={"t": helper.make_attribute("t", 1)}),
        RELU,
    ]
    assert len({spec.key for spec in others} | {matmul(8).key}) == len(others) + 1


def test_model_of_one_operator() -> None:
    model = operator_model(RESHAPE)
    assert [node.op_type for node in model.graph.node] == ["Reshape"]
    assert [item.name for item in model.graph.input] == ["i0"]
    with pytest.raises(ValueError, match="STRING"):
        operator_model(
            OperatorSpec("Identity", "", {}, ((TensorProto.STRING, (1,)),), ((TensorProto.STRING, (1,)),), {0: None})
        )


def test_a_run_of_nothing_that_fails_makes_no_operator_free(
    make_meter: Callable[..., OperatorCostMeter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, gross = OperatorCostMeter._time, OperatorCost(2.0, 0.1, 5)
    replies = {"Identity": [OperatorCost(math.inf, status="timeout", message="it hangs"), OperatorCost(1.0, 0.1, 5)]}

    def planted(meter: OperatorCostMeter, spec: OperatorSpec) -> OperatorCost:
        return replies["Identity"].pop(0) if spec.op == "Identity" else gross

    monkeypatch.setattr(OperatorCostMeter, "_time", planted)
    cache = MeasurementCache(tmp_path / "c.sqlite3")
    assert make_meter(cache=cache).cost(RELU).status == "timeout"
    found = make_meter(cache=cache).cost(RELU)  # nothing of it was kept
    assert found.ms == pytest.approx(1.0)
    # Both timings are as imprecise as each other, in milliseconds of what is left.
    assert found.relative_error == pytest.approx(math.hypot(0.2, 0.1))
    monkeypatch.setattr(OperatorCostMeter, "_time", time)
    assert make_meter(cache=cache).cost(RELU) == found
