"""`--specialise`: planted meters decide which shapes get a model of their own, ONNX Runtime what is right."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx
import onnxruntime
import pytest

import rewritegym
from agents.commands import optimize as command
from agents.optimization import judging_shapes, run, specialising
from agents.optimization.options import OptimizeOptions
from agents.optimization.outcome import Optimization
from agents.optimization.reports import write_report_of
from agents.optimization.run import optimize_model
from agents.optimization.single_shapes import ShapeSearches, times_for_single_shapes
from agents.optimization.specialising import ShapeBundle, specialise
from agents.reporting.progress import dynamic_lines
from graph_rewrite.delivery.bundles.manifest import read_bundle
from graph_rewrite.delivery.bundles.session import BundleSession
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.latency import BaselineError
from graph_rewrite.replay import read_recording
from graph_rewrite.symbolic.bindings import DimensionBindings
from graph_rewrite.symbolic.lanes import NotGeneralError
from graph_rewrite.system.deadline import OutOfTime, check_time
from graph_rewrite.task import limits
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.problem import Problem
from tests.agents.optimization.specialised_world import COSTS, PlantedMeter, Run, plant
from tests.graph_rewrite.delivery.bundle_models import ids
from tests.graph_rewrite.symbolic.dynamic_models import transformer

SHAPES = ("ids:1,24", "ids:2,9", "ids:1,40", "ids:1,64", "ids:1,24")
"""One shape twice, and one that is longer than the model's table of positions."""
OPTIONS = OptimizeOptions(
    shape=SHAPES, specialise=True, time_limit="5m", threads="1", agent="greedy", memory=False, fixed_deployment=True
)


