"""Mutants in an optimisation: found for the model, applied as candidates, written into the result and replayed.

Latencies are planted: a convolution costs a millisecond per image of its batch, so that one wide image pays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from agents.commands import common
from agents.conclusion.recordings import actions_file
from agents.optimization import remembering
from agents.optimization.options import OptimizeOptions
from agents.optimization.outcome import Optimization
from agents.optimization.run import optimize_model
from agents.searching import mutants as mutant_search
from agents.searching.mutants import MutantMeters
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Effort, Latency, OperatorSpec
from graph_rewrite.latency.windows import Difference
from graph_rewrite.mutate.equivalence import RandomTrials, prove
from graph_rewrite.mutate.moves import Move
from graph_rewrite.mutate.mutant_rules import MalformedMutantError, MutantRule, mutant_rule, read_mutant_rules
from graph_rewrite.mutate.optimizing.optimizer import FoundRules
from graph_rewrite.mutate.program import program, step
from graph_rewrite.mutate.repairs import Repair, RepairCase, choose
from graph_rewrite.mutate.search import Limits
from graph_rewrite.mutate.subprograms import split
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.onnx_files.saving import save
from graph_rewrite.replay import read_recording
from graph_rewrite.task.problem import Problem, open_problem
from rewritegym.cli import main
from tests.agents.optimization.planted import PlantedAgent, plant
from tests.envs.fakes import OperatorCountMeter
from tests.repository import run_python

LIMIT = "40s"
Optimize = Callable[..., Optimization]


def images(graph: Graph) -> float:
    """Images that the convolutions of a graph read, and a little for every operator."""
    convolved = (node.inputs[0] for node in graph.nodes.values() if node.op == "Conv")
    sizes = [graph.types[value].shape[0] for value in convolved if value is not None]  # type: ignore[union-attr]
    return 10.0 * sum(sizes) + 0.1 * len(graph.nodes)


class ImageMeter(OperatorCountMeter):
    """Counts images."""

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        speedup = images(self.baseline) / images(graph)
        return Latency(images(graph), speedup, (speedup, speedup), 1, images(self.baseline))


def price(spec: OperatorSpec) -> float:
    """Milliseconds of an operator, by the same measure."""
    shape = spec.input_types[0]
    return 10.0 * shape[1][0] if spec.op == "Conv" and shape is not None else 0.1


class ImageTimer:
    """Times windows by the same measure."""

    def difference(self, before: Graph, after: Graph) -> Difference:
        saved = images(before) - images(after)
        return Difference(saved, (saved - 1.0, saved + 1.0), 1, 1, 1, images(before))


@contextmanager
def planted_meters(problem: Problem) -> Iterator[MutantMeters]:
    yield MutantMeters(price, ImageTimer())


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def write(path: Path, seed: int = 0) -> Path:
    """Write a model of one convolution over two images."""
    text = "(float[2,4,8,8] x) => (z) { y = Conv<pads=[1,1,1,1]>(x, w, b) z = Relu(y) }"
    save(model(text, w=weights(6, 4, 3, 3, seed=seed), b=weights(6, seed=seed)), path)
    return path


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PlantedAgent:
    made = plant(monkeypatch, tmp_path / "cache", ImageMeter)
    made.measurements = 12
    return made


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that are searched for mutants; what is found is planted."""
    searched: list[Graph] = []

    def search(problem: Problem, *arguments: Any) -> list[MutantRule]:
        searched.append(problem.model.graph)
        return [with_a_gap(problem.model.graph)]

    monkeypatch.setattr(mutant_search, "_searched", search)
    return searched


def with_a_gap(graph: Graph) -> MutantRule:
    """Two images side by side, with zeros between them."""
    sub = split(graph).subprograms[0]
    move = Move(0, "outer", 3, "outer", 2)
    wide = [step("layout", 0, chain=(move,)), sub.program.steps[0], step("layout", 4, chain=(move.undone(),))]
    wide[1] = step("conv", 3, 1, 2, **dict(wide[1].params))
    trials, mutant = RandomTrials(sub.program, sub.shapes), program(3, wide)
    finding = prove(trials, mutant)
    assert finding is not None
    repair = choose(RepairCase(trials, mutant, finding.wrong, sub.constants), lambda made: float(len(made.steps)))
    assert isinstance(repair, Repair)
    found = mutant_rule(graph, sub, repair.program)
    assert isinstance(found, MutantRule)
    return found


