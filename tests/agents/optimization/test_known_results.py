"""The fate of known results: the better is kept, one that does not gain is given up, one from elsewhere is checked,
and those that come with RewriteGym are begun with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.core.paths import known_results
from agents.optimization import remembering
from agents.optimization.options import OptimizeOptions
from agents.optimization.remembering import KnownStart, ResultRecall
from agents.optimization.run import optimize_model
from graph_rewrite.latency.device import device_name
from graph_rewrite.replay.memory import ResultMemory, file_name
from graph_rewrite.replay.remembered import RememberedResult
from graph_rewrite.system.deadline import OutOfTime, seconds_left
from graph_rewrite.task.problem import open_problem
from tests.agents.optimization.planted import LIMIT, Optimize, PlantedAgent
from tests.agents.optimization.test_remembering import wrong_outputs
from tests.envs.fakes import OperatorCountMeter
from tests.graph_rewrite.replay.models import write_network
from tests.graph_rewrite.symbolic.dynamic_models import transformer


def remembered() -> list[dict[str, Any]]:
    """Return what the memory holds."""
    return [json.loads(file.read_text()) for file in sorted(ResultMemory().folder.glob("*.json"))]


class TestTheBetterIsKept:
    def test_a_slower_result_of_a_later_search_does_not_replace_it(
        self, optimize: Optimize, agent: PlantedAgent
    ) -> None:
        optimize(1, time_limit="30s")
        [file] = ResultMemory().folder.glob("*.json")
        values = remembered()[0]
        better, steps = values | {"speedup": 5.0, "path": []}, values["actions"]["steps"][:-1]
        better["actions"]["steps"] = steps
        file.write_text(json.dumps(better))
        assert 1.0 < optimize(2).speedup < 5.0
        [kept] = remembered()
        assert (kept["speedup"], kept["actions"]["steps"]) == (5.0, steps)
        assert kept["seconds"] == 60.0, "the longer search found nothing better"

    def test_one_that_gains_less_now_is_corrected(
        self, optimize: Optimize, agent: PlantedAgent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        optimize(1)
        [file] = ResultMemory().folder.glob("*.json")
        true = remembered()[0]["speedup"]
        file.write_text(json.dumps(remembered()[0] | {"speedup": 10.0}))
        agent.measurements = 3
        optimize(2)
        assert len(agent.searched) == 2
        assert remembered()[0]["speedup"] == pytest.approx(true)


class TestFailures:
    def test_what_does_not_gain_is_not_tried_forever(
        self, optimize: Optimize, agent: PlantedAgent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        optimize(1)
        measure, confirmed = OperatorCountMeter.measure, list[KnownStart]()

        def nothing_gains(meter: OperatorCountMeter, graph: Any, effort: Any = "screen") -> Any:
            found = measure(meter, graph, effort)
            return found if found.speedup <= 1.0 else type(found)(1.0, 0.9, (0.9, 0.9), 1, 1.0)

        confirm = ResultRecall.confirmed

        def counted(recall: ResultRecall, start: KnownStart, *more: Any) -> Any:
            confirmed.append(start)
            return confirm(recall, start, *more)

        monkeypatch.setattr(OperatorCountMeter, "measure", nothing_gains)
        monkeypatch.setattr(ResultRecall, "confirmed", counted)
        agent.measures_starts = True
        for seed in range(2, 7):
            assert optimize(seed).result.is_original
        assert [len(starts) for starts in agent.searched] == [0, 1, 1, 1, 0, 0]
        assert len(confirmed) == 1, "one that failed is no more measured with care before the search"

    def test_outputs_that_differ_count(
        self, optimize: Optimize, agent: PlantedAgent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        optimize(1)
        monkeypatch.setattr(remembering, "saved_and_checked", wrong_outputs(remembering.saved_and_checked))
        agent.measurements = 0
        optimize(2)
        assert list(remembered()[0]["failures"].values()) == [1]


class TestFromElsewhere:
    """A remembered result whose deployment cannot be made here."""

    @staticmethod
    def add_choice(rule: str, **more: Any) -> None:
        """Append a choice of the deployment to what is remembered."""
        [file] = ResultMemory().folder.glob("*.json")
        values = remembered()[0]
        values["actions"]["steps"].append({"rule": rule, "kind": "deployment", "sites": 1, "refused": [], **more})
        file.write_text(json.dumps(values))

    @pytest.mark.parametrize("rule", ["set threads=2", "the settings"])
    def test_threads_that_are_not_left_open_are_not_chosen(
        self, optimize: Optimize, agent: PlantedAgent, rule: str
    ) -> None:
        optimize(1)
        self.add_choice(rule, settings={"threads": 2, "enable_mem_pattern": False})
        assert optimize(2).speedup > 1.0
        [[start]] = agent.searched[1:]
        assert dict(start.graph.session_settings) == {"enable_mem_pattern": False}

    @pytest.mark.parametrize("settings", [{"optimized_model_filepath": "/tmp/x"}, {"enable_mem_pattern": "perhaps"}])
    def test_settings_that_there_are_not_are_refused(
        self, optimize: Optimize, agent: PlantedAgent, settings: dict[str, Any]
    ) -> None:
        optimize(1)
        self.add_choice("the settings", settings=settings)
        with pytest.warns(RuntimeWarning, match="a remembered result was corrupt .the step of rule the settings"):
            optimize(2)
        assert [len(starts) for starts in agent.searched] == [0, 0]


class TestShippedResults:
    """A result that comes with RewriteGym."""

    @pytest.fixture
    def shipped(self, optimize: Optimize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The file of one, for the network, and an empty memory."""
        optimize(1)
        folder = tmp_path / "shipped"
        shutil.move(ResultMemory().folder, folder)
        monkeypatch.setattr(remembering, "known_results", lambda: folder)
        [file] = folder.glob("*.json")
        values = json.loads(file.read_text())
        file.write_text(json.dumps(values | {"context": {"model": "network"}, "seconds": 0.0}))
        return file

    def test_is_where_a_search_of_the_architecture_begins(
        self, shipped: Path, optimize: Optimize, agent: PlantedAgent
    ) -> None:
        before = shipped.read_bytes()
        optimize(2)
        [[start]] = agent.searched[1:]
        assert isinstance(start, KnownStart)
        assert start.complete
        assert not start.is_enough(0.0), "it was not found on this machine"
        assert shipped.read_bytes() == before
        optimize(3)
        assert len(agent.searched) == 2, "now the user's own result is enough"

    def test_and_of_other_sizes(self, shipped: Path, agent: PlantedAgent, tmp_path: Path) -> None:
        path = write_network(tmp_path / "wide.onnx", batch=7)
        optimize_model(path, OptimizeOptions(time_limit=LIMIT, threads="1"))
        [[start]] = agent.searched[1:]
        assert isinstance(start, KnownStart)
        assert start.complete

    def test_not_of_another_provider(self, shipped: Path, optimize: Optimize, agent: PlantedAgent) -> None:
        values = json.loads(shipped.read_text())
        values["actions"]["deployment"]["provider"] = "cuda"
        shipped.write_text(json.dumps(values))
        optimize(2)
        assert [len(starts) for starts in agent.searched] == [0, 0]

    def test_those_of_this_machine_first(self, shipped: Path, optimize: Optimize, agent: PlantedAgent) -> None:
        values = json.loads(shipped.read_text())
        shipped.unlink()
        for number, device in enumerate((device_name("cpu"), "another machine")):
            context = {"found_by": "optimize", "device": device, "provider": "cpu", "threads": 1}
            actions = values["actions"] | {"steps": values["actions"]["steps"][: number + 1]}
            changed = values | {"context": context, "speedup": 2.0 + number, "actions": actions, "path": []}
            result = RememberedResult.from_json(changed)
            (shipped.parent / file_name(result.recording, result.context)).write_text(json.dumps(changed))
        optimize(2)
        [starts] = agent.searched[1:]
        assert [start.remembered.speedup for start in starts if isinstance(start, KnownStart)] == [2.0, 3.0]
        assert [start.without is None for start in starts] == [True, False], "what was found here is not fitted"

    def test_not_without_memory(self, shipped: Path, optimize: Optimize, agent: PlantedAgent) -> None:
        optimize(2, memory=False)
        assert [len(starts) for starts in agent.searched] == [0, 0]

    def test_a_damaged_one_is_passed_over(
        self, shipped: Path, optimize: Optimize, agent: PlantedAgent, recwarn: pytest.WarningsRecorder
    ) -> None:
        shipped.write_text("{")
        optimize(2)
        assert [len(starts) for starts in agent.searched] == [0, 0]
        assert shipped.read_text() == "{"
        assert len(recwarn) == 0

    def test_replaying_it_takes_no_more_than_its_share(
        self, shipped: Path, optimize: Optimize, agent: PlantedAgent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left = list[float]()

        def slow(*arguments: Any, **options: Any) -> Any:
            left.append(seconds_left())
            raise OutOfTime("the time limit is reached")

        monkeypatch.setattr(remembering, "replay", slow)
        assert optimize(2).speedup > 1.0
        assert [len(starts) for starts in agent.searched] == [0, 0]
        assert 0.0 < left[0] <= 0.1 * 60.0


def test_a_symbolic_model_with_other_weights_needs_no_search(agent: PlantedAgent, tmp_path: Path) -> None:
    found = []
    for seed in (0, 1):
        path = transformer(tmp_path / f"t{seed}.onnx", layers=1, seed=seed)
        found.append(optimize_model(path, OptimizeOptions(time_limit=LIMIT, threads="1", shape=("ids:1,24",))))
    first, second = found
    assert len(agent.searched) == 1
    assert second.result.agent == remembering.NAME
    assert second.verified
    assert second.dynamic["symbolic"]
    assert len(second.dynamic["verified_at"]) >= 5
    assert second.speedup == pytest.approx(first.speedup)
    assert second.speedup > 1.0


class TestResultsOfThisInstallation:
    def test_are_whole_and_lie_where_they_are_looked_for(self) -> None:
        files = sorted(known_results().iterdir())
        assert len(files) > 30
        for file in files:
            result = RememberedResult.from_json(json.loads(file.read_text()))
            assert file.name == file_name(result.recording, result.context)
            assert result.speedup > 1.0
            assert result.recording.deployment == {name: result.context[name] for name in ("provider", "threads")}
            assert all(step.kind == "deployment" or len(step.at) == step.sites for step in result.recording.steps)
        assert {result_model(file) for file in files} >= {"bert", "bert-tiny", "resnet18", "vgg19", "nasnet-a"}

    def test_fit_the_architecture(self, tmp_path: Path) -> None:
        problem = open_problem(
            "zoo://bert-tiny?seq_len=64", provider="cpu", threads=1, cached=False,
            meter=lambda model, *_: OperatorCountMeter(model.original),
        )  # fmt: skip
        recall = ResultRecall(problem, OptimizeOptions(threads="1"), ResultMemory(tmp_path))
        assert recall.starts() == []
        starts = recall.shipped_starts([])
        assert len(starts) == 2
        for start in starts:
            assert start.complete
            assert start.graph.hash != problem.model.graph.hash
            assert not start.is_enough(0.0)
        assert starts[0].remembered.recording.deployment["threads"] == 1


def result_model(file: Path) -> str:
    """The model of the zoo that a shipped result was found for."""
    model = str(json.loads(file.read_text())["actions"]["model"])
    return model.removeprefix("zoo://").partition("?")[0]
