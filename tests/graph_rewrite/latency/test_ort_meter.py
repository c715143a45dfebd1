"""End-to-end measurement with real sessions: values, memory, forks and feeds."""

import math
import multiprocessing
import os
import pickle
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_rewrite.latency import BaselineError, Deployment, FeedSpec, Latency, LatencyMeter, MeasurementCache, OrtMeter
from graph_rewrite.latency.estimates import interval_width, latency_of
from graph_rewrite.runtime import SCREEN, Plan
from graph_rewrite.runtime.client import WorkerClient
from graph_rewrite.runtime.ort_worker.wire import Message
from tests.graph_rewrite.latency.conftest import QUICK

MakeMeter = Callable[..., OrtMeter]


def test_faster_and_slower_models(make_meter: MakeMeter, model: Any, tmp_path: Path) -> None:
    meter: LatencyMeter = make_meter(model("baseline", 8))
    small, large = meter.measure(model("small", 1)), meter.measure(model("large", 40))
    for latency in (small, large):
        assert latency.ok
        assert latency.ci95[0] <= latency.speedup <= latency.ci95[1]
        assert 0 < latency.ms < math.inf
        assert latency.runs >= 2
    assert large.speedup < 1 < small.speedup
    assert meter.measurements == 2
    assert sorted(path.name for path in tmp_path.glob("*.onnx")) == ["baseline.onnx"]


def test_full_effort_takes_several_instances(make_meter: MakeMeter, model: Any) -> None:
    latency = make_meter().measure(model("other", 2), "full")
    assert latency.ok
    assert latency.runs >= 4


def test_the_same_model_again_is_about_as_fast(make_meter: MakeMeter, model: Any) -> None:
    """A/A with sessions of their own; the bounds are wide because other processes share the machine."""
    latency = make_meter().measure(model("twin", 2), "full")
    assert latency.ci95[0] < 1.3
    assert latency.ci95[1] > 0.7


def test_the_baseline_is_exactly_as_fast_as_itself(make_meter: MakeMeter, model: Any) -> None:
    latency = make_meter().measure(model("baseline", 2))
    assert (latency.speedup, latency.ci95) == (1.0, (1.0, 1.0))
    assert latency.ms > 0


