"""The memory of results in an optimisation: the second search of an architecture finds the first one's result at once.
Latencies are planted: a weighted number of operators."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.conclusion import recordings
from agents.conclusion.recordings import actions_file
from agents.core.base import Action
from agents.optimization import circumstances, remembering, run
from graph_rewrite.latency.cache import default_cache_path
from graph_rewrite.replay import RecordedStep, Recording, Replay, read_recording
from graph_rewrite.replay.memory import ResultMemory
from graph_rewrite.task.problem import Problem, open_problem
from tests.agents.commands.test_apply import outputs
from tests.agents.optimization.planted import Optimize, PlantedAgent
from tests.envs.fakes import OperatorCountMeter

CHOICES = (("1", "enable_mem_pattern"), ("2", "enable_cpu_mem_arena"))


class TestSecondSearch:
    def test_other_weights_need_no_search(self, optimize: Optimize, agent: PlantedAgent, tmp_path: Path) -> None:
        first, second = optimize(1), optimize(2)
        assert first.speedup > 1.0
        assert len(agent.searched) == 1
        assert second.result.agent == remembering.NAME
        assert second.verified
        assert second.speedup == pytest.approx(first.speedup)
        assert "remembered from an earlier search of 60 s" in second.result.message
        written = second.save(tmp_path / "fast.onnx")
        assert written is not None
        expected = outputs(tmp_path / "network2.onnx")
        assert np.allclose(outputs(written, deployed=True), expected, atol=1e-5)

    def test_the_remembered_result_is_measured_and_not_believed(
        self, optimize: Optimize, agent: PlantedAgent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        optimize(1)
        slow = OperatorCountMeter.measure

        def slower(meter: OperatorCountMeter, graph: Any, effort: Any = "screen") -> Any:
            found = slow(meter, graph, effort)
            return found if found.speedup <= 1.0 else type(found).failed("crash", "not today")

        monkeypatch.setattr(OperatorCountMeter, "measure", slower)
        found = optimize(2)
        assert len(agent.searched) == 2
        assert found.result.is_original

    def test_outputs_that_differ_are_not_delivered(
        self, optimize: Optimize, agent: PlantedAgent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        optimize(1)
        monkeypatch.setattr(remembering, "saved_and_checked", wrong_outputs(remembering.saved_and_checked))
        assert optimize(2).result.agent != remembering.NAME
        assert len(agent.searched) == 2

    @pytest.mark.parametrize(
        "change",
        [{"standard_ops_only": True}, {"max_size_growth": 2.0}, {"rules": "default,taso"}, {"fixed_deployment": True}],
    )
    def test_other_limits_only_begin_with_it(
        self, optimize: Optimize, agent: PlantedAgent, change: dict[str, Any]
    ) -> None:
        optimize(1)
        optimize(2, **change)
        assert [len(starts) for starts in agent.searched] == [0, 1]

    @pytest.mark.parametrize("name", ["device", "onnxruntime"])
    def test_another_machine_or_version_only_begins_with_it(
        self, optimize: Optimize, agent: PlantedAgent, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        optimize(1)
        here = recordings.environment("cpu")
        monkeypatch.setattr(circumstances, "environment", lambda provider: {**here, name: "another"})
        optimize(2)
        assert [len(starts) for starts in agent.searched] == [0, 1]

    def test_a_longer_time_limit_searches_on(self, optimize: Optimize, agent: PlantedAgent) -> None:
        optimize(1, time_limit="30s")
        optimize(2, time_limit="60s")
        assert [len(starts) for starts in agent.searched] == [0, 1]
        optimize(3, time_limit="60s")
        assert len(agent.searched) == 2

    def test_search_again_begins_with_it(self, optimize: Optimize, agent: PlantedAgent) -> None:
        optimize(1)
        optimize(2, search_again=True)
        assert [len(starts) for starts in agent.searched] == [0, 1]

    def test_the_time_limit_holds_for_the_recording_too(
        self, optimize: Optimize, agent: PlantedAgent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """To record a result takes about as long as to replay the one that the search begins with."""
        optimize(1)
        replayed = remembering.replay

        def slowly(*arguments: Any, **options: Any) -> Replay:
            time.sleep(1.0)
            return replayed(*arguments, **options)

        monkeypatch.setattr(remembering, "replay", slowly)
        optimize(2, search_again=True)
        before, after = (budget.seconds for budget in agent.budgets)
        assert after < before - 1.5, "a second for the replay, and one for the recording"

    def test_without_memory(self, optimize: Optimize, agent: PlantedAgent) -> None:
        optimize(1, memory=False)
        optimize(2)
        optimize(3, memory=False)
        optimize(4, agent="greedy")
        assert [len(starts) for starts in agent.searched] == [0, 0, 0, 0]

    def test_a_search_that_was_ended_counts_the_time_it_had(self, optimize: Optimize, agent: PlantedAgent) -> None:
        agent.end_at_once = True
        optimize(1)
        agent.end_at_once = False
        optimize(2)
        assert len(agent.searched) == 2

    def test_a_corrupt_memory_is_no_obstacle(self, optimize: Optimize, agent: PlantedAgent) -> None:
        optimize(1)
        for file in ResultMemory().folder.iterdir():
            file.write_text("{")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            assert optimize(2).speedup > 1.0
        assert len(agent.searched) == 2


class TestRecordedActions:
    def test_in_the_json_and_beside_the_file(self, optimize: Optimize, tmp_path: Path) -> None:
        found = optimize(1)
        written = found.save(tmp_path / "fast.onnx")
        assert written is not None
        beside = read_recording(actions_file(written))
        assert [step.rule for step in beside.steps] == [action.rule for action in found.result.actions]
        assert beside.model == "network1.onnx"
        (tmp_path / "result.json").write_text(json.dumps(found.to_json()))
        assert read_recording(tmp_path / "result.json").steps == beside.steps

    def test_of_an_original_that_is_kept(
        self, optimize: Optimize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing = dict.fromkeys(("MatMul", "Gemm", "Conv", "FusedMatMul"), "crash")
        monkeypatch.setattr(
            run,
            "open_problem",
            lambda *a, **o: open_problem(*a, **o, meter=lambda m, *_: OperatorCountMeter(m.original, failing)),
        )
        found = optimize(1)
        assert found.result.is_original
        assert found.save(tmp_path / "kept.onnx") is not None
        recording = read_recording(actions_file(tmp_path / "kept.onnx"))
        assert recording.steps == ()
        assert recording.model == "network1.onnx"


def wrong_outputs(check: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison that finds a difference."""

    def checked(problem: Problem, graph: Any) -> Any:
        model = check(problem, graph)
        outcome = type(model.outcome)(False, 1.0, model.outcome.tolerance, "y differs")
        return type(model)(model.path, model.deployment, outcome, model.digests)

    return checked


