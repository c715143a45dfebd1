"""Extreme inputs on which the original rounds too much to be the measure of a rewrite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite.delivery import equivalence
from graph_rewrite.delivery.equivalence import equivalent
from graph_rewrite.runtime import Deployment
from graph_rewrite.system.deadline import OutOfTime, ending_at
from tests.graph_rewrite.sample_models import parsed

CPU = Deployment()
AT_ONCE = "m = ReduceMean(t, both)"
BY_ROWS = "q = ReduceMean(t, last) m = ReduceMean(q, rows)"


def means(folder: Path, name: str, mean: str, shift: str = "y = Sub(m, s)") -> Path:
    """Write a model of means over 90,000 numbers. Where all numbers are 1, what is left after the subtraction is a
    thousandth of the mean, and mostly rounding."""
    constants = {"k": np.float32(0.1), "s": np.float32(0.0999), "both": [2, 3], "last": [3], "rows": [2], "below": -300}
    model = parsed(
        f"(float[1,2,300,300] x) => (float[1,2,1,1] y) {{ t = Mul(x, k) {mean} {shift} }}",
        *(numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()),
    )
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def rough(tmp_path: Path) -> Path:
    return means(tmp_path, "rough", AT_ONCE)


@pytest.fixture
def fine(tmp_path: Path) -> Path:
    return means(tmp_path, "fine", BY_ROWS)


def test_what_is_nearer_to_exact_arithmetic_than_the_original_is_right(
    rough: Path, fine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert equivalent(rough, fine, CPU).ok
    monkeypatch.setattr(equivalence, "is_nearer", lambda *_: False)
    assert "on equal values differs by" in equivalent(rough, fine, CPU).message


def test_what_is_farther_from_it_is_wrong(rough: Path, fine: Path) -> None:
    found = equivalent(fine, rough, CPU)
    assert not found.ok
    assert "on equal values differs by" in found.message


def test_another_function_is_wrong_however_rough_the_original(rough: Path, tmp_path: Path) -> None:
    """On random inputs the two functions agree."""
    other = means(tmp_path, "other", BY_ROWS, "e = Abs(m) f = Sub(m, s) g = Mul(e, k) h = Mul(g, k) y = Add(f, h)")
    found = equivalent(rough, other, CPU, tolerance=0.01)
    assert not found.ok
    assert "on equal values differs by" in found.message


def test_operators_without_reference_semantics_leave_it_at_that(tmp_path: Path) -> None:
    """A triangle that holds the whole matrix, by an operator of which nothing says what it does in double precision."""
    whole = "z = com.microsoft.Trilu(t, below) "
    sides = [
        means(tmp_path, name, whole + mean.replace("(t", "(z"))
        for name, mean in (("first", AT_ONCE), ("second", BY_ROWS))
    ]
    assert "on equal values differs by" in equivalent(*sides, CPU).message


def test_the_time_limit_holds(rough: Path, fine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = equivalence.is_nearer

    def late(*given: object) -> bool:
        with ending_at(0.0):
            return judge(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(equivalence, "is_nearer", late)
    with pytest.raises(OutOfTime):
        equivalent(rough, fine, CPU)


def test_texts_beside_the_numbers_are_kept_and_fed_too(rough: Path, fine: Path) -> None:
    for path in (rough, fine):
        model = onnx.load(path)
        model.graph.input.append(helper.make_tensor_value_info("text", TensorProto.STRING, [2]))
        model.graph.output.append(helper.make_tensor_value_info("same", TensorProto.STRING, [2]))
        model.graph.node.append(helper.make_node("Identity", ["text"], ["same"]))
        onnx.save(model, path)
    found = equivalent(rough, fine, CPU)
    assert found.ok, found.message
