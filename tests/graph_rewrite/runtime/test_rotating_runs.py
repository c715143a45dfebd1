"""Runs in the worker: which inputs reach the sessions of both sides, and in which order."""

import io
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from graph_rewrite.runtime import FULL, SCREEN, Deployment, FeedSpec, Plan, Runner
from graph_rewrite.runtime.ort_worker import worker as worker_module
from graph_rewrite.runtime.ort_worker.feeds import ModelInput, make_feeds
from graph_rewrite.runtime.ort_worker.rotating import runner as runner_module
from graph_rewrite.runtime.ort_worker.rotating.rotation import BYTES, FEWEST, Rotation
from graph_rewrite.runtime.ort_worker.rotating.runner import DeviceRuns
from graph_rewrite.runtime.ort_worker.sessions.cuda_graphs import CudaGraphSession
from graph_rewrite.runtime.ort_worker.worker import Worker
from tests.graph_rewrite.sample_models import parsed

LOOKUP = """(int64[1,4] ids, float[1,4,2] x) => (float[1,4,2] y)
    <float[16,2] table> { r = Gather(table, ids) y = Add(r, x) }"""
RANGES = {"ids": (0, 16)}
Request = dict[str, Any]
Log = dict[str, list[list[dict[str, bytes]]]]


class Recorder:
    """Opens sessions that write down the bytes of the inputs of every run, session by session, by the file's name."""

    def __init__(self) -> None:
        self.log: Log = {}

    def open(self, path: str, *args: Any, **kwargs: Any) -> Any:
        runs: list[dict[str, bytes]] = []
        self.log.setdefault(Path(path).stem, []).append(runs)

        class Session(ort.InferenceSession):  # type: ignore[misc]  # onnxruntime has no types
            def run(self, names: Any, feeds: Mapping[str, Any], options: Any = None) -> Any:
                runs.append({name: value.tobytes() for name, value in feeds.items()})
                return super().run(names, feeds, options)

        return Session(path)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(runner_module, "open_session", made.open)
    return made


@pytest.fixture
def request_of(tmp_path: Path) -> Callable[..., Request]:
    """Makes requests to compare two files of a model that looks up rows, or to time one."""
    model = parsed(LOOKUP)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(16, 2, dtype=np.float32), "table"))
    sides = {}
    for side in ("baseline", "candidate"):
        onnx.save(model, tmp_path / f"{side}.onnx")
        sides[side] = {"path": str(tmp_path / f"{side}.onnx"), "deployment": Deployment().to_request()}

    def make(feeds: Any, plan: Plan, **more: Any) -> Request:
        return {"kind": "compare", **sides, "feeds": feeds, "plan": plan.to_json(), **more}

    return make


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr(worker_module, "repeats_for", lambda _: 2)
    return Worker(io.BytesIO(), io.BytesIO())


def timed(session: list[dict[str, bytes]], warmup: int = 2) -> list[tuple[bytes, bytes]]:
    return [(run["ids"], run["x"]) for run in session[warmup:]]


def made(ids: int) -> list[bytes]:
    item = ModelInput("ids", "tensor(int64)", (1, 4))
    return [make_feeds([item], FeedSpec(seed, RANGES))["ids"].tobytes() for seed in range(ids)]


def test_eight_different_inputs_and_more_in_the_same_order_on_both_sides(
    recorder: Recorder, worker: Worker, request_of: Callable[..., Request]
) -> None:
    plan = Plan(instances=2, min_instances=2, min_pairs=5, max_pairs=5)
    reply = worker._compare(request_of(FeedSpec(input_ranges=RANGES).to_json(), plan))
    assert [len(block[0]) for block in reply["blocks"]] == [5, 5]
    assert [len(sessions) for sessions in recorder.log.values()] == [2, 2]
    for baseline, candidate in zip(recorder.log["baseline"], recorder.log["candidate"], strict=True):
        assert timed(baseline) == timed(candidate)
        assert len({x for _, x in timed(baseline)}) == FEWEST
    # A block goes on where the one before ended.
    ids = [ids for session in recorder.log["candidate"] for ids, _ in timed(session)]
    assert ids == made(20)
    assert len(set(ids)) > FEWEST


def test_a_warm_up_does_not_fill_the_caches_for_what_follows(
    recorder: Recorder, worker: Worker, request_of: Callable[..., Request]
) -> None:
    worker._compare(request_of(FeedSpec(input_ranges=RANGES).to_json(), Plan(warmup=3, min_pairs=2, max_pairs=2)))
    for sessions in recorder.log.values():
        assert [run["ids"] for run in sessions[0][:3]] == made(256)[-3:]
        assert [ids for ids, _ in timed(sessions[0], 3)] == made(4)


def test_the_order_of_the_sides_alternates_from_pair_to_pair(
    recorder: Recorder, worker: Worker, request_of: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, bytes]] = []
    run = Runner.run

    def seen(self: Runner) -> None:
        run(self)
        name = Path(self.path).stem
        order.append((name, recorder.log[name][-1][-1]["ids"]))

    monkeypatch.setattr(Runner, "run", seen)
    worker._compare(request_of(FeedSpec(input_ranges=RANGES).to_json(), Plan(min_pairs=2, max_pairs=2)))
    a, b, c, d = made(4)
    assert [name[0] for name, _ in order] == list("bbcc" + "bbcc" + "ccbb")
    assert [ids for _, ids in order[4:]] == [a, b, a, b, c, d, c, d]


