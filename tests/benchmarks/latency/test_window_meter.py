"""The benchmark of the window meter: its arithmetic, and that it runs and prints what scripts rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.latency.window_meter import EFFECT, WITHIN_S, Pair, agreement, resolution
from tests.envs.fakes import write_tower
from tests.repository import ROOT


def pair(regional: float, whole: float, half: float = 1.0) -> Pair:
    return Pair("rule", 1, regional, half, 0.1, whole, half)


def test_agreement_of_equal_and_of_opposite_findings() -> None:
    same = agreement([pair(x, x) for x in (1.0, 2.0, 4.0)], whole_s=10.0)
    assert same == pytest.approx({"correlation": 1.0, "median_error": 0.0, "p90_error": 0.0, "explained": 1.0})
    opposite = agreement([pair(x, -x, half=0.1) for x in (1.0, 2.0, 4.0)], whole_s=10.0)
    assert opposite["correlation"] == pytest.approx(-1.0)
    assert opposite["median_error"] == pytest.approx(0.4)
    assert opposite["explained"] == 0.0


def test_intervals_of_both_explain_a_distance() -> None:
    # The square root of 2 lies between.
    assert agreement([pair(0.0, 1.3), pair(0.0, 1.5)], whole_s=1.0)["explained"] == 0.5


def test_resolution_counts_effects_by_either_measurement() -> None:
    def saved(regional: float, half: float, took_s: float, whole: float, whole_half: float = 0.0) -> Pair:
        return Pair("rule", 1, regional, half, took_s, whole, whole_half)

    found = resolution(
        [
            saved(EFFECT, EFFECT / 2, 1.0, 0.0),
            saved(-2 * EFFECT, EFFECT / 2, 2 * WITHIN_S, 0.0),  # told, but late
            saved(EFFECT / 2, EFFECT, 1.0, 2 * EFFECT),  # not told
            saved(EFFECT / 2, EFFECT / 4, 1.0, 2 * EFFECT, whole_half=3 * EFFECT),  # too small, as far as one can see
        ],
        whole_s=1.0,
    )
    assert (found["effects"], found["told"], found["told_in_time"]) == (3, 2, 1)
    assert 1.0 < found["p90_took_s"] < 2 * WITHIN_S
    assert EFFECT / 2 < found["p90_half_width"] < EFFECT


@pytest.mark.slow
def test_prints_one_json_object_and_nothing_else(tmp_path: Path) -> None:
    model = write_tower(tmp_path / "tower.onnx")
    command = [
        sys.executable, "-m", "benchmarks.latency.window_meter", "--model", f"file:{model}", "--rewrites", "2",
        "--whole-s", "0.1", "--repeats", "2", "--whole-repeats", "0", "--json",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["model", "latency_s", "pairs", "agreement", "resolution", "false_positives"]
    assert len(found["pairs"]) == 2
    assert [entry["comparisons"] for entry in found["false_positives"]] == [2]
