"""Headroom: limits by hand, effective and executed operations, and files that the page takes in."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.conclusion.recordings import recording_of
from agents.core.base import action_of
from benchmarks.figures.headroom_tables import headroom_tables, read_headroom
from benchmarks.figures.rows import read_results
from benchmarks.figures.writing import stale, write
from benchmarks.headroom import __main__ as command
from benchmarks.headroom.models import headroom_of, judged_latencies
from benchmarks.headroom.roofs import distances, roof, shown_operator
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.inspection.profile import Profile, TimedKernel
from graph_rewrite.inspection.roofline import Peaks
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.problem import open_problem
from tests.benchmarks.figures.made_up import row, write_results
from tests.graph_rewrite.replay.models import write_network

FLOAT = 1
PEAKS = Peaks(gflops=1.0, gigabytes=4.0)


def product(us: float) -> TimedKernel:
    """A product of 10 x 10 matrices: 2,000 operations and 1,200 bytes, so 2 us at least at these peaks."""
    square = TensorType(FLOAT, (10, 10))
    return TimedKernel("p", "MatMul", us, (square, square), (square,))


def move(us: float) -> TimedKernel:
    """A transposition of 4,000 bytes, read and written: 1,000 operations by elements, 8,000 bytes, so 2 us at least."""
    matrix = TensorType(FLOAT, (10, 100))
    return TimedKernel("t", "Transpose", us, (matrix,), (matrix,))


def profile_of(ms: float, *kernels: TimedKernel) -> Profile:
    return Profile(Deployment("cpu"), ms, kernels)


@dataclass
class PlantedProfiler:
    """Says that every operator is a product of 10 us, whose limit is 2 us."""

    peaks: Peaks = PEAKS
    asked: list[tuple[int, Deployment]] = field(default_factory=list)

    def __call__(self, graph: Graph, deployment: Deployment) -> Profile:
        self.asked.append((len(graph.nodes), deployment))
        return profile_of(0.01 * len(graph.nodes), *(product(10.0) for _ in graph.nodes))


def test_the_roof_is_the_sum_of_what_kernels_need() -> None:
    found = roof(profile_of(0.02, product(5.0), product(1.5), move(6.0)), PEAKS)
    assert found["least_ms"] == pytest.approx((2 + 1.5 + 2) / 1e3), "a kernel needs no more than it took"
    assert found["gflop"] == pytest.approx((2 * 2000 + 1000) / 1e9)
    assert found["gigabytes"] == pytest.approx((2 * 1200 + 8000) / 1e9)
    assert found["compute_bound"] == pytest.approx(3.5 / 5.5)
    assert [(one["operator"], one["kernels"]) for one in found["rest"]] == [("Transpose", 1), ("MatMul", 2)]
    assert [one["rest_ms"] for one in found["rest"]] == pytest.approx([4 / 1e3, 3 / 1e3])
    assert [one["share"] for one in found["rest"]] == pytest.approx([4 / 7, 3 / 7])


def test_fewer_multiplications_go_beyond_the_limit_of_the_original() -> None:
    original = {"least_ms": 10.0, "gflop": 1.0}
    ours = {"least_ms": 4.0, "gflop": 0.5}
    found = distances(original, {"original": 20.0, "regional": 8.0, "openvino": 16.0}, "regional", ours)
    by = {one["contestant"]: one for one in found}
    assert [by[name]["of_limit"] for name in by] == pytest.approx([0.5, 1.25, 0.625])
    assert by["regional"]["effective_gflops"] == pytest.approx(125.0)
    assert by["regional"]["executed_gflops"] == pytest.approx(62.5)
    assert by["regional"]["of_own_limit"] == pytest.approx(0.5)
    assert by["original"]["executed_gflops"] == by["original"]["effective_gflops"] == pytest.approx(50.0)
    assert by["openvino"]["executed_gflops"] is None, "what another runtime executes is not known"


def test_convolutions_are_told_by_their_kernels() -> None:
    data, weight = TensorType(FLOAT, (1, 32, 8, 8)), TensorType(FLOAT, (32, 1, 3, 3))
    assert shown_operator(TimedKernel("c", "Conv", 1.0, (data, weight), (data,))) == "Conv 3x3 grouped"
    dense = TensorType(FLOAT, (32, 32, 1, 7))
    assert shown_operator(TimedKernel("c", "FusedConv", 1.0, (data, dense), (data,))) == "FusedConv 1x7"
    assert shown_operator(TimedKernel("c", "Conv", 1.0, (data,), (data,))) == "Conv"
    assert shown_operator(product(1.0)) == "MatMul"


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Path, str]:
    """A results file with a result of three seeds whose rewrites replay, a peer, and the model that they are of."""
    model = f"file:{write_network(tmp_path / 'network.onnx')}"
    problem = open_problem(model, provider="cpu", cached=False)
    candidate = next(c for c in problem.rewriter.candidates(problem.model.graph) if c.rule == "ComposeTransposes")
    recording = recording_of(problem, [action_of(candidate)], candidate.apply())
    more: dict[str, Any] = {
        "actions": recording.to_json(), "deployment": Deployment("cpu", optimization_level="basic").to_json()
    }  # fmt: skip
    rows = [row(model, "regional", speedup, seed, **more) for seed, speedup in enumerate((2.0, 1.2, 1.5))]
    return write_results(tmp_path / "cpu-t1.json", [*rows, row(model, "openvino", 1.1, None)]), model


def test_the_result_in_the_middle_is_replayed_under_its_deployment(recorded: tuple[Path, str]) -> None:
    path, model = recorded
    results, profiler = read_results(path), PlantedProfiler()
    found = headroom_of(model, profiler, 1, results)
    (before, plain), (after, deployment) = profiler.asked
    assert after < before
    assert (plain.optimization_level, deployment.optimization_level) == ("all", "basic")
    assert found["ours"]["seed"] == 2
    assert found["ours"]["gflop"] < found["original"]["gflop"]
    assert [one["contestant"] for one in found["contestants"]] == ["original", "regional", "openvino"]
    assert judged_latencies(results, model)["regional"] == pytest.approx(12.0 / 1.5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"actions": None, "rewrites": [{"rule": "NoSuchRule", "sites": 1}]}, "do not replay"),
        ({"verified": False}, "no run of regional counts"),
        ({"speedup": 1.0, "speedup_ci95": [1.0, 1.0]}, "keeps the original"),
    ],
)
def test_what_cannot_be_replayed_is_told(recorded: tuple[Path, str], change: dict[str, Any], reason: str) -> None:
    path, model = recorded
    stored = json.loads(path.read_text())
    write_results(path, [entry | (change if entry["agent"] == "regional" else {}) for entry in stored["rows"]])
    found = headroom_of(model, PlantedProfiler(), 1, read_results(path))
    assert found["ours"] is None
    assert reason in found["ours_missing"]
    assert reason in headroom_tables({"threads": 1, "models": [found]})


def test_the_page_takes_the_tables_in(recorded: tuple[Path, str]) -> None:
    path, model = recorded
    write(path)
    failed = {"model": "vit", "failure": "out of memory"}
    entries = [headroom_of(model, PlantedProfiler(), 1, read_results(path)), failed]
    path.with_name("cpu-t1-headroom.json").write_text(json.dumps({"threads": 1, "models": entries}))
    assert stale(path) == [path.with_suffix(".md")]
    write(path)
    text = path.with_suffix(".md").read_text()
    assert "## Headroom" in text
    assert "vit was not profiled: out of memory" in text
    assert "| MatMul 100%" in text


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cpu-t1-headroom.json"
    assert read_headroom(path) == ""
    path.write_text('{"models": [{}]}')
    with pytest.raises(UserError, match="no file of benchmarks"):
        read_headroom(path)


def test_the_command_measures_a_model_and_goes_on_after_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def planted(model: str, *rest: Any) -> dict[str, Any]:
        if model == "file:bad.onnx":
            raise MachineError("it cannot be run")
        return headroom_of(model, *rest)

    monkeypatch.setattr(command, "headroom_of", planted)
    monkeypatch.setattr("graph_rewrite.inspection.profile.BUDGET_S", 0.1)
    good = f"file:{write_network(tmp_path / 'network.onnx')}"
    monkeypatch.setattr("sys.argv", ["headroom", "--models", "file:bad.onnx", good, "--json"])
    assert command.main() == 0
    bad, measured = json.loads(capsys.readouterr().out)["models"]
    assert bad["failure"] == "it cannot be run"
    assert 0 < measured["original"]["least_ms"] <= measured["original"]["ms"]
    assert measured["contestants"][0]["of_limit"] <= 1.0
