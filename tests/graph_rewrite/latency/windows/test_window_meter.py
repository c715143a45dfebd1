"""The regional meter: what it times, what it remembers, what it leaves to the whole model."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from graph_rewrite import Graph, Rewriter, load
from graph_rewrite.latency import Deployment, Latency, LockTimeout, MachineLock, MeasurementCache, Plan
from graph_rewrite.latency.windows.window import changed_windows
from graph_rewrite.latency.windows.window_meter import NotTimed, WindowMeter
from graph_rewrite.onnx_files.loading import load as load_model
from graph_rewrite.onnx_files.normalisation import normalise
from tests.envs.fakes import tower_graph
from tests.graph_rewrite.sample_models import parsed

QUICK = Plan(instances=2, min_instances=2, min_pairs=2, max_pairs=3, budget_s=0.05)
BLOCKS = 4


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return tower_graph(tmp_path_factory.mktemp("models"), BLOCKS)


@pytest.fixture
def make_meter(tmp_path: Path) -> Iterator[Callable[..., WindowMeter]]:
    made: list[WindowMeter] = []

    def make(**options: Any) -> WindowMeter:
        defaults: dict[str, Any] = {
            "workspace": tmp_path / "work", "plan": QUICK, "budget_s": 0.0, "lock_path": tmp_path / "lock",
        }  # fmt: skip
        made.append(WindowMeter(**{**defaults, **options}))
        return made[-1]

    yield make
    for meter in made:
        meter.close()


class FakeWhole:
    """Finds every graph 1.25 times as fast as a reference of 10 ms."""

    def __init__(self) -> None:
        self.asked = 0

    def compare(self, reference: Any, candidate: Any, plan: Any = None) -> Latency:
        self.asked += 1
        return Latency(8.0, 1.25, (1.0, 2.0), 7, 10.0)


def sites(graph: Graph, rule: str) -> list[Graph]:
    found = [c for c in Rewriter(granularity="site", deployment=False).candidates(graph) if c.rule == rule]
    return [candidate.apply() for candidate in found]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Graph]:
    """A graph with two negations of 4 MB that cancel, and the graph without them."""
    path = tmp_path_factory.mktemp("models") / "slow.onnx"
    body = """(float[1024,1024] x) => (float[1024,1024] y)
        { a = Relu(x) b = Neg(a) c = Neg(b) y = Abs(c) }"""
    onnx.save(parsed(body), path)
    graph = normalise(load(path))[0]
    found = Rewriter(granularity="site", deployment=False).candidates(graph)
    return graph, next(c for c in found if [node.op for node in c.site.removed] == ["Neg", "Neg"]).apply()


def test_less_work_is_surely_faster_and_more_is_slower(
    slow: tuple[Graph, Graph], make_meter: Callable[..., WindowMeter]
) -> None:
    meter = make_meter(plan=Plan(instances=4, min_instances=4, min_pairs=3, max_pairs=8, budget_s=0.4))
    before, after = slow
    gain = meter.difference(before, after)
    # Two of four passes over 4 MB.
    assert gain.surely_faster
    assert gain.how == "window"
    assert gain.seconds > 0.2 * gain.window_seconds
    assert gain.ci95[0] <= gain.seconds <= gain.ci95[1]
    loss = meter.difference(after, before)
    assert loss.ci95[1] < 0.0
    assert loss.seconds == pytest.approx(-gain.seconds, rel=0.5)


def test_equal_graphs_are_not_timed(tower: Graph, make_meter: Callable[..., WindowMeter]) -> None:
    meter = make_meter()
    found = meter.difference(tower, tower)
    assert (found.seconds, found.ci95, found.how) == (0.0, (0.0, 0.0), "same")
    assert meter.measurements == 0


def test_alike_sites_are_timed_once_and_counted(tower: Graph, make_meter: Callable[..., WindowMeter]) -> None:
    meter = make_meter(margin=0)
    group = next(
        c for c in Rewriter(granularity="class", deployment=False).candidates(tower) if c.rule == "ComposeTransposes"
    )
    found = meter.difference(tower, group.apply())
    assert found.sites == BLOCKS
    assert found.timed == meter.measurements < BLOCKS
    # One site of a kind that was timed already, with other weights: answered from memory, a share of the whole.
    inner = sites(tower, "ComposeTransposes")[1:-1]
    known = meter.measurements
    differences = [meter.difference(tower, graph) for graph in inner]
    assert len({(entry.seconds, entry.ci95) for entry in differences}) == 1
    assert meter.measurements <= known + 1


def test_interval_grows_with_the_number_of_sites(tower: Graph, make_meter: Callable[..., WindowMeter]) -> None:
    meter = make_meter()
    (cut,) = changed_windows(tower, sites(tower, "ComposeTransposes")[1])
    one = meter.time(cut, anew=True)  # ONNX Runtime makes the same of both
    many = meter.time(type(cut)(cut.before, cut.after, 10, cut.key))
    assert many.seconds == pytest.approx(10 * one.seconds)
    assert many.ci95[1] - many.ci95[0] == pytest.approx(10 * (one.ci95[1] - one.ci95[0]))
    assert meter.measurements == 1


def test_the_cache_answers_another_meter(tower: Graph, make_meter: Callable[..., WindowMeter], tmp_path: Path) -> None:
    after = sites(tower, "ComposeTransposes")[0]
    cache = MeasurementCache(tmp_path / "cache.sqlite3")
    first = make_meter(cache=cache).difference(tower, after)
    other = make_meter(cache=cache)
    assert other.difference(tower, after) == first
    assert other.measurements == 0
    # Another deployment is another question.
    threads = make_meter(cache=cache, deployment=Deployment(threads=2))
    threads.difference(tower, after)
    assert threads.measurements == 1


def test_deployment_choices_are_timed_as_whole_models(tower: Graph, make_meter: Callable[..., WindowMeter]) -> None:
    whole = FakeWhole()
    refusing = tower.with_disabled_optimizers({"ConvBNFusion"})
    found = make_meter(whole=whole).difference(tower, refusing)
    assert whole.asked == 1
    assert found.how == "whole"
    assert "ConvBNFusion" in found.message
    assert found.seconds == pytest.approx(0.002)
    assert found.ci95 == pytest.approx((0.0, 0.005))
    alone = make_meter().difference(tower, refusing)
    assert alone.status == "error"
    assert not alone.surely_faster


def test_a_region_that_cannot_run_alone_is_left_to_the_whole_model(
    tower: Graph, make_meter: Callable[..., WindowMeter], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every file of a candidate is called so.
    monkeypatch.setenv("REWRITEGYM_WORKER_FAULT", "segfault:.onnx")
    whole = FakeWhole()
    found = make_meter(whole=whole).difference(tower, sites(tower, "ComposeTransposes")[0])
    assert whole.asked == 1
    assert "by itself" in found.message


def test_files_of_regions_are_removed(tower: Graph, make_meter: Callable[..., WindowMeter], tmp_path: Path) -> None:
    make_meter().difference(tower, sites(tower, "ComposeTransposes")[0])
    assert not list((tmp_path / "work").glob("*.onnx"))


def test_integer_inputs_of_a_region_stay_within_their_tables(
    make_meter: Callable[..., WindowMeter], tmp_path: Path
) -> None:
    body = """(float[3,4] table, int64[5] ids) => (float[5,4] y)
        { i = Identity(ids) j = Identity(i) t = Gather(table, j) u = Neg(t) y = Neg(u) }"""
    onnx.save(parsed(body), tmp_path / "gather.onnx")
    graph = load_model(tmp_path / "gather.onnx")
    for after in sites(graph, "DropIdentity"):
        assert make_meter().difference(graph, after).ok


@pytest.mark.parametrize("options", [{"margin": -1}, {"budget_s": -1.0}, {"resolution_s": 0.0}])
def test_senseless_options_are_refused(options: dict[str, float], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="WindowMeter"):
        WindowMeter(workspace=tmp_path, **options)  # type: ignore[arg-type]


def test_a_window_that_cannot_be_written_is_not_timed_and_a_lock_that_is_held_is_told(
    slow: tuple[Graph, Graph], make_meter: Callable[..., WindowMeter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (window,) = changed_windows(*slow)
    with pytest.raises(NotTimed, match="cannot be written into"):
        make_meter(workspace=tmp_path / "file").time(window)

    def held(lock: MachineLock) -> MachineLock:
        raise LockTimeout("process 7 has held it for an hour")

    monkeypatch.setattr(MachineLock, "__enter__", held)
    with pytest.raises(LockTimeout, match="process 7"):
        make_meter().time(window)
