"""Files of recorded results: made by replaying their rewrites, and refused where there are none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from agents.conclusion.recordings import recording_of
from agents.core.base import action_of
from benchmarks.protocol.machine.description import machine
from benchmarks.recordings.made_again import made_again, recorded
from graph_rewrite.errors import UserError
from graph_rewrite.task.problem import open_problem
from graph_rewrite.zoo import export


def table_with(path: Path, **changes: Any) -> Path:
    """Write a table with one row."""
    row = {"model": "bert-tiny", "agent": "regional", "seed": 0, "budget_s": 60.0, "rewrites": [], **changes}
    path.write_text(json.dumps({"machine": machine(), "protocol": {}, "rows": [row]}))
    return path


def test_the_file_has_the_recorded_rewrites(tmp_path: Path) -> None:
    problem = open_problem("zoo://bert-tiny", provider="cpu", threads=2)
    candidate = next(one for one in problem.rewriter.candidates(problem.model.graph) if one.rule == "FuseBiasGelu")
    graph = candidate.apply()
    recording = recording_of(problem, [action_of(candidate)], graph)
    path = table_with(tmp_path / "t.json", rewrites=[{"rule": "FuseBiasGelu"}], actions=recording.to_json())
    made = made_again(path, "regional", "bert-tiny", tmp_path / "made.onnx", threads=2)
    assert json.loads(made.with_name("made.onnx.deployment.json").read_text())["threads"] == 2
    before, after = (ort.InferenceSession(str(file)) for file in (export("bert-tiny"), made))
    feeds = {one.name: np.ones(one.shape, dtype=np.int64) for one in before.get_inputs()}
    np.testing.assert_allclose(before.run(None, feeds)[0], after.run(None, feeds)[0], rtol=1e-3, atol=1e-4)


def test_a_table_without_the_result_is_refused(tmp_path: Path) -> None:
    path = table_with(tmp_path / "table.json")
    with pytest.raises(UserError, match="no result of regional with rewrites for bert-tiny"):
        recorded(path, "regional", "bert-tiny")