def test_there_is_patience_for_other_graphs_alone(
    make_meter: MakeMeter, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, plans = WorkerClient.request, []

    def noted(self: WorkerClient, message: dict[str, Any]) -> dict[str, Any]:
        plans.append(Plan.from_json(message["plan"]))
        return request(self, message)

    monkeypatch.setattr(WorkerClient, "request", noted)
    patient = replace(QUICK, patience_s=1.5)
    meter = make_meter(screen=patient)
    for name in ("baseline", "other"):
        assert meter.measure(model(name, 2)).ok
    assert plans[0] == QUICK
    assert plans[-1] == patient


@pytest.mark.parametrize(("candidate_ms", "times"), [((9, 14, 20, 11), 3), ((30, 45, 60, 35), 1)])
def test_a_torn_interval_is_measured_again_of_what_may_be_faster(
    make_meter: MakeMeter, model: Any, monkeypatch: pytest.MonkeyPatch, candidate_ms: tuple[int, ...], times: int
) -> None:
    meter, asked = make_meter(), list[Message]()
    timings = [[[0.012] * len(candidate_ms), [ms / 1e3 for ms in candidate_ms], 1]]

    def answer(message: Message) -> Message:
        asked.append(message)
        return {"status": "ok", "blocks": timings}

    monkeypatch.setattr(meter, "_ask", answer)
    latency = meter.measure(model("other", 2))
    assert interval_width(latency_of(timings, identical=False)) > 0.25
    assert len(asked) == times
    assert latency.runs == times * len(candidate_ms)  # all of them count


def test_baseline_with_a_refused_optimizer_is_a_candidate(make_meter: MakeMeter, model: Any, tmp_path: Path) -> None:
    meter = make_meter()
    latency = meter.measure(model("baseline", 2, frozenset({"NchwcTransformer"})))
    assert latency.ok
    assert latency.speedup != 1.0
    assert meter.measure(model("baseline", 2)).speedup == 1.0
    assert (tmp_path / "baseline.onnx").exists()


def test_refused_optimizers_reach_the_session(make_meter: MakeMeter, model: Any) -> None:
    meter = make_meter()
    assert "NchwcTransformer" in meter.active_optimizers(model("a", 2))
    assert "NchwcTransformer" not in meter.active_optimizers(model("a", 2, frozenset({"NchwcTransformer"})))


def test_values_are_memoised(make_meter: MakeMeter, model: Any) -> None:
    meter = make_meter()
    first = meter.measure(model("a", 1))
    assert meter.measure(model("a", 1)) == first
    full = meter.measure(model("a", 1), "full")
    assert meter.measure(model("a", 1), "full") == full
    # A value once given for an effort stays, so rewards of one run are deterministic.
    assert meter.measure(model("a", 1)) == first
    assert meter.measurements == 2
    assert meter.measure(model("b", 1), "full") == meter.measure(model("b", 1))
    assert meter.measurements == 3
    meter.confirm(model("b", 1))
    assert meter.measurements == 4


def test_cached_results_start_no_worker(
    make_meter: MakeMeter, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = MeasurementCache(tmp_path / "cache.sqlite3")
    first = make_meter(cache=cache)
    screened, thorough = first.measure(model("a", 1)), first.measure(model("b", 1), "full")

    def no_process(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", no_process)
    again = make_meter(cache=MeasurementCache(tmp_path / "cache.sqlite3"))
    assert again.measure(model("a", 1)) == screened
    assert again.measure(model("b", 1), "full") == thorough
    assert make_meter(cache=cache).measure(model("b", 1)) == thorough  # full serves screen
    assert again.measurements == 0
    with pytest.raises(AssertionError, match="process"):
        again.measure(model("a", 1), "full")  # but not the reverse


@pytest.mark.parametrize(
    "change",
    [
        {"deployment": Deployment(threads=2)},
        {"feeds": FeedSpec(seed=1)},
    ],
)
def test_cached_results_of_other_circumstances_do_not_count(
    make_meter: MakeMeter, model: Any, tmp_path: Path, change: dict[str, Any]
) -> None:
    cache = MeasurementCache(tmp_path / "cache.sqlite3")
    make_meter(cache=cache).measure(model("a", 1))
    other = make_meter(cache=cache, **change)
    other.measure(model("a", 1))
    assert other.measurements == 1


def test_compare_two_candidates(make_meter: MakeMeter, model: Any, tmp_path: Path) -> None:
    meter = make_meter()
    latency = meter.compare(model("slow", 30), model("fast", 1))
    assert latency.speedup > 1
    assert not list(tmp_path.glob("*.onnx"))
    assert meter.compare(model("slow", 30), model("fast", 1)) == latency
    assert meter.measurements == 1


def test_what_another_plan_measured_answers_for_no_full_one(make_meter: MakeMeter, model: Any, tmp_path: Path) -> None:
    short = replace(SCREEN, min_pairs=2, max_pairs=2)
    meter = make_meter(cache=MeasurementCache(tmp_path / "cache.sqlite3"))
    assert meter.compare(model("slow", 30), model("fast", 1), short).ok
    assert meter.confirm(model("a", 1), short).ok
    again = make_meter(cache=MeasurementCache(tmp_path / "cache.sqlite3"))
    again.measure(model("a", 1), "full")
    again.compare(model("slow", 30), model("fast", 1))
    assert again.measurements == 2
    full = make_meter(cache=MeasurementCache(tmp_path / "cache.sqlite3"))
    full.measure(model("a", 1), "full")
    full.compare(model("slow", 30), model("fast", 1))
    assert full.measurements == 0
    meter.compare(model("slow", 30), model("fast", 1))
    assert meter.measurements == 2  # by then the disk knew


def test_a_shorter_measurement_anew_is_not_taken_for_a_full_one(make_meter: MakeMeter, model: Any) -> None:
    meter = make_meter()
    assert meter.confirm(model("a", 1), replace(SCREEN, budget_s=0.0)).ok
    meter.measure(model("a", 1), "full")
    assert meter.measurements == 2


def test_feeds_of_the_caller(make_meter: MakeMeter, model: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", x=np.zeros((1, 16, 16, 16), np.float32))
    feeds = FeedSpec(npz=str(tmp_path / "feeds.npz"))
    assert make_meter(feeds=feeds).measure(model("a", 1)).ok
    np.savez(tmp_path / "wrong.npz", z=np.zeros(3))
    with pytest.raises(BaselineError, match="no array for input 'x'"):
        make_meter(feeds=FeedSpec(npz=str(tmp_path / "wrong.npz"))).measure(model("a", 1))


def test_the_clock_is_part_of_what_is_measured(make_meter: MakeMeter, model: Any, tmp_path: Path) -> None:
    cache = MeasurementCache(tmp_path / "cache.sqlite3")
    wall = make_meter(cache=cache)
    assert wall.measure(model("large", 40)).speedup < 1.0
    cpu = make_meter(cache=cache, clock="cpu")
    assert cpu.measure(model("large", 40)).speedup < 1.0
    assert cpu.measurements == 1  # the other clock's value does not answer


@pytest.mark.parametrize("deployment", [Deployment(threads=2), Deployment("cuda")])
def test_the_thread_clock_is_for_one_thread_on_the_cpu(make_meter: MakeMeter, deployment: Deployment) -> None:
    with pytest.raises(ValueError, match="one thread on the CPU"):
        make_meter(deployment=deployment, clock="cpu")


def test_threads_share_a_meter(make_meter: MakeMeter, model: Any) -> None:
    meter = make_meter()
    results: dict[int, Latency] = {}

    def measure(number: int) -> None:
        results[number] = meter.measure(model(f"m{number}", 1))

    threads = [threading.Thread(target=measure, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[number].ok for number in range(3)] == [True] * 3


def _measure_in_child(meter: OrtMeter, graph: Any, pipe: Any) -> None:
    with meter:
        pipe.send(meter.measure(graph).status)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_daemon_measures_with_a_worker_of_its_own(make_meter: MakeMeter, model: Any) -> None:
    """As in the processes of SubprocVecEnv, which may not have children of multiprocessing."""
    meter = make_meter()
    assert meter.measure(model("a", 1)).ok
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_measure_in_child, args=(meter, model("b", 1), theirs), daemon=True)
    child.start()
    assert ours.poll(30)
    assert ours.recv() == "ok"
    child.join(10)
    assert child.exitcode == 0
    # Ours lives on.
    assert meter.measure(model("c", 1)).ok


def test_pickles(make_meter: MakeMeter, model: Any, tmp_path: Path) -> None:
    meter = make_meter(cache=MeasurementCache(tmp_path / "cache.sqlite3"))
    first = meter.measure(model("a", 1))
    with pickle.loads(pickle.dumps(meter)) as copy:
        assert copy.measure(model("a", 1)) == first
        assert copy.measure(model("b", 1)).ok


def test_latency_survives_json() -> None:
    good = Latency(1.5, 1.1, (1.05, 1.15), 12, 1.65)
    assert Latency.from_json(good.to_json()) == good
    failed = Latency.from_json(Latency.failed("crash", "SIGSEGV").to_json())
    assert (failed.ms, failed.status, failed.message) == (math.inf, "crash", "SIGSEGV")
    assert math.isnan(failed.baseline_ms)


@pytest.mark.gpu
def test_cuda(make_meter: MakeMeter, model: Any) -> None:
    meter = make_meter(deployment=Deployment("cuda"))
    assert meter.measure(model("small", 1)).ok
    assert meter.measure(model("other", 2), "full").ok
    assert meter.active_optimizers(model("small", 1))


def test_a_stall_during_a_model_against_itself_is_left_out() -> None:
    timings = [([0.002], [0.4], 1)]
    itself = latency_of(timings, identical=True)
    assert (itself.ms, itself.baseline_ms, itself.speedup) == (2.0, 2.0, 1.0)
    other = latency_of(timings, identical=False)
    assert (other.ms, other.baseline_ms) == (400.0, 2.0)