def test_a_kept_baseline_begins_anew(recorder: Recorder, worker: Worker, request_of: Callable[..., Request]) -> None:
    request = request_of(FeedSpec(input_ranges=RANGES).to_json(), Plan(min_pairs=3, max_pairs=3))
    for _ in range(2):
        worker._compare(request)
    (kept,) = recorder.log["baseline"]
    assert [run["ids"] for run in kept[2:8]] == [run["ids"] for run in kept[9:]]
    assert kept[8:] == recorder.log["candidate"][1][1:], "only the new session has a second warm-up"


def test_users_inputs_in_turn(
    recorder: Recorder, worker: Worker, request_of: Callable[..., Request], tmp_path: Path
) -> None:
    np.savez(tmp_path / "data.npz", ids=np.arange(12).reshape(3, 1, 4), x=np.zeros((1, 4, 2), np.float32))
    recipes = [FeedSpec(npz=str(tmp_path / "data.npz"), item=item).to_json() for item in range(3)]
    worker._compare(request_of(recipes, Plan(min_pairs=2, max_pairs=2)))
    given = [np.arange(4 * item, 4 * item + 4).tobytes() for item in (0, 1, 2, 0)]
    for sessions in recorder.log.values():
        assert [ids for ids, _ in timed(sessions[0])] == given


def test_a_model_alone_is_timed_with_inputs_in_turn(
    recorder: Recorder, worker: Worker, request_of: Callable[..., Request]
) -> None:
    feeds = FeedSpec(input_ranges=RANGES).to_json()
    worker._time(request_of(feeds, Plan(min_pairs=5, max_pairs=5, warmup=1), kind="time"))
    assert [ids for ids, _ in timed(recorder.log["candidate"][0])] == made(10)


def test_a_model_alone_is_timed_by_the_clock_that_is_asked_for(
    recorder: Recorder, worker: Worker, request_of: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    monkeypatch.setitem(worker_module._CLOCKS, "cpu", lambda: float(next(ticks)))
    feeds = FeedSpec(input_ranges=RANGES).to_json()
    request = request_of(feeds, Plan(min_pairs=3, max_pairs=3, warmup=1), kind="time")
    by_thread = worker._time({**request, "clock": "cpu"})
    assert by_thread["samples"] == [1.0 / by_thread["repeats"]] * 3
    asked = next(ticks)
    worker._time(request)
    assert next(ticks) == asked + 1, "the wall is the clock by default"


def test_one_input_where_asked_to(recorder: Recorder, worker: Worker, request_of: Callable[..., Request]) -> None:
    worker._compare(request_of(FeedSpec(input_ranges=RANGES, rotated=()).to_json(), Plan(min_pairs=5, max_pairs=5)))
    for sessions in recorder.log.values():
        assert len(set(timed(sessions[0], 0))) == 1


@pytest.mark.parametrize("plan", [SCREEN, FULL])
def test_the_sides_do_not_share_memory_and_exchange_it(
    worker: Worker, request_of: Callable[..., Request], plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the inputs that lies better is not always that of one side. Sessions share what is made once."""
    taken: dict[str, list[Rotation]] = {}
    set_up = Runner.__init__

    def seen(self: Runner, path: str, *args: Any) -> None:
        set_up(self, path, *args)
        taken.setdefault(Path(path).stem, []).append(self.rotation)

    monkeypatch.setattr(Runner, "__init__", seen)
    worker._compare(request_of(FeedSpec(input_ranges=RANGES).to_json(), plan))
    assert len(taken["baseline"]) >= plan.min_instances
    for one, other in zip(taken["baseline"], taken["candidate"], strict=True):
        assert one is not other
    for rotations in taken.values():
        assert all(rotations[number] is rotations[number - 2] for number in range(2, len(rotations)))
        assert all(rotations[number] is not rotations[number - 1] for number in range(1, len(rotations)))


def test_memory_is_bounded_in_the_worker(worker: Worker, tmp_path: Path) -> None:
    onnx.save(parsed("(uint8[7000000] x) => (uint8[7000000] y) { y = Identity(x) }"), tmp_path / "m.onnx")
    side = {"path": str(tmp_path / "m.onnx"), "deployment": Deployment().to_request()}
    plan = Plan(instances=3, min_instances=3, min_pairs=1, max_pairs=1)
    request = {"baseline": side, "candidate": side, "feeds": FeedSpec().to_json(), "plan": plan.to_json()}
    worker._compare(request)
    held = [worker._rotations.last(copy) for copy in (0, 1)]
    assert [rotation.count for rotation in held] == [4, 4]
    assert sum(rotation.nbytes() for rotation in held) <= 2 * BYTES


class TestOnADevice:
    """The device is the CPU here; bindings are the same."""

    def turns(self) -> tuple[bytes, list[dict[str, Any]]]:
        content = parsed("(float[4] x) => (float[4] y) { y = Neg(x) }").SerializeToString()
        return content, [{"x": np.full(4, number, np.float32)} for number in range(3)]

    def test_each_run_takes_the_next_inputs(self) -> None:
        content, turns = self.turns()
        runs = DeviceRuns(ort.InferenceSession(content), turns, "cpu")
        for number in (0, 1, 2, 0):
            runs.turns[number]()
            assert runs._binding.get_outputs()[0].numpy()[0] == -number

    def test_a_graph_has_its_inputs_copied_between_samples(self) -> None:
        content, turns = self.turns()
        session = CudaGraphSession(content, device="cpu")
        runs = DeviceRuns(session, turns, "cpu")
        place = runs._places["x"].data_ptr()
        for number in (2, 1, 0):
            runs.turn_to(number)
            for run in runs.turns:  # in a row
                run()
                assert runs._binding.get_outputs()[0].numpy()[0] == -number
            assert runs._places["x"].data_ptr() == place
