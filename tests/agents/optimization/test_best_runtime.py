"""`--provider best`: the faster of two runtimes is deployed, and what each would give is said."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewritegym
from agents.optimization import best_runtime, run
from agents.optimization.best_runtime import optimize_in_each
from agents.optimization.options import OptimizeOptions
from agents.optimization.outcome import Optimization
from agents.optimization.run import optimize_model
from agents.reporting.runtimes import runtime_lines, runtimes_table
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.latency import BaselineError, Latency, ProviderError
from graph_rewrite.latency.files import DeployedFile, compare_deployed
from graph_rewrite.runtime import SCREEN, Deployment, FeedSpec, WorkerClient, open_session
from graph_rewrite.system.deadline import OutOfTime, seconds_left
from tests.agents.optimization.planted import PlantedAgent, opening_with
from tests.envs.fakes import OperatorCountMeter, write_tower
from tests.runtimes import needs_openvino

OPTIONS = OptimizeOptions(time_limit="60s", threads="1", provider="best", memory=False)
Found = Mapping[str, Optimization]


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tower(tmp_path_factory.mktemp("models") / "tower.onnx", 2, 16)


@pytest.fixture(scope="module")
def planting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Searches are greedy, and count operators."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWRITEGYM_WORKSPACE", str(tmp_path_factory.mktemp("work")))
        patch.setattr(run, "make_agent", lambda spec: PlantedAgent())
        patch.setattr(run, "open_problem", opening_with(OperatorCountMeter))
        yield


@pytest.fixture(scope="module")
def found(tower: Path, planting: None) -> Found:
    """The result of a search in each runtime, both faster than the original and checked."""
    return {name: optimize_model(tower, replace(OPTIONS, provider=name)) for name in ("cpu", "openvino")}


def latency(speedup: float, half: float = 0.01) -> Latency:
    return Latency(10.0 / speedup, speedup, (speedup - half, speedup + half), 9, 10.0)


def in_each(
    tower: Path,
    outcomes: Mapping[str, Optimization | Exception],
    speeds: Mapping[str, float],
    half: float = 0.01,
    interrupted: Callable[[], bool] = lambda: False,
    late: Callable[[int], bool] = lambda number: False,
) -> Optimization:
    """Judge planted outcomes; speeds are those of `plain` OpenVINO and of the results, over the original. No time is
    left for the comparisons of `late` numbers."""
    made: list[DeployedFile] = []

    def optimise(options: OptimizeOptions, began: float) -> Optimization:
        outcome = outcomes[options.provider]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def speed(file: DeployedFile) -> float:
        provider, kept = file.deployment.provider, file.path == tower
        return {"cpu": 1.0, "openvino": speeds["plain"]}[provider] if kept else speeds[provider]

    def compare(before: DeployedFile, after: DeployedFile) -> Latency:
        made.append(after)
        if late(len(made)):
            raise OutOfTime
        return latency(speed(after) / speed(before), half)

    return optimize_in_each(tower, OPTIONS, optimise, began=0.0, seconds=1e9, interrupted=interrupted, compare=compare)


@needs_openvino
class TestChoice:
    @pytest.mark.parametrize(
        ("speeds", "half", "chosen"),
        [
            ({"plain": 1.2, "cpu": 1.3, "openvino": 1.6}, 0.01, "openvino"),
            ({"plain": 0.8, "cpu": 1.3, "openvino": 1.1}, 0.01, "cpu"),
            ({"plain": 1.2, "cpu": 1.3, "openvino": 1.31}, 0.05, "cpu"),
        ],
        ids=["openvino is faster", "onnx runtime is faster", "a tie"],
    )
    def test_the_faster_is_deployed(
        self, tower: Path, found: Found, speeds: dict[str, float], half: float, chosen: str
    ) -> None:
        best = in_each(tower, found, speeds, half)
        assert best.deployment.provider == chosen
        entries = {entry["provider"]: entry for entry in best.to_json()["runtimes"]}
        assert [name for name, entry in entries.items() if entry["chosen"]] == [chosen]
        assert entries["cpu"]["plain_speedup"] == 1.0
        assert entries["openvino"]["plain_speedup"] == pytest.approx(speeds["plain"])
        assert entries["openvino"]["speedup"] == pytest.approx(speeds["openvino"])
        assert best.speedup == entries[chosen]["speedup"], "against the original in ONNX Runtime"
        assert best.options.provider == "best"
        assert runtimes_table(best.to_json()["runtimes"]).row_count == 2

    @pytest.mark.parametrize(
        ("late", "chosen", "known"),
        [
            ({1}, "openvino", (True, True)),
            ({1, 4}, "openvino", (False, True)),
            ({3}, "cpu", (True, False)),
            ({2}, "cpu", (True, True)),
            ({1, 2, 3, 4}, "cpu", (False, False)),
        ],
        ids=["plain OpenVINO at first", "plain OpenVINO", "the result's speed-up", "the duel", "everything"],
    )
    def test_a_comparison_without_time_leaves_the_others(
        self, tower: Path, found: Found, late: set[int], chosen: str, known: tuple[bool, bool]
    ) -> None:
        """The comparison that decides comes first of those of the results; OpenVINO is deployed only if its speed-up is
        known, too."""
        speeds = {"plain": 1.2, "cpu": 1.3, "openvino": 1.6}
        best = in_each(tower, found, speeds, late=lambda number: number in late)
        assert best.deployment.provider == chosen
        told = best.to_json()["runtimes"][1]
        assert (told["plain_speedup"] is not None, told["speedup"] is not None) == known

    def test_each_comparison_has_its_part_of_the_time_that_is_left(self, tower: Path, found: Found) -> None:
        left: list[float] = []

        def compare(before: DeployedFile, after: DeployedFile) -> Latency:
            left.append(seconds_left())
            return latency(1.0)

        began = time.monotonic()
        optimize_in_each(
            tower, OPTIONS, lambda options, since: found[options.provider], began=began, seconds=90.0,
            interrupted=lambda: False, compare=compare,
        )  # fmt: skip
        assert left == pytest.approx([3.6, 45.0, 90.0], abs=1.0)

    @pytest.mark.parametrize(
        ("plain", "seconds"),
        [
            (latency(1.2), 4.0 + 44.0),
            (latency(1.05), 4.0 + 70.4),
            (latency(0.9), 4.0 + 70.4),
            (Latency.failed("error", "it does not run on random inputs"), 4.0 + 44.0),
            (None, 4.0 + 44.0),
        ],
        ids=["OpenVINO leads", "a lead within its interval", "OpenVINO is behind", "unknown", "no time"],
    )
    def test_time_goes_to_the_runtime_that_leads(
        self, tower: Path, found: Found, plain: Latency | None, seconds: float
    ) -> None:
        given: list[float] = []

        def optimise(options: OptimizeOptions, since: float) -> Optimization:
            given.append(options.seconds)
            return found[options.provider]

        def compare(before: DeployedFile, after: DeployedFile) -> Latency:
            if plain is None:
                raise OutOfTime
            return plain

        optimize_in_each(
            tower, OPTIONS, optimise, began=time.monotonic(), seconds=100.0, interrupted=lambda: False, compare=compare
        )
        assert given == pytest.approx([seconds, 92.0], abs=1.0), "what the first leaves belongs to the second"

    def test_what_openvino_gains_alone_is_told(self, tower: Path, found: Found) -> None:
        best = in_each(tower, found, {"plain": 1.5, "cpu": 1.0, "openvino": 1.6})
        assert best.message.startswith("OpenVINO runs the original 1.50 times as fast as ONNX Runtime; there ")

    def test_a_runtime_that_fails_is_said_and_left_out(self, tower: Path, found: Found) -> None:
        broken = BaselineError("OpenVINO cannot run it")
        best = in_each(tower, {**found, "openvino": broken}, {"plain": 9.0, "cpu": 1.0, "openvino": 9.0})
        assert best.deployment.provider == "cpu"
        assert runtime_lines(best.to_json()["runtimes"]) == ["OpenVINO: OpenVINO cannot run it"]
        other = in_each(tower, {**found, "cpu": broken}, {"plain": 1.0, "cpu": 1.0, "openvino": 0.5})
        assert other.deployment.provider == "openvino"
        with pytest.raises(MachineError, match="ONNX Runtime: OpenVINO cannot run it; OpenVINO: OpenVINO cannot"):
            in_each(tower, {"cpu": broken, "openvino": broken}, {"plain": 1.0})

    def test_an_unverified_result_is_never_chosen(self, tower: Path, found: Found) -> None:
        checked = found["openvino"].result.checked
        bad = replace(checked, outcome=replace(checked.outcome, ok=False, message="differs"))
        wrong = replace(found["openvino"], result=replace(found["openvino"].result, checked=bad))
        best = in_each(tower, {**found, "openvino": wrong}, {"plain": 9.0, "cpu": 1.0, "openvino": 9.0})
        assert (best.deployment.provider, best.verified) == ("cpu", True)

    def test_a_search_that_the_user_ends_is_the_last(self, tower: Path, found: Found) -> None:
        asked: list[str] = []

        def interrupted() -> bool:
            asked.append("")
            return len(asked) > 1

        best = in_each(tower, found, {"plain": 9.0, "cpu": 1.0, "openvino": 9.0}, interrupted=interrupted)
        assert best.deployment.provider == "cpu"
        assert runtime_lines(best.to_json()["runtimes"]) == ["OpenVINO: the search was ended before it"]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"specialise": True}, "--specialise makes several"),
            ({"threads": "1,2"}, "one number of threads"),
            ({"custom_ops": ("lib.so",)}, "ONNX Runtime alone"),
        ],
    )
    def test_options_that_do_not_go_with_it_are_refused(
        self, tower: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
    ) -> None:
        monkeypatch.setattr("agents.optimization.options.check_threads", lambda count: count)
        with pytest.raises(UserError, match=message):
            optimize_model(tower, replace(OPTIONS, **change))


def test_openvino_must_be_installed(tower: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(provider: str) -> str:
        raise ProviderError(f"{provider} is not installed")

    monkeypatch.setattr(best_runtime, "resolve_provider", missing)
    with pytest.raises(ProviderError, match="is not installed"):
        optimize_model(tower, OPTIONS)


@needs_openvino
def test_the_whole_way_with_real_timings(tower: Path, planting: None, tmp_path: Path) -> None:
    best = optimize_model(tower, replace(OPTIONS, time_limit="12s"))
    assert best.verified
    first, second = best.to_json()["runtimes"]
    assert [first["provider"], second["provider"]] == ["cpu", "openvino"]
    assert second["plain_speedup"] > 0.0
    assert second["speedup"] > 0.0
    written = best.save(tmp_path / "out.onnx")
    assert written is not None
    x = {"x": np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)}
    wanted = open_session(tower, Deployment()).run(None, x)[0]
    np.testing.assert_allclose(rewritegym.session(written).run(None, x)[0], wanted, rtol=1e-4, atol=1e-5)


@needs_openvino
def test_files_in_different_runtimes_are_timed_in_turn(tower: Path, tmp_path: Path) -> None:
    before, after = DeployedFile(tower, Deployment()), DeployedFile(tower, Deployment("openvino"))
    broken = replace(after, path=tmp_path / "broken.onnx")
    broken.path.write_bytes(b"nonsense")
    with WorkerClient() as worker:
        timed, same, failed = (
            compare_deployed(before, other, worker, plan=SCREEN, feeds=FeedSpec(), clock="cpu")
            for other in (after, before, broken)
        )
    assert timed.ok, timed.message
    assert timed.ci95[0] <= timed.speedup <= timed.ci95[1]
    assert same.speedup == 1.0
    assert (failed.status, failed.speedup) == ("error", 0.0)
