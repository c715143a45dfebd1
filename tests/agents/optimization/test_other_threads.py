"""`--threads 1,2` with `--specialise`: every model is measured with each number, by planted meters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agents.optimization import options, run
from agents.optimization.options import OptimizeOptions
from agents.optimization.run import optimize_model
from agents.reporting.progress import dynamic_lines
from graph_rewrite.latency import BaselineError
from graph_rewrite.symbolic.bindings import DimensionBindings
from graph_rewrite.system.deadline import OutOfTime
from graph_rewrite.task.problem import Problem
from tests.agents.optimization.specialised_world import plant
from tests.graph_rewrite.symbolic.dynamic_models import transformer

OPTIONS = OptimizeOptions(
    shape=("ids:1,24",), specialise=True, time_limit="5m", threads="1,2", agent="greedy", memory=False,
    fixed_deployment=True,
)  # fmt: skip


@pytest.fixture(autouse=True)
def planted_world(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(options, "check_threads", lambda count: count)  # two, on whatever machine


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return transformer(tmp_path / "t.onnx", layers=1)


def test_further_numbers_of_threads_are_measured_for_every_model(model: Path, tmp_path: Path) -> None:
    found = optimize_model(model, replace(OPTIONS, shape=("ids:1,24", "ids:2,9")))
    entry = found.entry(found.save(tmp_path / "b"))
    assert [(one["threads"], one["speedup"]) for one in entry["threads"]] == [(1, 24 / 18), (2, 24 / 18)]
    own, general = entry["dynamic"]["specialised"]
    assert [(one["threads"], one["speedup"]) for one in own["threads"]] == [(1, 24 / 13), (2, 24 / 32)]
    assert general["threads"] == []
    (warning,) = entry["warnings"]
    slower = "the model for batch=1, sequence=24 is slower than the original: x0.750 (0.749 to 0.751)"
    assert warning == f"with 2 threads {slower}"
    assert "over the model for all shapes; with 2 threads x0.750 (0.749" in dynamic_lines(entry["dynamic"])[2]


@pytest.mark.parametrize(
    ("error", "message"), [(OutOfTime("late"), "no time was left"), (BaselineError("no memory"), "no memory")]
)
def test_what_cannot_be_measured_with_further_threads_is_said(
    model: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    opened = run.open_with_threads

    def open_with(path: Path, given: OptimizeOptions, threads: int, bindings: DimensionBindings) -> Problem:
        if threads == 2:
            raise error
        return opened(path, given, threads, bindings)

    monkeypatch.setattr(run, "open_with_threads", open_with)
    found = optimize_model(model, OPTIONS)
    assert found.verified
    assert list(found.warnings) == [
        f"with 2 threads the result cannot be measured: {message}",
        f"with 2 threads the model for batch=1, sequence=24 cannot be measured: {message}",
    ]