@pytest.fixture(scope="module", autouse=True)
def planted_world() -> Iterator[None]:
    """Every problem has the planted rules and meter."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return transformer(tmp_path_factory.mktemp("model") / "t.onnx", layers=1)


@pytest.fixture(scope="module")
def made(planted_world: None, model: Path) -> Run:
    called = []

    def specialised(*arguments: Any) -> ShapeBundle:
        called.append(arguments)
        return specialise(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "specialise", specialised)
        return Run(optimize_model(model, OPTIONS), called[0])


@pytest.fixture(scope="module")
def outcome(made: Run) -> Optimization:
    return made.outcome


def assert_right(folder: Path, model: Path, *shapes: tuple[int, int]) -> None:
    session = rewritegym.session(folder)
    original = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for shape in shapes:
        expected = original.run(None, ids(*shape))[0]
        assert np.allclose(session.run(None, ids(*shape))[0], expected, atol=1e-4 * np.abs(expected).max())


def test_shapes_that_gain_have_a_model_of_their_own(outcome: Optimization, model: Path, tmp_path: Path) -> None:
    folder = outcome.save(tmp_path / "b")
    assert folder == tmp_path / "b"
    bundle = read_bundle(folder)
    assert [dict(one.shapes) for one in bundle.specialised] == [{"ids": (1, 24)}, {"ids": (1, 40)}]
    assert_right(folder, model, (1, 24), (1, 40), (2, 9), (3, 7), (1, 48), (8, 1))
    special, general = (onnx.load(folder / name) for name in ("ids-1x24.onnx", "general.onnx"))
    assert "Squeeze" in {node.op_type for node in special.graph.node}
    assert "Squeeze" not in {node.op_type for node in general.graph.node}
    assert [d.dim_param for d in general.graph.input[0].type.tensor_type.shape.dim] == ["batch", "sequence"]


def test_the_json_tells_what_runs_at_each_shape_and_why(outcome: Optimization, tmp_path: Path) -> None:
    folder = outcome.save(tmp_path / "b")
    found = json.loads(json.dumps(outcome.summary(folder)))
    assert found["onnx_path"] == str(tmp_path / "b" / "general.onnx")
    assert found["verified"]
    dynamic = found["dynamic"]
    assert dynamic["bundle"] == str(tmp_path / "b")
    first, second, third, fourth = dynamic["specialised"]
    assert first["at"] == {"batch": 1, "sequence": 24}
    assert [one["own"] for one in dynamic["specialised"]] == [True, False, True, False]
    assert fourth["at"]["sequence"] == 64
    assert "Incompatible dimensions" in fourth["reason"]
    assert first["speedup"] == pytest.approx((10 + 8 + 6) / (10 + 2 + 1))
    assert first["over_general"] == pytest.approx((10 + 2 + 6) / (10 + 2 + 1))
    assert {one["rule"] for one in first["rewrites"]} == {"DivideAsMultiply", "SqueezedRelu"}
    assert Path(first["onnx_path"]).name == "ids-1x24.onnx"
    assert Path(third["onnx_path"]).name == "ids-1x40.onnx"
    assert second["onnx_path"] == found["onnx_path"]
    assert second["speedup"] == pytest.approx(24 / 18)
    assert "x1.000 (0.999 to 1.001) over the general model" in second["reason"]
    assert [one["rule"] for one in dynamic["left_out"]] == ["SqueezedRelu"]
    lines = "\n".join(dynamic_lines(dynamic))
    assert "at batch=1, sequence=40 a model of its own runs: x1.846" in lines
    assert "at batch=2, sequence=9 the model for all shapes runs: a model of its own is x1.000" in lines
    assert outcome.to_json()["dynamic"]["specialised"][0]["onnx_path"] is None


def test_each_model_has_its_recorded_rewrites(outcome: Optimization, tmp_path: Path) -> None:
    folder = outcome.save(tmp_path / "b")
    assert folder is not None
    for name in ("general.onnx", "ids-1x24.onnx", "ids-1x40.onnx"):
        recorded = json.loads((folder / f"{name}.actions.json").read_text())
        assert (folder / recorded["model"]).resolve() == outcome.problem.model.path.resolve()
    assert json.loads((folder / "ids-1x40.onnx.actions.json").read_text())["shapes"] == {"ids": [1, 40]}
    outcome.save(folder)  # in place of the bundle with its recordings
    assert len(list(folder.iterdir())) == 8


def test_a_bundle_that_is_not_written_yet_opens(outcome: Optimization) -> None:
    session = outcome.session()
    assert isinstance(session, BundleSession)
    assert session.model_for(ids(1, 40)).file == "ids-1x40.onnx"
    assert session.run(None, ids(1, 40))[0].shape == (1, 40, 16)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ids-1x24.onnx", "planted difference"),
        ("general.onnx", "the general model cannot share its weights: planted"),
        ("", "no time was left to check the bundle"),
    ],
)
def test_a_bundle_that_is_not_checked_is_not_kept(
    made: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    if name:
        plant_differences(monkeypatch, name)
    else:
        monkeypatch.setattr(specialising, "checked_bundle", Mock(side_effect=OutOfTime))
    bundle = made.again()
    folder = bundle.write_to(tmp_path / "b")
    (entry,) = bundle.told(made.outcome.dynamic, folder)["specialised"]
    assert not entry["own"]
    assert reason in entry["reason"]
    assert entry["speedup"] == pytest.approx(24 / 18)
    assert read_bundle(folder).specialised == ()
    assert_right(folder, model, (1, 24), (2, 9))


def test_a_gain_over_the_general_model_that_is_not_sure_is_none(made: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlantedMeter, "noise", 0.5)
    problem = replace(made.outcome.problem, _confirmed={}, _compared={}, _memo={})
    (judged,) = made.again(problem).judged
    assert "is x1.385 (0.885 to 1.885) over the general model, which is not sure" in judged.reason


@pytest.mark.parametrize("error", [BaselineError("out of memory"), NotGeneralError("no inputs"), OutOfTime("late")])
def test_what_cannot_be_measured_is_not_kept(made: Run, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging_shapes, "_by_planted_meter", Mock(side_effect=error))
    (judged,) = made.again().judged
    assert "measure" in judged.reason


def test_weights_of_the_bundle_keep_the_limit_on_size(made: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FREE_BYTES", 0)
    problem = replace(made.outcome.problem, limits=ResultLimits(size_growth=1.0))
    (judged,) = made.again(problem).judged
    assert "more than --max-size-growth allows" in judged.reason


def test_where_nothing_gains_the_bundle_holds_the_original_byte_by_byte(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlantedMeter, "noise", 20.0)
    found = optimize_model(model, replace(OPTIONS, shape=SHAPES[:1]))
    folder = found.save(tmp_path / "b")
    assert folder is not None
    (entry,) = found.entry(folder)["dynamic"]["specialised"]
    assert "the search at this shape kept the original: the fastest was not confirmed" in entry["reason"]
    assert entry["speedup"] == 1.0
    assert (folder / "general.onnx").read_bytes() == model.read_bytes()
    assert_right(folder, model, (1, 24), (2, 9))


def plant_differences(patch: pytest.MonkeyPatch, name: str) -> None:
    """Let a file of the bundle differ from the original."""
    equivalent = specialising.equivalent

    def planted_comparison(original: Path, optimised: Path, *args: Any, **options: Any) -> Equivalence:
        if Path(optimised).name == name:
            return Equivalence(False, 1.0, 1e-4, "planted difference")
        return equivalent(original, optimised, *args, **options)

    patch.setattr(specialising, "equivalent", planted_comparison)


def test_what_holds_for_one_shape_alone_goes_beside_an_original_that_is_kept(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COSTS, "Mul", COSTS["Div"])
    found = optimize_model(model, replace(OPTIONS, shape=SHAPES[:1]))
    assert found.result.is_original
    folder = found.save(tmp_path / "b")
    assert folder is not None
    entry = found.entry(folder)
    (own,) = entry["dynamic"]["specialised"]
    assert own["own"]
    assert own["over_general"] == own["speedup"] == pytest.approx(24 / 19)
    assert_right(folder, model, (1, 24), (2, 9), (5, 48))
    bundle = read_bundle(folder)
    assert set(bundle.weights) == {"weights.bin"}
    recorded = {m.file: read_recording(folder / f"{m.file}.actions.json") for m in bundle.models}
    assert [len(one.steps) for one in recorded.values()] == [0, 1]
    assert all((folder / one.model).resolve() == model.resolve() for one in recorded.values())
    page = write_report_of(found, entry, tmp_path / "report.html").read_text()
    assert "at batch=1, sequence=24 a model of its own runs: x1.263" in page
    assert "def session_for(inputs)" in page


def test_the_first_result_is_where_further_searches_begin(made: Run, model: Path) -> None:
    *_, found, bindings, _ = made.arguments
    begun = []

    def search(problem: Problem, options: OptimizeOptions, ends: float, starts: Any) -> Any:
        begun.append((problem.model.shapes, [action.rule for start in starts for action in start.actions]))
        return found[0].result, None

    def opened(options: OptimizeOptions, bindings: DimensionBindings) -> Problem:
        check_time()
        return run.open_with_threads(model, options, 1, bindings)

    searches = ShapeSearches(OPTIONS, opened, search, lambda: False)
    bound = replace(bindings, values=bindings.values[:3])
    times = times_for_single_shapes(3, 100.0, 20.0)
    results = list(searches.run(bound, found[0].recording, times, time.monotonic() + 50.0))
    assert [result.problem.model.shapes for result in results if result.problem] == [shapes for shapes, _ in begun]
    assert begun[0] == ({"ids": (2, 9)}, ["DivideAsMultiply"])
    assert begun[1][0] == {"ids": (1, 40)}
    assert sorted(begun[1][1]) == ["DivideAsMultiply", "SqueezedRelu"]
    late = list(searches.run(bound, found[0].recording, times, time.monotonic() - 1.0))
    assert [result.reason for result in late] == ["no time was left to search at this shape"] * 2


def test_the_command_writes_a_folder_and_prints_code_that_opens_it(
    outcome: Optimization,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "optimize_model", lambda *_, **__: outcome)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(model.read_bytes())
    arguments = ["m.onnx", "--specialise", "--shape", "ids:1,24", "--threads", "1", "--agent", "greedy", "--no-memory"]
    assert command.main([*arguments, "--fixed-deployment"]) == 0
    printed = capsys.readouterr().out
    assert "written: m.optimized" in printed
    space: dict[str, Any] = {}
    exec(printed[printed.index("import onnxruntime as ort") :], space)
    assert space["session_for"](ids(1, 24)) is space["sessions"]["ids-1x24"]
    assert_right(tmp_path / "m.optimized", model, (1, 24), (2, 9))
    assert command.main(arguments) == 2
    assert "m.optimized exists" in capsys.readouterr().err
    (tmp_path / "m.optimized" / "mine.txt").write_text("mine")
    assert command.main([*arguments, "--overwrite"]) == 2
    assert "mine.txt, which is no part of the bundle" in capsys.readouterr().err
    assert command.main([*arguments[:1], "out.onnx", *arguments[1:]]) == 2
    assert "writes a folder of models" in capsys.readouterr().err