class TestPathBySteps:
    """The recording of two rewrites and of choices of the deployment, which are one step however many they are."""

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            (((1, 1.1), (2, 1.2), (4, 1.4)), ((1, 1.1), (2, 1.2), (3, 1.4))),
            (((2, 1.2), (3, 1.3)), ((2, 1.2),)),
            ((), ()),
        ],
    )
    def test_counts_choices_of_the_deployment_once(self, optimize: Optimize, path: Any, expected: Any) -> None:
        result = optimize(1).result
        first, second, *_ = result.actions
        actions = (first, second, *(Action(key, rule, "", 1) for key, rule in CHOICES))
        step = RecordedStep(first.rule, "class", 1)
        steps = (step, replace(step, rule=second.rule), replace(step, rule="the settings"))
        found = remembering.path_by_steps(replace(result, actions=actions, path=path), Recording(steps))
        assert found == expected

    def test_savings_of_a_remembered_result_are_told(self, optimize: Optimize, monkeypatch: pytest.MonkeyPatch) -> None:
        optimize(1)
        [file] = default_cache_path().with_name("results").glob("*.json")
        remembered = json.loads(file.read_text())
        assert [count for count, _ in remembered["path"]][-1] == len(remembered["actions"]["steps"])
        remembered["path"].pop()
        file.write_text(json.dumps(remembered))
        found = optimize(2)
        assert found.result.agent == remembering.NAME
        assert [rewrite["saved_ms"] for rewrite in found.to_json()["rewrites"]] == [None] * len(found.result.actions)