@pytest.fixture
def optimize(agent: PlantedAgent) -> Optimize:
    def optimize(path: Path, **options: Any) -> Optimization:
        given = {"time_limit": LIMIT, "threads": "1", "rules": "MulOne", **options}
        return optimize_model(path, OptimizeOptions(**given))

    return optimize


def outputs(path: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: weights(2, 4, 8, 8, seed=5)})[0])


def test_a_mutant_is_found_applied_verified_and_replayed_in_another_process(
    optimize: Optimize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutant_search, "measured_meters", planted_meters)
    monkeypatch.setattr(mutant_search, "LIMITS", Limits(depth=2, keep=0.8))
    monkeypatch.setattr(mutant_search, "ROUNDS", 1)
    monkeypatch.setattr(mutant_search, "SHARE", 10.0)  # the search comes to its end well before
    path = write(tmp_path / "m.onnx")
    made = optimize(path, mutants="search")
    assert made.verified
    assert made.speedup > 1.5
    assert "subprograms searched: " in made.result.message
    assert "cut short" not in made.result.message
    assert [action.rule.startswith("MutantConv") for action in made.result.actions] == [True]
    written = made.save(tmp_path / "fast.onnx")
    assert written is not None
    assert np.allclose(outputs(written), outputs(path), atol=1e-5)
    recording = read_recording(actions_file(written))
    (embedded,) = recording.mutants
    assert embedded["name"] == made.result.actions[0].rule
    assert embedded["certificate"]["proof"]["error_bound"] < 1e-15
    assert main(["rules", "show", embedded["name"], "--recording", str(actions_file(written))]) == 0
    shown = capsys.readouterr().out
    assert "(no instance known)" not in shown
    assert "repair: " in shown
    assert "certificate: proved at" in shown
    # Weights of a retrained model are other ones: what was proved holds for all.
    other = write(tmp_path / "retrained.onnx", seed=3)
    command = ["-m", "rewritegym", "apply", str(actions_file(written)), str(other), str(tmp_path / "o.onnx"), "--json"]
    done = run_python(*command)
    assert done.returncode == 0, done.stderr
    entry = json.loads(done.stdout)
    assert (entry["verified"], entry["applied"]) == (True, 1)
    assert np.allclose(outputs(tmp_path / "o.onnx"), outputs(other), atol=1e-5)


def test_no_mutant_is_offered_by_default(optimize: Optimize, tmp_path: Path) -> None:
    assert optimize(write(tmp_path / "m.onnx")).result.is_original


def test_a_remembered_result_brings_its_mutants_and_needs_no_search(
    optimize: Optimize, planted: list[Graph], tmp_path: Path
) -> None:
    first = optimize(write(tmp_path / "m.onnx"), mutants="search")
    second = optimize(write(tmp_path / "again.onnx", seed=1), mutants="search")
    assert second.result.agent == remembering.NAME
    assert second.speedup == first.speedup
    assert len(planted) == 1
    assert second.recording is not None
    assert second.recording.mutants == first.recording.mutants  # type: ignore[union-attr]


def test_without_mutants_a_remembered_result_gives_none(
    optimize: Optimize, planted: list[Graph], tmp_path: Path
) -> None:
    optimize(write(tmp_path / "m.onnx"), mutants="search")
    assert optimize(write(tmp_path / "again.onnx", seed=1)).result.is_original


