"""Intervals: known means, failures, noise that many seeds do not average away, and profiles by brute force."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.figures.intervals import (
    across_models,
    interquartile_mean,
    of_model,
    ratio_across_models,
    share_reaching,
)
from benchmarks.figures.rows import Results, read_results
from tests.benchmarks.figures.made_up import row, typical, write_results


def results_of(folder: Path, *rows: dict[str, object]) -> Results:
    return read_results(write_results(folder / "cpu-t1.json", rows))


def test_one_run_keeps_its_own_interval(tmp_path: Path) -> None:
    results = results_of(tmp_path, row("bert", "greedy", 1.2, speedup_ci95=[1.1, 1.5]))
    found = of_model(results, results.series("agent")[0], "bert")
    assert found is not None
    assert (found.value, found.low, found.high, found.runs) == (1.2, 1.1, 1.5, 1)


def test_means_are_geometric_and_failures_count_as_one(tmp_path: Path) -> None:
    results = results_of(tmp_path, row("a", "x", 4.0), row("b", "x", 0.25), row("c", "x", None), row("d", "x", 16.0))
    found = across_models(results, results.series("agent")[0])
    assert found is not None
    assert found.value == pytest.approx(2.0)
    assert (found.runs, found.failed) == (4, 1)
    on_two = across_models(results, results.series("agent")[0], ["a", "d"])
    assert on_two is not None
    assert on_two.value == pytest.approx(8.0)


def test_where_all_failed_there_is_no_mean(tmp_path: Path) -> None:
    results = results_of(tmp_path, row("a", "x", None), row("b", "x", None))
    series = results.series("agent")[0]
    assert across_models(results, series) is None
    assert of_model(results, series, "a") is None
    assert of_model(results, series, "c") is None


def test_seeds_that_agree_share_the_noise_of_their_measurement(tmp_path: Path) -> None:
    results = results_of(tmp_path, *(row("a", "x", 1.5, seed, speedup_ci95=[1.4, 1.6]) for seed in range(9)))
    found = of_model(results, results.series("agent")[0], "a")
    assert found is not None
    assert math.log(found.high / found.low) == pytest.approx(math.log(1.6 / 1.4), rel=0.06)


def judged(model: str, agent: str, sessions: list[float], judgement: str = "j", **more: Any) -> dict[str, Any]:
    speedup = math.exp(sum(sessions) / len(sessions))
    return row(model, agent, speedup, sessions=sessions, judgement=f"{model} {judgement}", **more)


def test_what_two_series_have_in_common_cancels_session_by_session(tmp_path: Path) -> None:
    """Sessions differ by 20%, and one agent is ahead by 2% in each."""
    noise = np.random.default_rng(0).uniform(0.0, 0.2, size=(4, 6))
    rows = [
        judged(f"m{number}", agent, (sessions + lead).tolist())
        for number, sessions in enumerate(noise)
        for agent, lead in (("ahead", 0.02), ("behind", 0.0))
    ]
    results = results_of(tmp_path, *rows)
    ahead, behind = results.series("agent")
    found, turned = ratio_across_models(results, ahead, behind), ratio_across_models(results, behind, ahead)
    assert found is not None
    assert turned is not None
    assert (found.value, found.low, found.high) == pytest.approx((math.exp(0.02),) * 3)
    assert turned.value == pytest.approx(1.0 / found.value)


def test_only_runs_that_were_judged_together_are_paired(tmp_path: Path) -> None:
    """An original that is kept, and a run that failed, count as 1.0 in all sessions."""
    results = results_of(
        tmp_path,
        judged("kept", "x", [0.1] * 6), row("kept", "y", 1.0, sessions=[], judgement=None, speedup_ci95=[1.0, 1.0]),
        judged("failed", "x", [0.2] * 6), row("failed", "y", None),
        judged("elsewhere", "x", [0.5] * 6), judged("elsewhere", "y", [0.0] * 6, "k"),
        judged("seeds", "x", [0.5] * 6), judged("seeds", "y", [0.0] * 6, seed=1),
        judged("alone", "x", [0.5] * 6),
    )  # fmt: skip
    one, other = results.series("agent")
    found = ratio_across_models(results, one, other)
    assert found is not None
    assert math.log(found.value) == pytest.approx(0.15)
    assert ratio_across_models(results_of(tmp_path, judged("alone", "x", [0.5])), one, other) is None


def test_the_interval_over_models_is_that_of_independent_noise(tmp_path: Path) -> None:
    rows = [row(f"m{k}", "x", 1.5, speedup_ci95=[1.5 / 1.1, 1.5 * 1.1]) for k in range(16)]
    results = results_of(tmp_path, *rows)
    found = across_models(results, results.series("agent")[0])
    assert found is not None
    assert math.log(found.high / found.value) == pytest.approx(math.log(1.1) / 4, rel=0.08)


def test_the_interquartile_mean_needs_many_seeds(tmp_path: Path) -> None:
    few = results_of(tmp_path, *(row("a", "x", 1.5, seed) for seed in range(4)))
    assert interquartile_mean(few, few.series("agent")[0]) is None
    values = [1.0, 1.2, 1.2, 1.2, 1.2, 9.0]
    many = results_of(tmp_path, *(row("a", "x", value, seed) for seed, value in enumerate(values)))
    found = interquartile_mean(many, many.series("agent")[0])
    assert found is not None
    assert found.value == pytest.approx(1.2)
    assert found.low <= found.value <= found.high


def test_profiles_weigh_models_the_same_and_failures_reach_nothing(tmp_path: Path) -> None:
    results = read_results(write_results(tmp_path / "cpu-t1.json", typical()))
    factors = np.array([0.5, 1.0, 1.15, 1.55, 3.0])
    for series in results.series("agent", "peer"):
        expected = []
        for factor in factors:
            shares = []
            for model in ("bert", "vgg19"):
                runs = results.of(series, model)
                shares.append(sum(r.counts and (r.speedup or 0) >= factor for r in runs) / len(runs))
            expected.append(sum(shares) / 2)
        assert share_reaching(results, series, factors).tolist() == expected
    assert share_reaching(results, results.series("agent")[1], factors).tolist() == [0.5, 0.25, 0.25, 0.0, 0.0]
