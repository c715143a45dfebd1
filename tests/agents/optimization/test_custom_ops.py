"""Models with operators of custom domains, from the search to the session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rewritegym
from agents.conclusion.conclude import saved_and_checked
from agents.conclusion.recordings import actions_file, write_recording
from graph_rewrite.delivery.deployed import sidecar_of
from graph_rewrite.delivery.deployment_code import deployment_code
from graph_rewrite.errors import UserError
from graph_rewrite.runtime import Deployment
from graph_rewrite.symbolic.bindings import bind
from graph_rewrite.task.problem import open_problem
from rewritegym.cli import main
from tests.agents.commands.test_apply import recorded
from tests.graph_rewrite import custom_ops
from tests.graph_rewrite.sample_models import parsed

X = {"x": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def library() -> str:
    return custom_ops.library()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def result(tmp_path: Path, library: str) -> Path:
    """A result beside its original, with its recording: transpositions before and behind the operator are gone."""
    problem = open_problem(
        f"file:{custom_ops.write(tmp_path / 'model.onnx')}", provider="cpu", cached=False, custom_ops=[library]
    )
    candidates = problem.rewriter.candidates(problem.model.graph)
    graph = next(c for c in candidates if c.rule == "ComposeTransposes" and c.count == 2).apply()
    assert problem.measure(graph).ok, problem.measure(graph).message
    checked = saved_and_checked(problem, graph)
    assert checked.outcome.ok, checked.outcome.message
    assert checked.deployment.custom_ops == (library,)
    path = checked.write_to(tmp_path / "model.optimized.onnx")
    write_recording(recorded(problem, "ComposeTransposes"), path)
    return path


def test_a_result_opens_with_the_library_alone(result: Path, library: str) -> None:
    original = rewritegym.session(result, custom_ops=[library])
    assert "Transpose" not in {node.op_type for node in onnx.load(result).graph.node}
    wanted = open_plainly(result.with_name("model.onnx"), library).run(None, X)[0]
    assert np.allclose(original.run(None, X)[0], wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match=r"Inverse.*custom_ops=\[LIBRARY\]"):
        rewritegym.session(result)
    with pytest.raises(UserError, match="no such file"):
        rewritegym.session(result, custom_ops=["nowhere.so"])


def open_plainly(path: Path, library: str) -> Any:
    """Open a model by the code that is printed for a user, which knows nothing of RewriteGym."""
    names: dict[str, Any] = {}
    exec(deployment_code(Deployment(custom_ops=(library,)), path)["python"], names)
    return names["session"]


def test_no_file_names_the_library(result: Path, library: str) -> None:
    written = [result, sidecar_of(result), actions_file(result)]
    for path in written:
        assert os.path.basename(library).encode() not in path.read_bytes()
    assert "custom_ops" not in sidecar_of(result).read_text()


def test_a_library_in_a_file_is_not_loaded(result: Path, library: str, run: Run) -> None:
    """Whoever writes it into a deployment or a recording gets an error, or nothing."""
    deployment = {**json.loads(sidecar_of(result).read_text()), "custom_ops": [library]}
    model = onnx.load(result)
    for entry in model.metadata_props:
        if entry.key == "rewritegym.deployment":
            entry.value = json.dumps(deployment)
    onnx.save(model, result)
    with pytest.raises(UserError, match="custom_ops"):
        rewritegym.session(result)
    actions = json.loads(actions_file(result).read_text())
    actions["deployment"]["custom_ops"] = actions["custom_ops"] = [library]
    actions_file(result).write_text(json.dumps(actions))
    code, _, said = run("apply", actions_file(result), result.with_name("model.onnx"), result.with_name("out.onnx"))
    assert code == 2
    assert custom_ops.OPERATOR in said
    assert not result.with_name("out.onnx").exists()


def test_apply_and_check_take_it(result: Path, library: str, run: Run, tmp_path: Path) -> None:
    retrained = custom_ops.write(tmp_path / "retrained.onnx", seed=5)
    code, out, said = run("apply", actions_file(result), retrained, "--custom-ops", library, "--json")
    assert code == 0, said
    assert json.loads(out)["verified"]
    assert json.loads(out)["custom_ops"] == [library]
    code, out, said = run("check", result, "--custom-ops", library, "--seconds", "1", "--threads", "1", "--json")
    assert code in (0, 3, 4), said  # how fast it is here does not matter
    assert json.loads(out)["verified"]
    code, _, said = run("check", result, "--json")
    assert (code, custom_ops.OPERATOR in said) == (2, True)


def test_inspect_takes_it_and_tells_of_it(tmp_path: Path, library: str, run: Run) -> None:
    path = custom_ops.write(tmp_path / "model.onnx")
    code, out, _ = run("inspect", path, "--custom-ops", library, "--threads", "1", "--json")
    assert code == 0
    assert "Inverse" in [entry["operator"] for entry in json.loads(out)["profile"]["operators"]]
    code, out, _ = run("inspect", path, "--threads", "1", "--json")
    assert code == 0
    assert "--custom-ops" in json.loads(out)["profile_error"]
    code, _, said = run("inspect", path, "--custom-ops", __file__)
    assert (code, "no library of operators" in said) == (2, True)


def test_usual_shapes_are_tried_with_it(tmp_path: Path, library: str) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(
        parsed("(float[batch,4] x) => (float[batch,4] y) { p, n = ai.onnx.contrib.NegPos(x)  y = Sub(p, n) }"), path
    )
    assert bind(path, [], Deployment(custom_ops=(library,))).shapes == {"x": (1, 4)}
    with pytest.raises(UserError, match=r"custom domain: ai\.onnx\.contrib::NegPos"):
        bind(path, [])


def test_optimize_says_that_the_library_is_needed(tmp_path: Path, library: str, run: Run) -> None:
    path = custom_ops.write(tmp_path / "model.onnx")
    options = ("--time-limit", "3s", "--threads", "1", "--agent", "greedy", "--no-memory")
    code, out, said = run("optimize", path, *options, "--custom-ops", library, "--report", tmp_path / "report.html")
    assert code == 0, said
    assert f"rewritegym.session(\"{tmp_path / 'model.optimized.onnx'}\", custom_ops=['{library}'])" in out
    assert f'options.register_custom_ops_library("{library}")' in out
    assert "every session needs it registered" in said
    assert "every session needs it registered" in (tmp_path / "report.html").read_text()
    code, _, said = run("optimize", path, *options, "--overwrite")
    assert code == 2
    assert "--custom-ops LIBRARY" in said


IN_A_FRESH_PROCESS = """
import sys, numpy, rewritegym
path, library = sys.argv[1:]
options = {"time_limit": 3, "threads": 1, "agent": "greedy", "memory": False}
found = rewritegym.optimize(path, custom_ops=[library], **options)
assert found.verified, found.message
assert found.to_json()["custom_ops"] == [library]
assert library not in open("/proc/self/maps").read()
x = numpy.random.default_rng(0).standard_normal((4, 4)).astype("f")
assert found.session().run(None, {"x": x})[0].shape == (4, 4)
assert library in open("/proc/self/maps").read()
"""


@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="only Linux tells which libraries a process has loaded"
)
def test_the_library_stays_out_of_our_process(tmp_path: Path, library: str) -> None:
    path = custom_ops.write(tmp_path / "model.onnx")
    command = [sys.executable, "-c", IN_A_FRESH_PROCESS, str(path), os.path.realpath(library)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
