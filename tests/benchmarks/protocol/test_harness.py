"""The harness with planted searches and clocks: resume, interruption, and what is missing."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.harness import Harness
from benchmarks.protocol.judging.judge import Protocol
from benchmarks.protocol.plan import TablePlan
from benchmarks.protocol.searches.runs import FAILED, MISSING, OUTCOME, Run, disturbed
from benchmarks.protocol.table import Row, check_no_shared_measurement, counts
from graph_rewrite.errors import UserError
from tests.benchmarks.protocol.planted import GOOD, Machine, Searches, tools

PROTOCOL = Protocol(sessions=3, rounds=2, inputs=2)
NAMES = (
    "greedy@60/0",
    "greedy@60/1",
    "taso@60/0",
    "taso@60/1",
    "openvino",
    "original",
    "original/0",
    "original/1",
    "original/2",
)


class MissingPeer(Exception):
    """A peer that is not installed."""


def there(model: Path, folder: Path, threads: int) -> Contestant:
    assert model.is_file()
    assert folder.is_dir()
    return Contestant("any name", "planted", None, {"threads": threads})


def missing(model: Path, folder: Path, threads: int) -> Contestant:
    raise MissingPeer("openvino is not installed")


def fast() -> Machine:
    return Machine({name: 1e-3 / (2 + place) for place, name in enumerate(NAMES)} | {"original": 1e-3}, noise=0.001)


def harness(
    folder: Path, searches: Searches, machine: Machine | None = None, known: dict[str, Any] | None = None, **plan: Any
) -> Harness:
    given = {"models": ("m", "n"), "agents": ("greedy", "taso"), "seeds": 2, "protocol": PROTOCOL, **plan}
    made = TablePlan(**given)
    return Harness(made, folder / "table", tools(folder, machine or fast(), searches, PROTOCOL, known))


def by_name(rows: Sequence[Row], model: str) -> dict[tuple[str, int | None], Row]:
    return {(row["agent"], row["seed"]): row for row in rows if row["model"] == model}


def test_all_seeds_of_all_agents_are_judged_side_by_side_with_the_peers(tmp_path: Path) -> None:
    searches, machine = Searches(), fast()
    rows = harness(tmp_path, searches, machine, {"openvino": there}, peers=("openvino",)).rows()
    assert searches.made == [
        f"{m} {name}" for m in "mn" for name in ("greedy@60/0", "taso@60/0", "greedy@60/1", "taso@60/1")
    ]
    assert len(rows) == 10
    assert all(counts(row) for row in rows)
    found = by_name(rows, "m")
    assert found["greedy", 1]["speedup"] == pytest.approx(3.0, rel=0.01)
    assert found["openvino", None]["speedup"] == pytest.approx(6.0, rel=0.01)
    assert found["greedy", 0]["judgement"] == found["openvino", None]["judgement"]
    assert found["greedy", 0]["commit"] == "abc"
    check_no_shared_measurement(rows)
    json.dumps(rows, allow_nan=False)


def test_a_disk_that_would_fill_up_is_told_before_a_search(tmp_path: Path) -> None:
    """The first model has room, the second one has none; with room again, only the second one is searched."""
    searches, plan = Searches(), TablePlan(("m", "n"), ("greedy",), seeds=1, protocol=PROTOCOL)
    free = iter((10**12, 10**9))
    full = replace(tools(tmp_path, fast(), searches, PROTOCOL), free=lambda folder: next(free))
    with pytest.raises(UserError, match=r"table: the next runs may take 2\.0 GB, and 1\.0 GB are free"):
        Harness(plan, tmp_path / "table", full).rows()
    assert searches.made == ["m greedy@60/0"]
    rows = Harness(plan, tmp_path / "table", replace(full, free=lambda folder: 10**12)).rows()
    assert searches.made == ["m greedy@60/0", "n greedy@60/0"]
    assert all(counts(row) for row in rows)


def test_what_is_done_is_not_repeated(tmp_path: Path) -> None:
    first = harness(tmp_path, Searches()).rows()
    searches, machine = Searches(), fast()
    assert harness(tmp_path, searches, machine).rows() == first
    assert not searches.made
    assert not machine.opened


def test_ctrl_c_loses_at_most_the_run_under_way(tmp_path: Path) -> None:
    searches, kept = Searches(interrupt_at="n taso@60/0"), list[list[Row]]()
    with pytest.raises(KeyboardInterrupt):
        harness(tmp_path, searches).rows(kept.append)
    assert [row["model"] for row in kept[0]] == ["m"] * 4
    again = Searches()
    rows = harness(tmp_path, again).rows()
    assert again.made == ["n taso@60/0", "n greedy@60/1", "n taso@60/1"]
    assert len(rows) == 8
    assert all(counts(row) for row in rows)


def test_missing_agents_and_peers_are_reported(tmp_path: Path) -> None:
    no_checkpoint = {"status": MISSING, "reason": "no checkpoint comes with the project"}
    searches = Searches({f"taso@60/{seed}": no_checkpoint for seed in (0, 1)})
    peers = {"openvino": missing}
    rows = by_name(harness(tmp_path, searches, known=peers, models=("m",)).rows(), "m")
    assert ("openvino", None) not in rows  # not asked for
    asked = TablePlan(("m",), ("greedy", "taso"), peers=("openvino", "tensorrt"), seeds=2, protocol=PROTOCOL)
    rows = by_name(Harness(asked, tmp_path / "table", tools(tmp_path, fast(), searches, PROTOCOL, peers)).rows(), "m")
    assert rows["taso", 1]["failure"] == "no checkpoint comes with the project"
    assert rows["openvino", None]["failure"] == "openvino is not installed"
    assert rows["tensorrt", None]["failure"] == "there is no such peer"
    assert [counts(row) for row in rows.values()] == [True, False, True, False, False, False]


def test_what_was_missing_is_tried_again(tmp_path: Path) -> None:
    searches = Searches({"taso@60/0": {"status": MISSING, "reason": "no library"}})
    harness(tmp_path, searches, models=("m",)).rows()
    again = Searches()
    rows = harness(tmp_path, again, models=("m",)).rows()
    assert again.made == ["m taso@60/0"]
    assert all(counts(row) for row in rows)


def test_wrong_outputs_are_reported_and_do_not_count(tmp_path: Path) -> None:
    machine = fast()
    machine.outputs = {"greedy@60/0": -GOOD, "openvino": GOOD[:2]}
    rows = by_name(harness(tmp_path, Searches(), machine, {"openvino": there}, peers=("all",)).rows(), "m")
    wrong = [rows["greedy", 0], rows["openvino", None]]
    assert [(row["verified"], row["speedup"], counts(row)) for row in wrong] == [(False, None, False)] * 2
    assert all(row["failure"].startswith("output 0 on input 0") for row in wrong)
    assert counts(rows["greedy", 1])


def test_kept_originals_are_not_judged(tmp_path: Path) -> None:
    kept = {"kept_original": True, "reason": "nothing was surely faster"}
    searches = Searches({f"taso@60/{seed}": kept for seed in (0, 1)})
    machine = fast()
    rows = by_name(harness(tmp_path, searches, machine, models=("m",)).rows(), "m")
    assert not any(name.startswith("taso") for name in machine.opened)
    assert [rows["taso", seed]["speedup_ci95"] for seed in (0, 1)] == [[1.0, 1.0]] * 2
    assert rows["taso", 0]["message"] == "nothing was surely faster"


def test_originals_are_judged_against_themselves(tmp_path: Path) -> None:
    machine = Machine(dict.fromkeys(NAMES, 0.001), noise=0.01, instance=0.005, seed=1)
    rows = harness(tmp_path, Searches(), machine, agents=(), aa=3).rows()
    assert [(row["model"], row["agent"], row["seed"], row["kind"]) for row in rows[:2]] == [
        ("m", "original", 0, "control"),
        ("n", "original", 1, "control"),
    ]
    assert all(row["speedup"] == pytest.approx(1.0, abs=0.03) for row in rows[:2])
    assert len({row["speedup"] for row in rows}) == 3


def test_an_original_that_cannot_be_judged_leaves_rows_with_the_reason(tmp_path: Path) -> None:
    machine = fast()
    machine.broken = {"original": "open"}
    rows = harness(tmp_path, Searches(), machine, models=("m",), aa=1).rows()
    assert len(rows) == 5
    assert all(row["failure"].startswith("the original cannot be judged") for row in rows)


def test_a_search_beside_something_else_on_its_core_is_repeated_once(tmp_path: Path) -> None:
    """Whatever it found: that it saw the original run slowly decides."""
    slow = {"search": {"speedup": 2.0, "speedup_ci95": [1.9, 2.1], "latency_ms": 1.3, "baseline_ms": 4.0}}
    searches = Searches({"taso@60/0": slow})
    rows = harness(tmp_path, searches, models=("m",)).rows()
    assert searches.made == [
        *(f"m {n}" for n in ("greedy@60/0", "taso@60/0", "greedy@60/1", "taso@60/1")),
        "m taso@60/0",
    ]
    reason = "the original took 4 ms in its first search, 2 ms in the median of all"
    assert [row.get("repeated") for row in rows] == [None, reason, None, None]
    again = Searches()
    assert harness(tmp_path, again, models=("m",)).rows() == rows
    assert not again.made


def test_a_search_that_failed_is_not_repeated_with_a_disturbed_one(tmp_path: Path) -> None:
    slow = {"search": {"speedup": 2.0, "speedup_ci95": [1.9, 2.1], "latency_ms": 1.3, "baseline_ms": 4.0}}
    searches = Searches({"taso@60/0": slow, "greedy@60/1": {"status": FAILED, "reason": "it broke"}})
    rows = harness(tmp_path, searches, models=("m",)).rows()
    assert searches.made.count("m taso@60/0") == 2
    assert searches.made.count("m greedy@60/1") == 1
    assert [row["failure"] for row in rows] == ["", "", "it broke", ""]


def test_an_outcome_says_what_disturbed_its_search(tmp_path: Path) -> None:
    rows = harness(tmp_path, Searches(), models=("m",)).rows()
    assert rows[0]["interference"]["quiet"] is True
    assert len(list(tmp_path.rglob(OUTCOME))) == 4


def test_searches_side_by_side_are_asked_for_together(tmp_path: Path) -> None:
    searches, groups = Searches(), list[int]()

    def search(runs: Sequence[tuple[Run, Path]]) -> list[dict[str, Any]]:
        groups.append(len(runs))
        return searches(runs)

    made = replace(tools(tmp_path, fast(), searches, PROTOCOL), search=search, searches_at_once=3)
    plan = TablePlan(("m",), ("greedy", "taso"), seeds=2, protocol=PROTOCOL)
    rows = Harness(plan, tmp_path / "table", made).rows()
    assert groups == [3, 1]
    assert [row["side_by_side"] for row in rows] == [3, 3, 3, 1]
    assert searches.made == [f"m {name}" for name in ("greedy@60/0", "taso@60/0", "greedy@60/1", "taso@60/1")]


def test_equally_long_searches_of_two_models_run_side_by_side(tmp_path: Path) -> None:
    """One long search a model would leave a core without work."""
    searches, groups, kept = Searches(), list[list[str]](), list[list[Row]]()

    def search(runs: Sequence[tuple[Run, Path]]) -> list[dict[str, Any]]:
        groups.append([f"{run.model} {run.contestant}" for run, _ in runs])
        return searches(runs)

    machine = Machine({"original": 1e-3, "greedy@600/0": 4e-4, "greedy@60/0": 5e-4, "taso@60/0": 3e-4}, noise=0.001)
    made = replace(tools(tmp_path, machine, searches, PROTOCOL), search=search, searches_at_once=2)
    plan = TablePlan(("m", "n", "o"), ("greedy", "taso", "greedy@600"), seeds=1, protocol=PROTOCOL)
    rows = Harness(plan, tmp_path / "table", made).rows(kept.append)
    assert groups == [
        ["m greedy@600/0", "n greedy@600/0"],
        ["m greedy@60/0", "m taso@60/0"],
        ["n greedy@60/0", "n taso@60/0"],
        ["o greedy@600/0", "o greedy@60/0"],
        ["o taso@60/0"],
    ]
    assert [[row["model"] for row in some] for some in kept] == [[model] * 3 for model in "mno"]
    assert [(row["agent"], row["budget_s"]) for row in rows[:3]] == [("greedy", 60), ("taso", 60), ("greedy", 600)]
    assert all(counts(row) for row in rows)


def test_what_disturbs_a_search_is_told_by_the_searches_of_its_own_model() -> None:
    quick, slow = (Run(model, "greedy", "greedy", 0, 60.0) for model in "mn")
    outcomes = {
        replace(run, seed=seed): {"search": {"baseline_ms": ms}}
        for run, times in ((quick, (1.0, 1.0, 1.4)), (slow, (9.0, 9.0, 9.0)))
        for seed, ms in enumerate(times)
    }
    assert list(disturbed(outcomes)) == [replace(quick, seed=2)]
    assert not disturbed({quick: {}, slow: {"search": {}}})
