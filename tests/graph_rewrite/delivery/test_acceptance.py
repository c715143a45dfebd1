"""Models that do not run on random inputs: values that they accept are found, or the user is asked for some."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from graph_rewrite import load
from graph_rewrite.delivery import acceptance as module
from graph_rewrite.delivery.acceptance import acceptance
from graph_rewrite.delivery.equivalence import Equivalence, equivalent
from graph_rewrite.delivery.ship import kept_original
from graph_rewrite.operators.usual_values import attempts, settled_values
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.runtime.ort_worker.feeds import ModelInput, make_feeds
from graph_rewrite.system.deadline import OutOfTime, ending_at
from graph_rewrite.task.problem import open_problem
from tests.graph_rewrite.sample_models import parsed

TEXTS = {
    "a shape": "(float[2,6] x, int64[2] s) => (float[3,4] y) { y = Reshape(x, s) }",
    "a shape through a Cast": "(float[2,6] x, int32[2] s) => (float[3,4] y) { t = Cast<to = 7>(s)  y = Reshape(x, t) }",
    "a broadcast shape": "(float[1,4] x, int64[3] s) => (float[2,3,4] y) { y = Expand(x, s) }",
    "repeats": "(float[2,3] x, int64[2] r) => (float[2,9] y) { y = Tile(x, r) }",
    "paddings": "(float[2,3] x, int64[4] p) => (float[2,6] y) { y = Pad(x, p) }",
    "parts": "(float[2,5] x, int64[2] p) => (float[2,2] y, float[2,3] z) { y, z = Split<axis = 1>(x, p) }",
    "parts of a sequence": """(float[5,2] x, int64[2] p) => (float[2,2] y) <int64 first = {0}> {
        s = SplitToSequence<axis = 0>(x, p)  y = SequenceAt(s, first) }""",
    "the axis of a reduction": "(float[2,3,4] x, int64[1] a) => (float[2,1,4] y) { y = ReduceSum(x, a) }",
    "axes that go": "(float[2,3,4] x, int64[2] a) => (float[3] y) { y = ReduceMax<keepdims = 0>(x, a) }",
    "axes that come": "(float[3] x, int64[2] a) => (float[1,3,1] y) { y = Unsqueeze(x, a) }",
    "axes of one": "(float[1,3,1] x, int64[1] a) => (float[3,1] y) { y = Squeeze(x, a) }",
    "a range": """(float[6,3] x, int64[1] s, int64[1] e, int64[1] a, int64[1] d) => (float[4,3] y) {
        y = Slice(x, s, e, a, d) }""",
    "the largest": "(float[7] x, int64[1] k) => (float[3] y, int64[3] i) { y, i = TopK(x, k) }",
    "sizes": '(float[1,1,2,2] x, int64[4] s) => (float[1,1,4,6] y) { y = Resize<mode = "nearest">(x, "", "", s) }',
    "scales": '(float[1,1,2,2] x, float[4] s) => (float[1,1,4,6] y) { y = Resize<mode = "nearest">(x, "", s) }',
    "the size of a grid": "(float[2,2,3] x, int64[4] s) => (float[2,5,6,2] y) { y = AffineGrid(x, s) }",
    "a block": "(float[1,10,6] x, int64[2] s, int64[2] b) => (float[1,2,2,7] y) { y = Col2Im(x, s, b) }",
    "numbers in a row": "(int64 s, int64 e, int64 d) => (int64[5] y) { y = Range(s, e, d) }",
    "a ratio": "(float[4] x, float r) => (float[4] y) { y = Dropout(x, r) }",
}  # fmt: skip
AXIS = "(float[2,3] x, int64 a) => (float[2,3] y) { t = Exp(x)  b = Neg(a)  c = Neg(b)  y = CumSum(t, c) }"
"""The axis is not read directly, so that its value has to be found by trying."""
FAR = """(float[4] x, int64 i) => (float[4] y) <int64 far = {5000}, int64[2] table = {1, 2}>
    { t = Sub(i, far)  s = Gather(table, t)  f = Cast<to = 1>(s)  y = Mul(x, f) }"""
"""A model that runs with 5000 and 5001 alone."""


def written(text: str, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(parsed(text), path)
    return path


@pytest.mark.parametrize("what", TEXTS)
def test_the_first_values_give_the_declared_shapes(what: str) -> None:
    model = parsed(TEXTS[what])
    graph = load(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = [ModelInput(item.name, item.type, tuple(item.shape)) for item in session.get_inputs()]
    found = session.run(None, make_feeds(inputs, FeedSpec(values=settled_values(graph))))
    assert [list(value.shape) for value in found] == [item.shape for item in session.get_outputs()]


def test_random_inputs_are_kept_where_they_run(tmp_path: Path) -> None:
    path = written("(float[2,3] x, int64[2,3] z) => (float[2,3] y) { t = Cast<to = 1>(z)  y = Add(x, t) }", tmp_path)
    found = acceptance(path, load(path), Deployment())
    assert (found.refusal, found.values) == ("", {})


def test_a_model_with_an_axis_as_input_is_compared(tmp_path: Path) -> None:
    path = written(AXIS, tmp_path)
    found = acceptance(path, load(path), Deployment())
    assert "axis" in found.refusal
    assert found.values == {"a": 1}
    outcome = equivalent(path, path, Deployment())
    assert outcome.ok, outcome.message
    other = tmp_path / "other.onnx"
    onnx.save(parsed(AXIS.replace("Exp", "Tanh")), other)
    assert not equivalent(path, other, Deployment()).ok


def test_a_model_with_an_axis_as_input_is_measured(tmp_path: Path) -> None:
    problem = open_problem(f"file:{written(AXIS, tmp_path)}", provider="cpu", cached=False)
    assert problem.measure(problem.model.graph).ok


def test_values_that_end_the_process_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []

    def refusals(model: object, feeds: list[FeedSpec], *_: object, **__: object) -> list[str]:
        groups.append(len(feeds))
        return ["refused"] * 5 + [module.CRASHED] * 10 if len(groups) == 1 else [""] * 5

    monkeypatch.setattr(module, "refusals", refusals)
    path = written(AXIS.replace("Exp", "Sigmoid"), tmp_path)
    graph = load(path)
    found = acceptance(path, graph, Deployment())
    assert found.values == attempts(graph, {})[1]
    assert groups == [15, 5]  # random ones are refused, and the first values crash


def test_without_accepted_values_the_user_is_asked(tmp_path: Path) -> None:
    path = written(FAR, tmp_path)
    outcome = equivalent(path, path, Deployment())
    assert not outcome.ok
    assert "does not run on random inputs" in outcome.message
    assert "--input-data" in outcome.message


def test_the_users_inputs_are_enough(tmp_path: Path) -> None:
    path = written(FAR, tmp_path)
    data = tmp_path / "data.npz"
    np.savez(data, x=np.arange(8, dtype=np.float32).reshape(2, 4), i=np.array([5000, 5001]))
    specs = [FeedSpec(npz=str(data), item=item) for item in range(2)]

    def outcome_of(other: Path) -> Equivalence:
        return equivalent(path, other, Deployment(), data=specs)

    assert outcome_of(path).ok, outcome_of(path).message
    assert kept_original(path, Deployment(), data=specs).outcome.ok
    wrong = tmp_path / "wrong.onnx"
    onnx.save(parsed(FAR.replace("{1, 2}", "{1, 3}")), wrong)
    assert not outcome_of(wrong).ok


def test_where_no_time_is_left_to_try_nothing_is_said_to_be_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, timeouts = written(TEXTS["a shape"], tmp_path), list[float]()

    def run_leaf(command: Sequence[str], timeout_s: float) -> None:
        timeouts.append(timeout_s)
        raise subprocess.TimeoutExpired(command, timeout_s)

    monkeypatch.setattr(module, "_known", {})
    with monkeypatch.context() as slow, ending_at(time.monotonic() + 30.0):
        slow.setattr(module, "run_leaf", run_leaf)
        with pytest.raises(OutOfTime, match="which inputs the model accepts"):
            acceptance(path, load(path), Deployment())
    assert timeouts[0] < module.SECONDS
    assert acceptance(path, load(path), Deployment()).refusal == ""  # nothing wrong was remembered
