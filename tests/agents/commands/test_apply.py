"""rewritegym apply: the rewrites of a result on another file of the same architecture."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rewritegym
from agents.commands import apply
from agents.conclusion.recordings import actions_file, recording_of, write_recording
from agents.core.base import Action, action_of
from graph_rewrite.delivery.deployed import recorded_deployment
from graph_rewrite.replay import RecordedStep, Recording, read_recording
from graph_rewrite.task.problem import Problem, open_problem
from rewritegym.cli import main
from tests.graph_rewrite.replay.models import write_network

Run = Callable[..., tuple[int, dict[str, Any]]]


def recorded(problem: Problem, *rules: str) -> Recording:
    """The recording of the first candidate of each of some rules, one after another."""
    graph, actions = problem.model.graph, list[Action]()
    for rule in rules:
        candidate = next(c for c in problem.rewriter.candidates(graph) if c.rule == rule)
        graph, actions = candidate.apply(), [*actions, action_of(candidate)]
    return recording_of(problem, actions, graph)


@pytest.fixture
def actions(tmp_path: Path) -> Path:
    """Recorded actions of a network, beside the result that they led to."""
    problem = open_problem(f"file:{write_network(tmp_path / 'first.onnx')}", provider="cpu", cached=False)
    return write_recording(recorded(problem, "ComposeTransposes"), tmp_path / "first.optimized.onnx")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command with --json: its exit code and what it prints."""

    def run(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["apply", *map(str, arguments), "--json"])
        text = capsys.readouterr().out
        return code, json.loads(text) if text else {}

    return run


