"""Requests of meters: inputs in turn, and no stored latency that was measured with one input."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from graph_rewrite import Graph, Rewriter, load
from graph_rewrite.latency import (
    BaselineError,
    FeedSpec,
    Latency,
    MeasurementCache,
    OperatorCostMeter,
    OperatorSpec,
    OrtMeter,
    Plan,
)
from graph_rewrite.latency.measured_inputs import MeasuredInputs
from graph_rewrite.latency.windows.window import changed_windows
from graph_rewrite.latency.windows.window_meter import WindowMeter
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.runtime import WorkerClient
from graph_rewrite.task.meters import random_feeds
from tests.graph_rewrite.sample_models import parsed

MakeMeter = Callable[..., OrtMeter]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
RELU = OperatorSpec("Relu", "", {}, ((FLOAT, (64, 64)),), ((FLOAT, (64, 64)),))
GATHER = OperatorSpec("Gather", "", {"axis": 0}, ((FLOAT, (50, 4)), (INT64, (7,))), ((FLOAT, (7, 4)),), {0: None})
QUICK = Plan(instances=2, min_instances=2, min_pairs=2, max_pairs=3, budget_s=0.05)


@pytest.fixture
def cache(tmp_path: Path) -> MeasurementCache:
    return MeasurementCache(tmp_path / "cache.sqlite3")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests that reach workers."""
    found: list[dict[str, Any]] = []
    request = WorkerClient.request

    def seen(self: WorkerClient, message: dict[str, Any]) -> dict[str, Any]:
        found.append(message)
        return request(self, message)

    monkeypatch.setattr(WorkerClient, "request", seen)
    return found


@pytest.fixture
def lookup(tmp_path: Path) -> tuple[Graph, Graph]:
    """A graph that adds rows of a table to its input, after two negations that cancel, and the graph without them."""
    model = parsed(
        """(int64[4,8] ids, float[4,8,16] x) => (float[4,8,16] y)
        { r = Gather(table, ids) a = Add(r, x) b = Neg(a) c = Neg(b) y = Tanh(c) }"""
    )
    rows = np.random.default_rng(0).standard_normal((5000, 16), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(rows, "table"))
    onnx.save(model, tmp_path / "lookup.onnx")
    graph = normalise(load(tmp_path / "lookup.onnx"))[0]
    found = Rewriter(granularity="site", deployment=False).candidates(graph)
    return graph, next(c for c in found if [node.op for node in c.site.removed] == ["Neg", "Neg"]).apply()


class TestStoredLatencies:
    """Entries as they were stored while each measurement had one input."""

    def test_of_whole_models_do_not_answer(self, make_meter: MakeMeter, model: Any, cache: MeasurementCache) -> None:
        meter = make_meter(cache=cache)
        key = meter._disk_key(meter._plain_baseline(), meter._as_deployed(model("a", 1)), "screen")
        old = {**key, "feeds": FeedSpec().key}
        cache.put(old, Latency(1.0, 99.0, (98.0, 100.0), 5, 99.0).to_json())
        assert meter.measure(model("a", 1)).speedup < 50
        assert meter.measurements == 1
        assert cache.get(old) is not None
        again = make_meter(cache=cache)
        again.measure(model("a", 1))
        assert again.measurements == 0  # the new one answers

    def test_of_windows_do_not_answer(
        self, lookup: tuple[Graph, Graph], tmp_path: Path, lock_path: Path, cache: MeasurementCache
    ) -> None:
        options: dict[str, Any] = {"workspace": tmp_path, "plan": QUICK, "budget_s": 0.0, "lock_path": lock_path}
        with WindowMeter(cache=cache, **options) as meter:
            (pair,) = changed_windows(*lookup)
            key = dict(meter._disk_key(pair, (meter.deployment, meter.deployment)))
            del key["inputs"]
            cache.put(key, {"seconds": 99.0, "half": 0.1, "window_seconds": 100.0, "cost_s": 1.0})
            assert meter.difference(*lookup).seconds < 50.0
            assert meter.measurements == 1

    def test_of_lookups_do_not_answer_and_other_operators_keep_theirs(
        self, tmp_path: Path, lock_path: Path, cache: MeasurementCache
    ) -> None:
        baseline: Any = None
        with OperatorCostMeter(
            baseline, lambda _: (), workspace=tmp_path, plan=QUICK, lock_path=lock_path, cache=cache
        ) as meter:
            for spec in (RELU, GATHER):
                key = {name: value for name, value in meter._disk_key(spec).items() if name != "inputs"}
                cache.put(key, {"ms": 99.0, "relative_error": 0.1, "runs": 3})
            assert meter.cost(RELU).ms == 99.0
            assert meter.cost(GATHER).ms < 50.0


