"""The search for session settings: with a planted meter, what gains is kept and what was luck is not."""

import json
from pathlib import Path

import onnx
import pytest

from agents.conclusion.conclude import conclude
from agents.core.base import Budget, Search
from agents.searching.session_search import search_session
from graph_rewrite import Graph, save
from graph_rewrite.delivery.deployed import METADATA_KEY, deployment_of, session
from graph_rewrite.latency import Deployment, Effort, Latency
from graph_rewrite.replay import Recording, record
from graph_rewrite.replay import replay as replay_recording
from graph_rewrite.rewriting.session_choices import session_candidates
from graph_rewrite.task.problem import Problem, open_problem
from graph_rewrite.task.replay import replay
from tests.agents.planted_settings import FACTORS, planted
from tests.agents.toys import chain_problem
from tests.envs.fakes import write_tower
from tests.graph_rewrite.rules.checking import model

BUDGET = Budget(50, 60.0)


def started(problem: Problem, budget: Budget = BUDGET) -> Search:
    search = Search(problem, budget)
    search.measure(problem.model.graph, ())
    return search


def test_what_gains_is_kept_recorded_and_replayed(tmp_path: Path) -> None:
    problem = planted(tmp_path, FACTORS)
    search = started(problem)
    best = search_session(search)
    assert best is not None
    assert best == search.best
    assert best.graph.session_settings == (("enable_mem_pattern", False),)
    assert [action.rule for action in best.actions] == ["set enable_mem_pattern=false"]
    result = conclude(search, "test")
    assert result.verified
    assert result.latency.speedup == pytest.approx(1 / 0.9)
    assert result.checked.deployment == problem.deployment.with_settings({"enable_mem_pattern": False})
    assert replay(problem, [action.key for action in result.actions]).hash == result.graph.hash


def test_an_order_of_nodes_that_gains_is_kept_and_the_file_has_it(tmp_path: Path) -> None:
    problem = planted(tmp_path, {"node_order": 0.98}, file=write_branches(tmp_path / "branches.onnx"))
    search = started(problem)
    best = search_session(search)
    assert best is not None
    assert [action.rule for action in best.actions] == ["set node_order=last_input_first"]
    result = conclude(search, "test")
    assert result.verified
    assert not result.is_original
    assert result.checked.deployment == problem.deployment, "nothing to set where it runs"
    recording = record(problem.model.graph, problem.rewriter, result.actions, end=result.graph)
    again = Recording.from_json(json.loads(json.dumps(recording.to_json())))
    assert replay_recording(again, problem.model.graph, problem.rewriter).graph.hash == result.graph.hash
    file = result.checked.write_to(tmp_path / "found.onnx")
    listed = [node.op_type for node in onnx.load(file).graph.node]
    assert listed.index("Tanh") < listed.index("Relu")


def write_branches(path: Path) -> Path:
    """Write two branches and their sum."""
    return save(model("(float[2,4] x) => (y) { a = Relu(x) b = Tanh(x) y = Add(a, b) }"), path)


def test_luck_is_not_kept_and_cannot_win_later(tmp_path: Path) -> None:
    problem = planted(tmp_path, {}, luck={"enable_mem_pattern": 0.8})
    search = started(problem)
    best = search_session(search)
    assert best is not None
    assert best.graph.hash == problem.model.graph.hash
    assert set(search.visits) == {problem.model.graph.hash}
    assert conclude(search, "test").is_original


def test_a_gain_that_is_not_sure_is_not_kept(tmp_path: Path) -> None:
    problem = planted(tmp_path, {"enable_mem_pattern": 0.993})
    search = started(problem)
    search_session(search)
    assert len(search.visits) == 2  # a gain of 0.7% with an interval of 0.1% on either side is kept,
    problem = planted(tmp_path, {"enable_mem_pattern": 0.993})
    problem.meter.half = 0.003  # type: ignore[attr-defined]
    search = started(problem)
    search_session(search)
    assert len(search.visits) == 1  # and one with 0.3% is not


