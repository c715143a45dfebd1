"""Problems: what is shared within a process, what is remembered, and where files lie."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from envs import open_problem
from graph_rewrite.errors import InvalidRewriteError, MachineError
from graph_rewrite.latency import BaselineError, Deployment, OrtMeter
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.workspace import VARIABLE, remove_abandoned, roomiest, workspace
from tests.envs.conftest import MakeEnv
from tests.envs.fakes import OperatorCountMeter, count_operators, write_tower
from tests.graph_rewrite.sample_models import parsed

ROOT = Path(__file__).resolve().parents[3]


class TestProblem:
    def test_measures_each_graph_once_per_effort(self, tower: str, make_env: MakeEnv) -> None:
        problem = open_problem(tower, provider="cpu", meter=count_operators)
        graph = problem.model.graph
        first = problem.measure(graph)
        assert problem.measure(graph) is first
        assert problem.measurements == 1
        problem.measure(graph, "full")
        assert problem.measurements == 2

    def test_what_cannot_be_built_is_a_failed_latency(self, tower: str, make_env: MakeEnv) -> None:
        problem = open_problem(tower, provider="cpu", meter=count_operators)

        class Unbuildable(OperatorCountMeter):
            def measure(self, graph: Any, effort: Any = "screen") -> Any:
                raise InvalidRewriteError("Reshape over constants gave another shape")

        broken = Problem(
            problem.model, problem.rewriter, Unbuildable(problem.model.original), problem.deployment, problem.workspace
        )
        latency = broken.measure(problem.model.graph)
        assert latency.status == "error"
        assert "another shape" in latency.message

    def test_a_bug_of_the_meter_goes_through(self, tower: str, make_env: MakeEnv) -> None:
        problem = open_problem(tower, provider="cpu", meter=count_operators)

        class Faulty(OperatorCountMeter):
            def measure(self, graph: Any, effort: Any = "screen") -> Any:
                raise ValueError("too many values to unpack")

        broken = Problem(
            problem.model, problem.rewriter, Faulty(problem.model.original), problem.deployment, problem.workspace
        )
        with pytest.raises(ValueError, match="too many values"):
            broken.measure(problem.model.graph)

    def test_faults_of_rules_belong_to_the_problem_that_met_them(self, tower: str, make_env: MakeEnv) -> None:
        first = open_problem(tower, provider="cpu", meter=count_operators)
        assert first.rewriter.faults is not None
        first.rewriter.faults.record("Faulty", ValueError("a bug"))
        second = open_problem(tower, provider="cpu", meter=count_operators)
        assert second.rewriter is first.rewriter
        second.rewriter.faults.record("Faulty", ValueError("a bug"))
        second.rewriter.faults.record("Other", ValueError("another"))
        assert first.rule_faults.counts == {"Faulty": 2, "Other": 1}
        assert second.rule_faults.counts == {"Faulty": 1, "Other": 1}
        assert "ValueError: another" in second.rule_faults.tracebacks["Other"]

    def test_meters_and_models_that_are_shared_are_bounded(self, tower: str, make_env: MakeEnv) -> None:
        first = open_problem(tower, provider="cpu")
        for threads in range(2, 12):
            open_problem(tower, provider="cpu", threads=threads)
        again = open_problem(tower, provider="cpu")
        assert again.meter is not first.meter
        assert again.model is first.model

    def test_a_baseline_that_cannot_run_is_an_error(self, tower: str, make_env: MakeEnv) -> None:
        problem = open_problem(tower, provider="cpu", meter=count_operators)

        class NoBaseline(OperatorCountMeter):
            def measure(self, graph: Any, effort: Any = "screen") -> Any:
                raise BaselineError("the baseline model cannot be measured")

        broken = Problem(
            problem.model, problem.rewriter, NoBaseline(problem.model.original), problem.deployment, problem.workspace
        )
        with pytest.raises(BaselineError):
            broken.measure(problem.model.graph)

    def test_model_rewriter_and_meter_are_shared(self, tower: str, make_env: MakeEnv) -> None:
        first, second = open_problem(tower, provider="cpu"), open_problem(tower, provider="cpu")
        assert isinstance(first.meter, OrtMeter)
        assert first.meter is second.meter
        assert first.model is second.model
        assert first.rewriter is second.rewriter
        assert open_problem(tower, provider="cpu", threads=2).meter is not first.meter
        assert open_problem(tower, provider="cpu", granularity="site").rewriter is not first.rewriter

    def test_deployment(self, tower: str, make_env: MakeEnv) -> None:
        problem = open_problem(tower, provider="cpu", threads=2, meter=count_operators)
        assert problem.deployment == Deployment("cpu", 2)

    def test_end_to_end_in_onnx_runtime(self, tower: str, make_env: MakeEnv) -> None:
        env = make_env(meter=None, horizon=2, feedback_every=1)
        env.reset()
        _, reward, _, _, info = env.step(
            next(k for k, c in enumerate(env.candidates) if c.rule == "ComposeTransposes" and c.kind == "class")
        )
        assert info["measured"]
        assert info["failure"] == ""
        assert info["latency_ms"] > 0
        assert reward == pytest.approx((1 - 1 / info["speedup"]) * 100)
        env.problem.meter.close()


class TestWorkspace:
    def test_one_named_by_the_user_is_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(VARIABLE, str(tmp_path / "mine"))
        assert workspace() == tmp_path / "mine"
        assert (tmp_path / "mine").is_dir()

    def test_place_with_enough_room_is_preferred(self, tmp_path: Path) -> None:
        first, second = tmp_path / "a", tmp_path / "b"
        first.mkdir()
        second.mkdir()
        assert roomiest([tmp_path / "missing", first, second], wanted=1) == first
        assert roomiest([first, second], wanted=1 << 62) in (first, second)
        with pytest.raises(MachineError, match=VARIABLE):
            roomiest([tmp_path / "missing"])

    def test_children_share_it_and_it_goes_with_its_maker(self, tmp_path: Path) -> None:
        code = (
            "import subprocess, sys\n"
            "from graph_rewrite.task.workspace import workspace\n"
            "here = workspace()\n"
            "child = 'from graph_rewrite.task.workspace import workspace; print(workspace())'\n"
            "there = subprocess.check_output([sys.executable, '-c', child], text=True).strip()\n"
            "print(here, there, here.is_dir())"
        )
        here, there, existed = run_python(code, tmp_path).stdout.split()
        assert here == there
        assert existed == "True"
        assert Path(here).parent == tmp_path
        assert not Path(here).exists()

    def test_child_processes_of_multiprocessing_remove_theirs(self, tmp_path: Path) -> None:
        code = (
            "import multiprocessing\n"
            "from graph_rewrite.task.workspace import workspace\n"
            "if __name__ == '__main__':\n"
            "    process = multiprocessing.get_context('fork').Process(target=workspace)\n"
            "    process.start(); process.join(); print(process.exitcode)"
        )
        assert run_python(code, tmp_path).stdout.strip() == "0"
        assert not list(tmp_path.glob("rewritegym-work-*"))

    def test_interrupt_removes_it(self, tmp_path: Path) -> None:
        folder, process = start_and_wait(tmp_path)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        assert not folder.exists()

    def test_what_a_killed_process_left_is_removed_later(self, tmp_path: Path) -> None:
        folder, process = start_and_wait(tmp_path)
        remove_abandoned(tmp_path)
        assert folder.exists(), "its process still runs"
        process.kill()
        process.wait(timeout=30)
        assert folder.exists()
        remove_abandoned(tmp_path)
        assert not folder.exists()


def run_python(code: str, temporary: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment(temporary), capture_output=True, text=True, timeout=60, check=True
    )


def start_and_wait(temporary: Path) -> tuple[Path, subprocess.Popen[str]]:
    """A process that has made a workspace and sleeps."""
    code = (
        "import time; from graph_rewrite.task.workspace import workspace as w; print(w(), flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment(temporary), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return Path(process.stdout.readline().strip()), process


def environment(temporary: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return {**kept, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(("provider", "opset"), [("cpu", 23), ("cuda", 20)])
def test_models_are_raised_to_the_opset_that_the_provider_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str, opset: int
) -> None:
    monkeypatch.setattr("graph_rewrite.task.problem.resolve_provider", lambda wanted: wanted)
    path = write_tower(tmp_path / "tower.onnx", 1, 4)
    model = onnx.load(path)
    model.opset_import[0].version = 18
    onnx.save(model, path)
    assert open_problem(f"file:{path}", provider=provider, meter=count_operators).model.graph.opset == opset
    asked = open_problem(f"file:{path}", provider=provider, meter=count_operators, target_opset=21)
    assert asked.model.graph.opset == 21


def test_models_that_differ_in_names_alone_are_measured_by_their_own(tmp_path: Path) -> None:
    for name in ("x", "other"):
        path = tmp_path / f"{name}.onnx"
        text = f"(float[4,4] {name}) => (float[4,4] y) {{ a = Neg({name}) b = Neg(a) y = Relu(b) }}"
        onnx.save(parsed(text), path)
        problem = open_problem(f"file:{path}", provider="cpu", cached=False)
        candidates = problem.rewriter.candidates(problem.model.graph)
        latency = problem.measure(next(c for c in candidates if c.rule == "DropInvolution").apply())
        assert latency.ok, latency.message