class TestRequests:
    def test_whole_models_take_all_inputs_in_turn(
        self, make_meter: MakeMeter, model: Any, asked: list[dict[str, Any]]
    ) -> None:
        meter = make_meter()
        meter.measure(model("a", 1))
        meter.confirm(model("a", 1))
        meter.compare(model("a", 1), model("b", 1), meter.plans["screen"])
        assert len(asked) >= 3  # one that is disturbed is taken again
        assert all(message["feeds"] == [FeedSpec().to_json()] for message in asked)
        assert meter.feeds == (FeedSpec(),)

    def test_users_inputs_reach_the_worker_in_their_order(
        self, make_meter: MakeMeter, model: Any, asked: list[dict[str, Any]], tmp_path: Path
    ) -> None:
        np.savez(tmp_path / "data.npz", x=np.zeros((3, 16, 16, 16), np.float32))
        recipes = [FeedSpec(npz=str(tmp_path / "data.npz"), item=item) for item in (2, 0)]
        assert make_meter(feeds=recipes).measure(model("a", 1)).ok
        assert [spec["item"] for spec in asked[-1]["feeds"]] == [2, 0]

    def test_windows_change_what_is_looked_up_alone(
        self, lookup: tuple[Graph, Graph], tmp_path: Path, lock_path: Path, asked: list[dict[str, Any]]
    ) -> None:
        with WindowMeter(workspace=tmp_path, plan=QUICK, budget_s=0.0, lock_path=lock_path) as meter:
            meter.difference(*lookup)
        feeds = next(message["feeds"] for message in asked if message["kind"] == "compare")
        assert feeds["input_ranges"] == {name: [0, 5000] for name in feeds["rotated"]}
        assert len(feeds["rotated"]) == 1

    def test_operators_change_what_is_looked_up_alone(
        self, tmp_path: Path, lock_path: Path, asked: list[dict[str, Any]]
    ) -> None:
        baseline: Any = None
        with OperatorCostMeter(baseline, lambda _: (), workspace=tmp_path, plan=QUICK, lock_path=lock_path) as meter:
            for spec, names in ((RELU, []), (GATHER, ["i1"])):
                assert meter.cost(spec).status == "ok"
                assert asked[-1]["feeds"]["rotated"] == names

    def test_token_ids_come_from_the_whole_table(self, lookup: tuple[Graph, Graph]) -> None:
        assert random_feeds(lookup[0]).input_ranges == {"ids": (0, 5000)}


class TestOtherInputs:
    def test_the_first_alone_and_then_what_is_found(self) -> None:
        found = FeedSpec(values={"n": 3})
        inputs = MeasuredInputs(FeedSpec(7), lambda: found)
        key = inputs.key
        assert inputs.fall_back(search=True)
        assert inputs.recipes == (FeedSpec(7, rotated=()),)
        assert not inputs.fall_back(search=False)
        assert inputs.fall_back(search=True)
        assert inputs.recipes == (found,)
        assert inputs.fall_back(search=True)  # of what is found, the first alone
        assert not inputs.fall_back(search=True)
        assert key != inputs.key

    def test_users_inputs_are_not_left_out(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "data.npz", x=np.zeros((3, 2), np.float32))
        inputs = MeasuredInputs([FeedSpec(npz=str(tmp_path / "data.npz"), item=item) for item in (0, 1)])
        assert not inputs.fall_back(search=True)

    def test_a_baseline_that_crashes_on_some_is_measured_with_one(
        self, make_meter: MakeMeter, model: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request = WorkerClient.request

        def planted(self: WorkerClient, message: dict[str, Any]) -> dict[str, Any]:
            if message["feeds"][0].get("rotated") is None:
                return {"status": "crash", "phase": "baseline: run", "message": "divided by zero"}
            return request(self, message)

        monkeypatch.setattr(WorkerClient, "request", planted)
        meter = make_meter()
        assert meter.measure(model("a", 1)).ok
        assert meter.feeds == (FeedSpec(rotated=()),)

    def test_a_baseline_that_fails_on_all_is_an_error(
        self, make_meter: MakeMeter, model: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken: list[Any] = []

        def planted(_: WorkerClient, message: dict[str, Any]) -> dict[str, Any]:
            taken.append(message["feeds"][0].get("rotated"))
            return {"status": "error", "phase": "baseline: run", "message": "no"}

        monkeypatch.setattr(WorkerClient, "request", planted)
        with pytest.raises(BaselineError, match="cannot be measured"):
            make_meter().measure(model("a", 1))
        assert taken == [None, []]
