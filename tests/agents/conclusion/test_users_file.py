"""Results whose only gain is the deployment: the user's own file, run otherwise."""

import json
import time
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import helper

from agents.conclusion.conclude import conclude
from agents.conclusion.users_file import asking_original
from agents.core.base import Budget, Search
from agents.searching.session_search import search_session
from graph_rewrite import Graph
from graph_rewrite.delivery.deployed import METADATA_KEY, recorded_deployment, session
from graph_rewrite.delivery.ship import kept_original
from graph_rewrite.latency import Deployment, Latency, Plan
from graph_rewrite.system.deadline import OutOfTime
from graph_rewrite.task.models import open_model
from graph_rewrite.task.problem import Problem
from tests.agents.planted_settings import FACTORS, PlantedMeter, planted


def searched(problem: Problem) -> Search:
    search = Search(problem, Budget(50, 60.0))
    search.measure(problem.model.graph, ())
    search_session(search)
    return search


def test_the_file_stays_as_it_is_and_the_deployment_lies_beside_it(tmp_path: Path) -> None:
    problem = planted(tmp_path, FACTORS)
    result = conclude(searched(problem), "test")
    assert result.latency.speedup == pytest.approx(1 / 0.9)
    assert not result.is_original
    written = result.checked.write_to(tmp_path / "out" / "fast.onnx")
    assert written.read_bytes() == problem.model.path.read_bytes()
    assert recorded_deployment(written) == Deployment().with_settings({"enable_mem_pattern": False})
    assert not session(written).get_session_options().enable_mem_pattern


def test_where_normalisation_gains_too_the_file_is_rewritten(tmp_path: Path) -> None:
    problem = planted(tmp_path, FACTORS)
    original = problem.model.original
    # An Identity more than the normalised graph has.
    slower = replace(problem.model, original=_with_identity(original, tmp_path))
    problem.model = slower
    problem.meter = PlantedMeter(slower.original)
    problem.meter.factors, problem.meter.luck = FACTORS, {}
    result = conclude(searched(problem), "test")
    written = result.checked.write_to(tmp_path / "out.onnx")
    assert METADATA_KEY in {entry.key for entry in onnx.load(written).metadata_props}
    assert result.latency.speedup > 1.1 / 0.9


def _with_identity(graph: Graph, folder: Path) -> Graph:
    proto = onnx.load(next(folder.glob("*.onnx")))
    (output,) = proto.graph.output
    last = next(node for node in proto.graph.node if output.name in node.output)
    last.output[0] = "before"
    proto.graph.node.append(helper.make_node("Identity", ["before"], [output.name]))
    onnx.save(proto, folder / "identity.onnx")
    return open_model(f"file:{folder / 'identity.onnx'}").original


def test_rewrites_and_recorded_deployments_need_a_file_of_their_own(tmp_path: Path) -> None:
    problem = planted(tmp_path, FACTORS)
    model = problem.model
    asking = model.graph.with_session_settings({"threads": 2}).with_disabled_optimizers({"GeluFusionL1"})
    own = asking_original(model, asking)
    assert own is not None
    assert (own.session_settings, own.disabled_optimizers) == (asking.session_settings, asking.disabled_optimizers)
    rewritten = next(c for c in problem.rewriter.candidates(model.graph) if c.kind == "site").apply()
    assert asking_original(model, rewritten.with_session_settings({"threads": 2})) is None
    assert asking_original(model, model.graph.with_session_settings({"node_order": "last_input_first"})) is None
    proto = onnx.load(model.path)
    helper.set_model_props(proto, {METADATA_KEY: json.dumps(Deployment().to_json())})
    onnx.save(proto, tmp_path / "recorded.onnx")
    recorded = open_model(f"file:{tmp_path / 'recorded.onnx'}")
    assert asking_original(recorded, recorded.graph.with_session_settings({"threads": 2})) is None


def test_without_time_for_checking_it_the_winner_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object, **__: object) -> None:
        raise OutOfTime

    monkeypatch.setattr("agents.conclusion.conclude.kept_original", late)
    result = conclude(searched(planted(tmp_path, FACTORS)), "test")
    assert result.verified
    assert result.checked.deployment == Deployment().with_settings({"enable_mem_pattern": False})
    written = result.checked.write_to(tmp_path / "out.onnx")
    assert METADATA_KEY in {entry.key for entry in onnx.load(written).metadata_props}


def test_a_deployment_is_not_taken_for_checked_without_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, **__: object) -> None:
        raise OutOfTime

    monkeypatch.setattr("graph_rewrite.delivery.ship.equivalent", late)
    path = planted(tmp_path, FACTORS).model.path
    assert kept_original(path, Deployment()).outcome.ok
    with pytest.raises(OutOfTime):
        kept_original(path, Deployment(), unrun=False)


def test_in_little_time_a_winner_without_rewrites_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measure one graph alone: without the time for the own file, the one that the search measured is saved."""
    problem, asked = planted(tmp_path, FACTORS), list[Graph]()
    search = searched(problem)
    confirm = problem.confirm

    def counted(graph: Graph, plan: Plan | None = None, look: int = 0) -> Latency:
        asked.append(graph)
        return confirm(graph, plan, look)

    monkeypatch.setattr(problem, "confirm", counted)
    search.budget = Budget(50, 60.0, conclusion_s=20.0, deadline=time.monotonic() + 20.0)
    assert conclude(search, "test").checked.path == problem.model.path
    assert len({graph.hash for graph in asked}) == 1
    monkeypatch.setattr("agents.conclusion.users_file.needed_seconds", lambda *_: 21.0)
    assert conclude(search, "test").checked.path != problem.model.path