def test_a_recording_with_another_mutant_is_refused(
    optimize: Optimize, planted: list[Graph], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "m.onnx")
    written = optimize(path, mutants="search").save(tmp_path / "fast.onnx")
    assert written is not None
    recorded = json.loads(actions_file(written).read_text())
    steps = recorded["mutants"][0]["mutant"]["steps"]
    convolution = next(step for step in steps if step[0] == "conv")
    convolution[2]["dilations"], convolution[2]["pads"] = [2, 1], [2, 1, 2, *convolution[2]["pads"][3:]]
    actions_file(written).write_text(json.dumps(recorded))
    assert main(["apply", str(actions_file(written)), str(path), str(tmp_path / "o.onnx")]) == 2
    assert "has changed since it was recorded" in capsys.readouterr().err
    # With the name that its data have, it is the proof that refuses it.
    wrong = MutantRule._read(recorded["mutants"][0])
    recorded["mutants"][0]["name"] = wrong.name
    with pytest.raises(MalformedMutantError, match="refused"):
        read_mutant_rules(recorded["mutants"])
    assert not (tmp_path / "o.onnx").exists()


def test_mutants_and_strict_exclude_each_other(optimize: Optimize, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--mutants search and --strict"):
        optimize(write(tmp_path / "m.onnx"), mutants="search", strict=True)


def test_ctrl_c_ends_the_search_for_mutants_and_keeps_what_was_found(tmp_path: Path) -> None:
    problem = open_problem(
        f"file:{write(tmp_path / 'm.onnx')}", provider="cpu", meter=lambda model, *_: ImageMeter(model.original)
    )
    searches: list[Any] = []
    asked = iter(range(10**6))

    def ending(spec: OperatorSpec) -> float:
        if next(asked) == 200:
            searches[0].end()
        return price(spec)

    @contextmanager
    def meters(problem: Problem) -> Iterator[MutantMeters]:
        yield MutantMeters(ending, ImageTimer())

    told: list[FoundRules] = []
    found = mutant_search.add_mutants(problem, "search", 1e6, searches.append, meters, on_searched=told.append)
    assert searches[0].ended
    assert [each.complete for each in told] == [False]
    assert "more time may find more" in str(told[0])
    assert found
    assert {rule.name for rule in found} <= {rule.name for rule in problem.rewriter.rules}


def test_a_mutant_that_surely_loses_in_its_window_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx")
    problem = open_problem(f"file:{path}", provider="cpu", meter=lambda model, *_: ImageMeter(model.original))
    rule = with_a_gap(problem.model.graph)

    class Timer(ImageTimer):
        def __init__(self, saved: float) -> None:
            self.saved = saved

        def difference(self, before: Graph, after: Graph) -> Difference:
            return Difference(self.saved, (self.saved - 1.0, self.saved + 1.0))

    for saved, kept in ((-2.0, []), (-0.5, [rule]), (2.0, [rule])):
        assert mutant_search._timed(problem, [rule], Timer(saved), lambda: False) == kept
    assert mutant_search._timed(problem, [rule], Timer(-2.0), lambda: True) == [rule]


def test_evaluate_offers_mutants_to_its_agents_and_embeds_those_used(
    planted: list[Graph], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def opened(*arguments: Any, **options: Any) -> Problem:
        return open_problem(*arguments, **options, meter=lambda model, *_: ImageMeter(model.original))

    monkeypatch.setattr(common, "open_problem", opened)
    path = write(tmp_path / "m.onnx")
    given = ["--model", str(path), "--agents", "greedy", "--seconds", "20", "--measurements", "8", "--no-plots"]
    more = ["--no-cost-model", "--set", "env.rules=MulOne", "--runs", str(tmp_path / "runs"), "--json"]
    assert main(["evaluate", *given, *more, "--mutants", "search"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["results"]
    assert entry["speedup"] > 1.5
    assert [mutant["name"] for mutant in entry["mutants"]] == [entry["rewrites"][0]["rule"]]
    (tmp_path / "entry.json").write_text(json.dumps(entry))
    assert len(read_recording(tmp_path / "entry.json").mutants) == 1
    assert main(["evaluate", *given, *more]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["results"]
    assert "mutants" not in entry
    assert entry["speedup"] == 1.0
