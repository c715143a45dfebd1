"""Agents by name: ours, those of other packages, and options in a spec."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import agents.core.registry as registry
from agents.conclusion.conclude import conclude
from agents.core.base import Budget, OptimizationResult, Search
from agents.core.registry import AGENTS, agent_names, make_agent
from graph_rewrite.task.problem import Problem
from tests.agents.toys import chain_problem

THIRD_PARTY = '''
from agents import Budget, OptimizationResult, Search
from agents.conclusion.conclude import conclude


class FirstAgent:
    """Applies the first candidate until there is none."""

    name = "first"

    def __init__(self, steps: int = 2) -> None:
        self.steps = steps

    def optimize(self, problem, budget, *, seed=0, progress=None):
        search = Search(problem, budget, progress)
        graph, actions = problem.model.graph, ()
        for _ in range(self.steps):
            if search.exhausted:
                break
            from agents.core.base import action_of
            candidate = problem.rewriter.candidates(graph)[0]
            graph, actions = search.apply(candidate), (*actions, action_of(candidate))
            search.measure(graph, actions)
        return conclude(search, self.name)
'''


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that registers agents `first`, `greedy` and one that cannot be imported, as if it were installed."""
    (tmp_path / "thirdparty_agents.py").write_text(THIRD_PARTY)
    info = tmp_path / "thirdparty-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thirdparty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rewritegym.agents]\nfirst = thirdparty_agents:FirstAgent\n"
        "greedy = thirdparty_agents:FirstAgent\nbroken = no_such_module:Agent\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("third_party")
def test_another_package_adds_an_agent(tmp_path: Path) -> None:
    assert {"first", "broken"} <= set(agent_names())
    result = make_agent("first").optimize(chain_problem(tmp_path, 1), Budget())
    assert result.agent == "first"
    assert result.measurements == 2
    assert make_agent("first:steps=1").optimize(chain_problem(tmp_path, 1), Budget()).measurements == 1


@pytest.mark.usefixtures("third_party")
def test_ours_keep_their_names_and_a_broken_one_harms_no_other() -> None:
    assert type(make_agent("greedy")).__module__ == "agents.greedy"
    with pytest.raises(RuntimeError, match="agent broken of another package"):
        make_agent("broken")


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_every_agent_of_ours_can_be_made_and_bears_its_name(name: str) -> None:
    agent = make_agent(name)
    assert agent.name == name
    assert callable(agent.optimize)


def test_agents_are_imported_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def record(module: str) -> Any:
        loaded.append(module)
        return sys.modules[module]

    make_agent("random")
    monkeypatch.setattr(registry, "import_module", record)
    make_agent("random")
    agent_names()
    assert loaded == ["agents.random_agent"]


def test_options_have_the_type_of_their_defaults() -> None:
    agent: Any = make_agent("taso:alpha=inf,rerank=3,deployment=false")
    assert (agent.alpha, agent.rerank, agent.deployment) == (float("inf"), 3, False)
    assert agent.name == "taso:alpha=inf,rerank=3,deployment=false"
    mixed: Any = make_agent("greedy:beam=3", lookahead=2)
    assert (mixed.beam, mixed.lookahead, mixed.name) == (3, 2, "greedy:beam=3")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("greedy:beem=3", "no option beem; there are: margin, round_share, beam"),
        ("greedy:beam=two", "beam must be a whole number, not 'two'"),
        ("greedy:beam", "name:key=value"),
        ("greedy:beam=", "name:key=value"),
        ("taso:alpha=wide", "alpha must be a number"),
        ("taso:deployment=perhaps", "deployment must be true or false"),
        ("greedy:beam=0", "beam and depth must be 1 or more"),
        ("random:horizon=0", "horizon and measure_every must be at least 1"),
        ("random:measure_every=0", "horizon and measure_every must be at least 1"),
        ("mcts:selection=ucb", "selection must be one of auto, uct, puct"),
        ("gready:beam=2", "there is no agent 'gready'"),
    ],
)
def test_wrong_specs_say_what_is_wrong(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_agent(spec)


def test_an_agent_that_takes_any_option_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Flexible:
        name = "flexible"

        def __init__(self, **options: object) -> None:
            self.options = options

        def optimize(self, problem: Problem, budget: Budget, **more: Any) -> OptimizationResult:
            return conclude(Search(problem, budget), self.name)

    monkeypatch.setitem(sys.modules, "flexible_agents", type(sys)("flexible_agents"))
    sys.modules["flexible_agents"].Flexible = Flexible  # type: ignore[attr-defined]
    points = {"flexible": EntryPoint("flexible", "flexible_agents:Flexible", registry.GROUP)}
    monkeypatch.setattr(registry, "_plugins", lambda: points)
    agent: Any = make_agent("flexible:speed=3,colour=red")
    assert agent.options == {"speed": 3, "colour": "red"}
