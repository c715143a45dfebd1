"""Intervals: known means, failures, noise that many seeds do not average away, and profiles by brute force."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.figures.intervals import across_models, interquartile_mean, of_model, share_reaching
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
