"""One process compares outputs and times both models: what it finds, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.delivery.timed_comparison import timed_comparison
from graph_rewrite.latency import Latency, OrtMeter, Plan
from graph_rewrite.runtime import Deployment
from graph_rewrite.system.deadline import OutOfTime, ending_at
from graph_rewrite.task.meters import ort_meter
from graph_rewrite.task.models import open_model
from tests.graph_rewrite.sample_models import parsed, weights

TEXT = "(float[2,3] x) => (float[2,4] y) { t = MatMul(x, w)  y = Relu(t) }"
PLAN = Plan(min_pairs=3, max_pairs=5, budget_s=0.2)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return write(tmp_path / "original.onnx", TEXT)


@pytest.fixture
def meter(original: Path, tmp_path: Path) -> Iterator[OrtMeter]:
    with ort_meter(open_model(f"file:{original}"), Deployment(), tmp_path / "work") as meter:
        yield meter


def write(path: Path, text: str) -> Path:
    onnx.save(parsed(text, weights("w", 3, 4)), path)
    return path


def compared(
    meter: OrtMeter, original: Path, folder: Path, text: str, rtol: float | None = None
) -> tuple[Latency, Equivalence]:
    optimised = write(folder / "optimised.onnx", text)
    return timed_comparison(meter, original, optimised, Deployment(), plan=PLAN, rtol=rtol)


def test_equal_models_are_timed_and_agree(meter: OrtMeter, original: Path, tmp_path: Path) -> None:
    latency, outcome = compared(meter, original, tmp_path, TEXT.replace("y = Relu(t)", "z = Sub(t, t)  y = Max(t, z)"))
    assert latency.ok
    assert latency.runs >= PLAN.min_pairs
    assert latency.ci95[0] <= latency.speedup <= latency.ci95[1]
    assert outcome.ok
    assert outcome.max_rel_error <= outcome.tolerance
    assert outcome.message.startswith("outputs agree on 2 inputs")
    assert outcome.message.endswith("further inputs were left out for lack of time")


def test_another_function_is_refused_though_it_is_timed(meter: OrtMeter, original: Path, tmp_path: Path) -> None:
    latency, outcome = compared(meter, original, tmp_path, TEXT.replace("Relu", "LeakyRelu"))
    assert latency.ok
    assert not outcome.ok
    assert "output 'y' with seed" in outcome.message
    assert "left out" not in outcome.message


def test_further_limits_hold(meter: OrtMeter, original: Path, tmp_path: Path) -> None:
    text = TEXT.replace("y = Relu(t)", "s = Sum(t, t)  u = Sub(s, t)  y = Relu(u)")
    assert compared(meter, original, tmp_path, text)[1].ok
    wrong = TEXT.replace("Relu(t)", "LeakyRelu<alpha = 0.0000001>(t)")
    assert compared(meter, original, tmp_path, wrong)[1].ok
    assert not compared(meter, original, tmp_path, wrong, rtol=0.0)[1].ok


def test_outputs_that_tell_nothing_are_refused(tmp_path: Path) -> None:
    text = TEXT.replace("y = Relu(t)", "z = Sub(t, t)  y = Relu(z)")
    constant = write(tmp_path / "constant.onnx", text)
    with ort_meter(open_model(f"file:{constant}"), Deployment(), tmp_path / "work") as meter:
        latency, outcome = compared(meter, constant, tmp_path, text)
    assert latency.ok
    assert not outcome.ok
    assert outcome.vacuous == ("y",)
    assert outcome.message.startswith("vacuous: output 'y'")


def test_a_model_that_does_not_run_has_no_latency(meter: OrtMeter, original: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    latency, outcome = timed_comparison(meter, original, broken, Deployment(), plan=PLAN)
    assert not latency.ok
    assert not outcome.ok
    assert math.isinf(outcome.max_rel_error)
    assert outcome.message == latency.message != ""


def test_it_ends_with_the_time_limit(meter: OrtMeter, original: Path, tmp_path: Path) -> None:
    with ending_at(0.0), pytest.raises(OutOfTime):
        compared(meter, original, tmp_path, TEXT)
