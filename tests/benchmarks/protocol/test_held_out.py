"""The search whose means know nothing of the model's family."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.core.registry import make_agent
from agents.effects.learning_means import MeansLearner
from agents.effects.step_means import StepMeans
from agents.ppo.description import DESCRIPTION
from agents.regional.agent import RegionalAgent
from agents.regional.prior import ProposingPrior
from benchmarks.protocol.searches import process as search_process
from benchmarks.protocol.searches.held_out import (
    HELD_OUT,
    MAKERS,
    held_out_policy,
    held_out_ppo,
    held_out_regional,
    means_without,
)
from benchmarks.protocol.searches.process import conducted
from benchmarks.protocol.searches.runs import DONE, Run
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.errors import UserError
from graph_rewrite.latency.device import processor_kind
from graph_rewrite.task.problem import open_problem
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
        agent = held_out_regional(model, (SHIPPED,))
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

    monkeypatch.setitem(MAKERS, HELD_OUT, noting)
    monkeypatch.setattr(search_process, "make_agent", lambda spec: pytest.fail("there is no such agent"))
    found = conducted(Run(tower, "regional-held-out", HELD_OUT, 0, 30.0), tmp_path / "run", count_operators)
    assert found["status"] == DONE
    assert asked == [tower]


def test_its_policy_was_trained_without_the_family(tower: str, tmp_path: Path) -> None:
    for name, left_out in (("a", "bert"), ("b", "vgg")):
        shutil.copytree("checkpoints/universal", tmp_path / name / "checkpoint")
        path = tmp_path / name / "checkpoint" / DESCRIPTION
        path.write_text(json.dumps(json.loads(path.read_text()) | {"left_out": [left_out, "vit"]}))
    assert held_out_policy("vgg", tmp_path) == tmp_path / "b" / "checkpoint"
    assert held_out_policy("vit", tmp_path) == tmp_path / "a" / "checkpoint"
    assert held_out_policy(None, tmp_path).name == "universal"
    agent = held_out_ppo("csrnet", (SHIPPED,), tmp_path)
    assert agent.prior_for is not None
    problem = open_problem(tower, cached=False)
    prior = agent.prior_for(problem)
    assert isinstance(prior, ProposingPrior)
    table = WindowTable.load(SHIPPED)
    assert isinstance(prior.means, StepMeans)
    assert known(prior.means) == known(means_without("vgg", [MeansLearner(table)], [table], processor_kind()))
    steps = list(problem.rewriter.candidates(problem.model.graph))[:3]
    assert len(prior.hopes(steps, 0.0, 0)) == 3


def test_without_such_a_policy_an_error_says_what_trains_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no policy was trained without the family nasnet; train some with: python -m"):
        held_out_policy("nasnet", tmp_path)