@pytest.mark.parametrize(("factor", "kept"), [(0.97, False), (0.9, True)])
def test_spinning_is_forbidden_for_a_large_gain_only(tmp_path: Path, factor: float, kept: bool) -> None:
    problem = planted(tmp_path, {"allow_spinning": factor})
    problem.deployment = Deployment(threads=2)
    best = search_session(started(problem))
    assert best is not None
    assert bool(best.graph.session_settings) == kept


def test_threads_are_chosen_where_they_are_free(tmp_path: Path) -> None:
    problem = planted(tmp_path, {"threads=4": 0.5, "threads=2": 0.7})
    assert search_session(started(problem)).graph.session_settings == ()  # type: ignore[union-attr]
    problem.thread_choices = (1, 2, 4)
    search = started(problem)
    best = search_session(search)
    assert best is not None
    assert dict(best.graph.session_settings) == {"threads": 4}
    assert problem.deployment.asked_by(best.graph).threads == 4


def test_settings_that_threads_make_possible_are_tried_after_them(tmp_path: Path) -> None:
    problem = planted(tmp_path, {"threads=2": 0.7, "allow_spinning": 0.9})
    problem.thread_choices = (1, 2)
    best = search_session(started(problem))
    assert best is not None
    assert dict(best.graph.session_settings) == {"threads": 2, "allow_spinning": False}


def test_nothing_happens_where_the_deployment_is_fixed(tmp_path: Path) -> None:
    problem = planted(tmp_path, FACTORS)
    problem.rewriter.deployment = False
    search = started(problem)
    assert search_session(search) is search.best
    assert len(problem.meter.measured) == 1  # type: ignore[attr-defined]


def test_nothing_happens_before_anything_was_measured_or_where_nothing_can_be_compared(tmp_path: Path) -> None:
    assert search_session(Search(planted(tmp_path, FACTORS), Budget())) is None
    problem = chain_problem(tmp_path, 1)
    problem.rewriter.deployment = True
    search = started(problem)
    search_session(search)
    assert len(problem.meter.measured) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("measurements", [1, 2, 3])
def test_the_budget_of_measurements_holds(tmp_path: Path, measurements: int) -> None:
    problem = planted(tmp_path, {})
    search_session(started(problem, Budget(measurements, 60.0)))
    assert len(problem.meter.measured) <= measurements  # type: ignore[attr-defined]


def test_the_share_of_the_time_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each measurement takes ten of a hundred seconds, by a planted clock."""
    now = [0.0]
    for module in ("agents.core.base", "agents.searching.session_search", "graph_rewrite.task.problem"):
        monkeypatch.setattr(f"{module}.unblocked_time", lambda: now[0])
    problem = planted(tmp_path, {})
    problem.thread_choices = (1, 2, 3, 4, 5)
    measure = problem.meter.measure

    def slow(graph: Graph, effort: Effort = "screen") -> Latency:
        now[0] += 10.0
        return measure(graph, effort)

    problem.meter.measure = slow  # type: ignore[method-assign]
    search = Search(problem, Budget(50, 110.0), _start=0.0)
    search.measure(problem.model.graph, ())
    search_session(search, share=0.25)
    assert len(problem.meter.measured) == 1 + 3  # type: ignore[attr-defined]
    assert search.seconds == pytest.approx(40.0)


def test_a_small_model_is_searched_for_real(tmp_path: Path) -> None:
    """Smoke: gains are the machine's affair; what comes out opens as recorded."""
    path = write_tower(tmp_path / "tower.onnx", 2, 32)
    problem = open_problem(f"file:{path}", provider="cpu", threads=1, cached=False, thread_choices=(1, 2))
    search = started(problem, Budget(50, 4.0))
    best = search_session(search, share=1.0)
    assert best is not None
    assert best.latency.ok
    assert not {action.rule for action in best.actions} - {
        candidate.label
        for start in (problem.model.graph, problem.model.graph.with_session_settings({"threads": 2}))
        for candidate in session_candidates(start, problem.deployment, (1, 2))
    }
    file = save(best.graph, tmp_path / "found.onnx", {METADATA_KEY: json.dumps(asked(problem, best.graph))})
    assert session(file).get_session_options().intra_op_num_threads in (1, 2)


def asked(problem: Problem, graph: Graph) -> dict[str, object]:
    return deployment_of(graph, problem.deployment).to_json()
