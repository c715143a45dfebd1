"""The search whose means know nothing of the model's family."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.core.registry import make_agent
from agents.effects.learning_means import MeansLearner
from agents.effects.prior import SHIPPED as MODEL
from agents.effects.prior import LearntPrior
from agents.effects.step_means import StepMeans
from agents.effects.stored import ChainPredictor, PlainPredictor, StoredEffects
from agents.ppo.description import DESCRIPTION
from agents.regional.prior import ProposingPrior
from benchmarks.protocol.searches import held_out
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
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.problem import open_problem
from tests.envs.fakes import count_operators, write_tower


@pytest.fixture
def tower(tmp_path: Path) -> str:
    return str(write_tower(tmp_path / "tower.onnx"))


def known(means: StepMeans) -> float:
    """Return how many timings means rest on."""
    return means.best.means.weight([""])


def trained_without(folder: Path, family: str) -> Path:
    """Return the folder of a policy and a model of effects that say so of themselves."""
    shutil.copytree("checkpoints/universal", folder)
    path = folder / DESCRIPTION
    path.write_text(json.dumps(json.loads(path.read_text()) | {"left_out": [family, "vit"]}))
    PlainPredictor.load(MODEL).stored.save(folder)
    return folder


def test_its_means_lack_the_family_and_nothing_else() -> None:
    table = WindowTable.load(SHIPPED)
    learner, kind = MeansLearner(table), processor_kind()
    everything = known(means_without(None, [learner], [table], kind))
    of_vgg = known(means_without("vgg", [learner], [table], kind))
    assert of_vgg < everything


def test_its_prior_was_learnt_without_the_family(tower: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = trained_without(tmp_path / "a" / "checkpoint", "vgg")
    table, problem = WindowTable.load(SHIPPED), open_problem(tower, cached=False)
    made, loaded = list[StepMeans](), list[Path]()

    class Noting(LearntPrior):
        def __init__(self, model: ChainPredictor, deployment: Deployment, means: StepMeans) -> None:
            super().__init__(model, deployment, means)
            made.append(means)

    def load(folder: Path) -> PlainPredictor:
        loaded.append(folder)
        return PlainPredictor(StoredEffects.load(folder))

    monkeypatch.setattr(held_out, "LearntPrior", Noting)
    monkeypatch.setattr(PlainPredictor, "load", load)
    for model, family, folder in (("csrnet", "vgg", here), ("vgg19", "vgg", here), ("densenet121", None, MODEL)):
        agent = held_out_regional(model, (SHIPPED,), tmp_path)
        assert agent.prior_for is not None
        assert isinstance(agent.prior_for(problem), Noting)
        means = means_without(family, [MeansLearner(table)], [table], processor_kind())
        assert (known(made[-1]), loaded[-1]) == (known(means), folder)


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
    one, other = (trained_without(tmp_path / name / "checkpoint", name) for name in ("bert", "vgg"))
    assert held_out_policy("vgg", tmp_path) == other
    assert held_out_policy("vit", tmp_path) == one
    assert held_out_policy(None, tmp_path).name == "universal"
    agent = held_out_ppo("csrnet", (SHIPPED,), tmp_path)
    assert agent.prior_for is not None
    problem = open_problem(tower, cached=False)
    prior = agent.prior_for(problem)
    assert isinstance(prior, ProposingPrior)
    assert isinstance(prior.others, LearntPrior)
    steps = list(problem.rewriter.candidates(problem.model.graph))[:3]
    assert len(prior.hopes(steps, 0.0, 0)) == 3


def test_without_such_a_policy_an_error_says_what_trains_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no policy was trained without the family nasnet; train some with: python -m"):
        held_out_policy("nasnet", tmp_path)
