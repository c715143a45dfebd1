"""Rows and the results file: what counts, what is merged, and measurements that two seeds share."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.protocol.judging.intervals import Interval
from benchmarks.protocol.judging.judgement import Judgement, Ruling
from benchmarks.protocol.searches.runs import MISSING, Run, failed
from benchmarks.protocol.summary import controls_held, ratios_by_model, slower, summary_table
from benchmarks.protocol.table import (
    FIELDS,
    SharedMeasurementError,
    check_no_shared_measurement,
    counts,
    merged,
    missing_row,
    peer_row,
    read_rows,
    run_row,
    write_results,
)
from graph_rewrite.errors import UserError
from tests.benchmarks.protocol.planted import outcome

MACHINE = {"cpu": "Zen 4"}
ISSUE_FIELDS = {
    "model", "agent", "seed", "budget_s", "speedup", "speedup_ci95", "baseline_ms", "latency_ms", "seconds",
    "measurements", "verified", "max_rel_error", "size_growth", "rewrites",
}  # fmt: skip


def run_of(seed: int = 0, **changes: Any) -> Run:
    return Run(**{"model": "m", "name": "greedy", "agent": "greedy", "seed": seed, "budget_s": 60.0, **changes})


def verdict(speedup: float = 1.25, latency_ms: float = 1.6) -> Ruling:
    interval = Interval(speedup, speedup * 0.99, speedup * 1.01)
    return Ruling(interval, interval, 2.0, latency_ms, (math.log(speedup),) * 6, 1e-5, True)


def judgement(**verdicts: Ruling) -> Judgement:
    return Judgement("key", (), {name.replace("__", "@60/"): found for name, found in verdicts.items()})


def test_only_the_judgement_counts() -> None:
    row = run_row(run_of(), outcome(run_of()), judgement(greedy__0=verdict()))
    assert set(row) >= ISSUE_FIELDS | set(FIELDS)
    assert (row["speedup"], row["speedup_ci95"]) == (1.25, [1.25 * 0.99, 1.25 * 1.01])
    assert (row["baseline_ms"], row["latency_ms"], row["max_rel_error"]) == (2.0, 1.6, 1e-5)
    assert row["search"]["speedup"] == 2.0
    assert row["curve"] == [[1.0, 1.5]]
    assert counts(row)


def test_a_kept_original_has_speedup_one_without_luck() -> None:
    row = run_row(run_of(), outcome(run_of(), kept_original=True), judgement(other=verdict()))
    assert (row["speedup"], row["speedup_ci95"], row["baseline_ms"]) == (1.0, [1.0, 1.0], 2.0)
    assert counts(row)
    assert run_row(run_of(), outcome(run_of(), kept_original=True), None)["baseline_ms"] == 2.0


def test_wrong_results_do_not_count() -> None:
    wrong = Ruling(None, None, None, None, max_rel_error=math.inf, failure="output 0 differs")
    row = run_row(run_of(), outcome(run_of()), judgement(greedy__0=wrong))
    assert (row["speedup"], row["verified"], row["max_rel_error"]) == (None, False, None)
    assert row["failure"] == "output 0 differs"
    unverified = run_row(run_of(), outcome(run_of(), verified=False, reason="differs"), judgement(greedy__0=verdict()))
    assert (unverified["speedup"], unverified["verified"], unverified["failure"]) == (None, False, "differs")
    peer = peer_row("m", "eager", judgement(eager=wrong), seconds=1.0, setting={})
    right = run_row(run_of(1), outcome(run_of(1)), judgement(greedy__1=verdict()))
    assert [counts(one) for one in (row, unverified, peer, right)] == [False, False, False, True]
    assert ratios_by_model([row, unverified, peer, right]) == {
        ("agent", "greedy", 60.0): {"m": [[0.0] * 6, [0.0] * 6, pytest.approx([math.log(1.25)] * 6)]}
    }


def test_missing_agents_and_peers_are_rows_with_a_reason() -> None:
    row = run_row(run_of(), failed(run_of(), "no checkpoint", MISSING), None)
    assert (row["failure"], row["verified"], row["speedup"]) == ("no checkpoint", False, None)
    peer = missing_row("m", "openvino", "peer", "not installed", {"threads": 1})
    assert (peer["agent"], peer["seed"], peer["failure"]) == ("openvino", None, "not installed")
    assert set(peer) >= ISSUE_FIELDS
    text = "".join(str(list(column.cells)) for column in summary_table([row, peer]).columns)
    assert "openvino" in text
    assert "greedy" in text


@pytest.mark.parametrize("where", ["judged", "searched"])
def test_seeds_that_share_a_measurement_are_an_error(tmp_path: Path, where: str) -> None:
    latencies = (1.6, 1.6) if where == "judged" else (1.6, 1.7)
    rows = [
        run_row(run_of(seed), outcome(run_of(seed)), judgement(**{f"greedy__{seed}": verdict(1.25, latencies[seed])}))
        for seed in (0, 1)
    ]
    if where == "searched":
        rows[1]["search"] = rows[0]["search"]
    with pytest.raises(SharedMeasurementError, match="seeds 0 and 1 have the same latency"):
        check_no_shared_measurement(rows)
    path = tmp_path / "t1.json"
    with pytest.raises(SharedMeasurementError):
        write_results(path, {"machine": MACHINE}, rows)
    assert not path.exists()
    rows[1]["latency_ms"], rows[1]["search"] = 1.61, {"latency_ms": 9.0}
    check_no_shared_measurement(rows)


def test_seeds_that_found_the_same_model_share_its_judgement() -> None:
    verdicts = verdict(1.25, 1.6), replace(verdict(1.25, 1.6), judged_as="greedy/0")
    rows = [
        run_row(run_of(seed), outcome(run_of(seed)), judgement(**{f"greedy__{seed}": verdicts[seed]}))
        for seed in (0, 1)
    ]
    assert ("judged_as" in rows[0], rows[1]["judged_as"]) == (False, "greedy/0")
    rows[1]["search"] = {"latency_ms": 9.0}
    check_no_shared_measurement(rows)


def test_kept_originals_and_other_agents_may_have_equal_latencies() -> None:
    kept = [run_row(run_of(seed), outcome(run_of(seed), kept_original=True), None) for seed in (0, 1)]
    others = [
        run_row(run, outcome(run), judgement(**{f"{name}__0": verdict()}))
        for name in ("greedy", "taso")
        for run in [run_of(name=name)]
    ]
    check_no_shared_measurement([*kept, *others])


def test_a_file_keeps_the_rows_of_other_commands(tmp_path: Path) -> None:
    path = tmp_path / "machine" / "cpu-t1.json"
    first = run_row(run_of(), outcome(run_of()), judgement(greedy__0=verdict()))
    other = missing_row("m", "openvino", "peer", "not installed", {})
    write_results(path, {"machine": MACHINE, "commit": "a"}, [first, other])
    again = run_row(run_of(), outcome(run_of()), judgement(greedy__0=verdict(1.5, 1.3)))
    rows = write_results(path, {"machine": MACHINE, "commit": "b"}, [again])
    stored = json.loads(path.read_text())
    assert stored["commit"] == "b"
    assert stored["rows"] == rows == merged([first, other], [again]) == [other, again]
    assert len(path.read_text().splitlines()) < 12


def test_a_file_of_another_machine_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t1.json"
    write_results(path, {"machine": MACHINE}, [])
    before = path.read_bytes()
    with pytest.raises(UserError, match="another machine"):
        write_results(path, {"machine": {"cpu": "Zen 5"}}, [])
    with pytest.raises(UserError, match="another machine"):
        write_results(path, {"machine": {**MACHINE, "gpu": "an H100"}}, [])
    assert path.read_bytes() == before
    path.write_text("[]")
    with pytest.raises(UserError, match="no results file"):
        read_rows(path, MACHINE)


def test_controls_and_defects_are_counted() -> None:
    def control(seed: int, low: float, high: float) -> dict[str, Any]:
        row = missing_row("m", "original", "control", "", {})
        return row | {"seed": seed, "speedup": 1.0, "speedup_ci95": [low, high], "verified": True, "sessions": [0.0]}

    rows = [control(0, 0.99, 1.01), control(1, 1.001, 1.02), control(2, 0.9, 1.0)]
    assert controls_held(rows) == {"original_against_itself": {"judgements": 3, "hold_one": 2}}
    assert controls_held([]) == {}
    slow = run_row(run_of(), outcome(run_of()), judgement(greedy__0=verdict(0.95)))
    assert slower([*rows, slow]) == [slow]
