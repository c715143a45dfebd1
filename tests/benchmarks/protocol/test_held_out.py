"""The search whose means know nothing of the model's family."""

from pathlib import Path
from typing import Any

import pytest

from agents.core.registry import make_agent
from agents.effects.learning_means import MeansLearner
from agents.effects.step_means import StepMeans
from agents.regional.agent import RegionalAgent
from benchmarks.protocol.searches import process as search_process
from benchmarks.protocol.searches.held_out import HELD_OUT, held_out_agent, means_without
from benchmarks.protocol.searches.process import conducted
from benchmarks.protocol.searches.runs import DONE, Run
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.latency.device import processor_kind
from tests.envs.fakes import count_operators, write_tower


@pytest.fixture
def tower(tmp_path: Path) -> str:
    return str(write_tower(tmp_path / "tower.onnx"))


def known(means: StepMeans) -> float:
    """Return how many timings means rest on."""
    return means.best.means.weight([""])


def test_its_means_lack_the_family_and_nothing_else() -> None:
    table = WindowTable.load(SHIPPED)
    learner, kind = MeansLearner(table), processor_kind()
    everything = known(means_without(None, [learner], [table], kind))
    of_vgg = known(means_without("vgg", [learner], [table], kind))
    assert of_vgg < everything
    for model, expected in (("csrnet", of_vgg), ("vgg19", of_vgg), ("densenet121", everything)):
        agent = held_out_agent(model, (SHIPPED,))
        assert isinstance(agent, RegionalAgent)
        assert agent.prior_for is not None
        problem: Any = None
        means = agent.prior_for(problem)
        assert isinstance(means, StepMeans)
        assert known(means) == expected


def test_the_control_runs_in_the_place_of_an_agent(tower: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noting(model: str) -> Any:
        asked.append(model)
        return make_agent("greedy")

    monkeypatch.setattr(search_process, "held_out_agent", noting)
    monkeypatch.setattr(search_process, "make_agent", lambda spec: pytest.fail("there is no such agent"))
    found = conducted(Run(tower, "regional-held-out", HELD_OUT, 0, 30.0), tmp_path / "run", count_operators)
    assert found["status"] == DONE
    assert asked == [tower]