def outputs(path: Path, prefix: str = "", deployed: bool = False) -> np.ndarray:
    feeds = {f"{prefix}x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)}
    if deployed:
        return np.asarray(rewritegym.session(path).run(None, feeds)[0])
    return np.asarray(onnx.reference.ReferenceEvaluator(str(path)).run(None, feeds)[0])


class TestApply:
    @pytest.mark.parametrize("prefix", ["", "renamed/"])
    def test_other_weights(self, actions: Path, run: Run, tmp_path: Path, prefix: str) -> None:
        retrained = write_network(tmp_path / "retrained.onnx", seed=7, factor=0.5, prefix=prefix)
        code, found = run(actions, retrained)
        assert code == 0
        assert found["verified"]
        assert (found["steps"], found["applied"], found["left_out"]) == (1, 1, [])
        assert found["same_architecture"]
        written = tmp_path / "retrained.optimized.onnx"
        assert found["onnx_path"] == str(written)
        assert not [node for node in onnx.load(written).graph.node if node.op_type == "Transpose"]
        assert np.allclose(outputs(written, prefix, deployed=True), outputs(retrained, prefix), atol=1e-5)
        beside = read_recording(actions_file(written))
        assert beside.model == "retrained.onnx"
        assert beside.steps == read_recording(actions).steps

    def test_a_result_that_embeds_them(self, actions: Path, run: Run, tmp_path: Path) -> None:
        result = tmp_path / "result.json"
        result.write_text(json.dumps({"speedup": 1.1, "actions": json.loads(actions.read_text())}))
        assert run(result, tmp_path / "first.onnx", tmp_path / "again.onnx")[0] == 0

    def test_a_step_that_does_not_fit(self, run: Run, tmp_path: Path) -> None:
        """The first network has a factor of 1, which is left out; no rule does that to the second's."""
        first = write_network(tmp_path / "one.onnx", factor=1.0)
        made = recorded(open_problem(f"file:{first}", provider="cpu", cached=False), "MulOne", "ComposeTransposes")
        path = made.write(tmp_path / "actions.json")
        second, out = write_network(tmp_path / "two.onnx", factor=2.0), tmp_path / "out.onnx"
        code, found = run(path, second, out)
        assert code == 1
        assert not out.exists()
        assert found["onnx_path"] is None
        assert "step 1, MulOne at Mul_s0" in found["left_out"][0]
        code, found = run(path, second, out, "--partial")
        assert code == 0
        assert (found["steps"], found["applied"]) == (2, 1)
        assert len(found["left_out"]) == 1
        assert np.allclose(outputs(out, deployed=True), outputs(second), atol=1e-5)

    @pytest.mark.parametrize("static", [False, True])
    def test_symbolic_dimensions_stay(self, actions: Path, run: Run, tmp_path: Path, static: bool) -> None:
        model = onnx.load(write_network(tmp_path / "symbolic.onnx", seed=3))
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
        onnx.save(model, tmp_path / "symbolic.onnx")
        out = tmp_path / "out.onnx"
        code, found = run(
            actions, tmp_path / "symbolic.onnx", out, *(["--static", "--shape", "x:2,4"] if static else [])
        )
        assert code == 0, found
        assert found["verified"]
        written = onnx.load(out).graph
        assert written.input[0].type.tensor_type.shape.dim[0].dim_param == ("" if static else "batch")
        assert not [node for node in written.node if node.op_type == "Transpose"]
        feeds = {"x": np.random.default_rng(0).standard_normal((2 if static else 5, 4)).astype(np.float32)}
        expected = onnx.reference.ReferenceEvaluator(str(tmp_path / "symbolic.onnx")).run(None, feeds)[0]
        assert np.allclose(rewritegym.session(out).run(None, feeds)[0], expected, atol=1e-5)

    def test_another_model(self, actions: Path, run: Run, tmp_path: Path) -> None:
        other = write_network(tmp_path / "other.onnx", layers=1, activation="Tanh")
        code, found = run(actions, other)
        assert code == 1
        assert not found["same_architecture"]
        assert not (tmp_path / "other.optimized.onnx").exists()

    def test_files_are_kept(self, actions: Path, run: Run, tmp_path: Path) -> None:
        first, out = tmp_path / "first.onnx", tmp_path / "out.onnx"
        out.write_text("mine")
        assert run(actions, first, out)[0] == 2
        assert out.read_text() == "mine"
        assert run(actions, first, first)[0] == 2
        assert run(actions, first, out, "--overwrite")[0] == 0

    def test_nothing_recorded(self, actions: Path, run: Run, tmp_path: Path) -> None:
        replace(read_recording(actions), steps=()).write(tmp_path / "none.json")
        assert run(tmp_path / "none.json", tmp_path / "first.onnx", tmp_path / "out.onnx")[0] == 2

    def test_the_command_in_words(self, actions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        retrained = write_network(tmp_path / "retrained.onnx", seed=7)
        assert apply.main([str(actions), str(retrained)]) == 0
        out = capsys.readouterr().out
        assert "1 of 1 recorded rewrites applied" in out
        assert "rewritegym check" in out


class TestItsOwnRecording:
    """Recordings beside written files: they tell of those files."""

    def test_steps_that_were_left_out_are_not_in_it(self, run: Run, tmp_path: Path) -> None:
        first = write_network(tmp_path / "one.onnx", factor=1.0)
        made = recorded(open_problem(f"file:{first}", provider="cpu", cached=False), "MulOne", "ComposeTransposes")
        path, second = made.write(tmp_path / "actions.json"), write_network(tmp_path / "two.onnx", factor=2.0)
        assert run(path, second, tmp_path / "out.onnx", "--partial")[0] == 0
        own = actions_file(tmp_path / "out.onnx")
        assert [step.rule for step in read_recording(own).steps] == ["ComposeTransposes"]
        assert run(own, second, tmp_path / "again.onnx")[0] == 0  # nothing is to be left out any more

    @pytest.mark.parametrize(("prefix", "recorded_as"), [("", "x"), ("renamed/", "x"), ("", "gone")])
    def test_its_shapes_are_those_of_the_model(
        self, actions: Path, run: Run, tmp_path: Path, prefix: str, recorded_as: str
    ) -> None:
        model = onnx.load(write_network(tmp_path / "symbolic.onnx", seed=3, prefix=prefix))
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
        onnx.save(model, tmp_path / "symbolic.onnx")
        path = replace(read_recording(actions), shapes={recorded_as: (2, 4)}).write(tmp_path / "actions.json")
        assert run(path, tmp_path / "symbolic.onnx", tmp_path / "out.onnx")[0] == 0
        assert read_recording(actions_file(tmp_path / "out.onnx")).shapes == {f"{prefix}x": (2, 4)}
        if not prefix:  # by another name and at another size, no step is recognised
            fixed = tmp_path / "fixed.onnx"
            assert run(path, tmp_path / "symbolic.onnx", fixed, "--static", "--shape", "x:3,4")[0] == 0
            assert read_recording(actions_file(fixed)).shapes == {"x": (3, 4)}

    def test_threads_that_are_asked_for_count(self, actions: Path, run: Run, tmp_path: Path) -> None:
        """The search was free to choose, and chose one."""
        known = read_recording(actions)
        chosen = RecordedStep("set threads=1", "deployment", 1, refused=(), settings={"threads": 1})
        path = replace(known, steps=(*known.steps, chosen)).write(tmp_path / "actions.json")
        assert run(path, tmp_path / "first.onnx", tmp_path / "one.onnx")[1]["deployment"]["threads"] == 1
        found = run(path, tmp_path / "first.onnx", tmp_path / "two.onnx", "--threads", "2")[1]
        assert found["deployment"]["threads"] == 2
        assert recorded_deployment(tmp_path / "two.onnx").threads == 2
