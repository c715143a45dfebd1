"""The judge on planted seats: turns, inputs, memory, failures, and outputs that differ."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.judging.contestant_process import write_outputs
from benchmarks.protocol.judging.judge import Judge, Protocol, rounds_of_a_session, runs_of_a_turn
from benchmarks.protocol.judging.judgement import verdict_on
from benchmarks.protocol.judging.outputs import OutputCheck
from graph_rewrite.errors import MachineError
from tests.benchmarks.protocol.planted import GOOD, Machine, contestants, make_judge

ORIGINAL = Contestant("original", "planted")
PROTOCOL = Protocol(sessions=6, rounds=8, inputs=8, turn_s=0.003)


def judge(machine: Machine, folder: Path, *names: str, protocol: Protocol = PROTOCOL) -> Judge:
    return make_judge(machine, folder, protocol)(ORIGINAL, contestants(*names))


def test_contestants_take_turns_on_the_same_inputs_and_the_order_is_shuffled(tmp_path: Path) -> None:
    machine = Machine({"original": 1e-3, "a": 5e-4, "b": 2e-3})
    judge(machine, tmp_path, "a", "b").session(0)
    rounds = [machine.turns[place : place + 3] for place in range(0, len(machine.turns), 3)]
    assert len(rounds) == PROTOCOL.rounds
    for turns in rounds:
        assert sorted(name for name, _ in turns) == ["a", "b", "original"]
        assert len({inputs for _, inputs in turns}) == 1
    assert len({tuple(name for name, _ in turns) for turns in rounds}) > 1
    assert {place for _, inputs in machine.turns for place in inputs} == set(range(8))


def test_orders_follow_from_the_seed(tmp_path: Path) -> None:
    machines = [Machine({"original": 1e-3, "a": 5e-4, "b": 2e-3}) for _ in range(3)]
    for machine, seed in zip(machines, (0, 0, 1), strict=True):
        judge(machine, tmp_path, "a", "b", protocol=Protocol(seed=seed)).session(0)
    assert machines[0].turns == machines[1].turns
    assert machines[0].turns != machines[2].turns


def test_the_drift_of_a_machine_does_not_count(tmp_path: Path) -> None:
    machine = Machine({"original": 1e-3, "a": 5e-4}, drift=0.02, noise=0.001)
    judged = judge(machine, tmp_path, "a")
    verdict = verdict_on("a", [judged.session(number) for number in range(6)])
    assert verdict.wall is not None
    assert verdict.wall.holds(2.0)
    assert verdict.wall.high / verdict.wall.low < 1.05
    assert verdict.cpu is not None
    assert verdict.cpu.speedup == pytest.approx(verdict.wall.speedup)
    assert verdict.verified


def test_what_does_not_fit_into_memory_waits_for_the_next_group(tmp_path: Path) -> None:
    machine = Machine({"original": 1e-3, **dict.fromkeys("abcde", 0.001)})

    def room(size: int) -> int:
        assert size == 100
        return 4 - machine.open_now

    session = make_judge(machine, tmp_path, PROTOCOL, room=room)(ORIGINAL, contestants(*"abcde")).session(0)
    assert machine.most_open == 4
    assert session.groups == 3
    assert machine.opened.count("original") == 6, "a placeholder in each group"
    assert set(session.times) == set("abcde")
    assert all(len(times.wall) == len(times.original_wall) == PROTOCOL.rounds for times in session.times.values())


def test_one_contestant_is_judged_even_where_nothing_seems_to_fit(tmp_path: Path) -> None:
    machine = Machine({"original": 1e-3, "a": 1e-3, "b": 1e-3})
    session = make_judge(machine, tmp_path, PROTOCOL, room=lambda size: 0)(ORIGINAL, contestants("a", "b")).session(0)
    assert (session.groups, set(session.times)) == (2, {"a", "b"})
    assert session.huge_bytes == dict.fromkeys(("original", "a", "b"), 64)


@pytest.mark.parametrize("when", ["open", "turn"])
def test_a_contestant_that_breaks_does_not_stop_the_others(tmp_path: Path, when: str) -> None:
    machine = Machine({"original": 1e-3, "a": 5e-4, "b": 1e-3}, broken={"b": when})
    judged = judge(machine, tmp_path, "a", "b")
    sessions = [judged.session(0), judged.session(1, ["b"])]
    assert set(sessions[0].times) == {"a"}
    assert "b" not in sessions[1].failures
    verdict = verdict_on("b", sessions)
    assert verdict.wall is None
    assert not verdict.verified
    assert verdict.failure == ("it does not open" if when == "open" else "its process ended with SIGSEGV")
    assert verdict_on("a", sessions).wall is not None


@pytest.mark.parametrize("when", ["open", "turn"])
def test_an_original_that_breaks_is_an_error(tmp_path: Path, when: str) -> None:
    machine = Machine({"original": 1e-3, "a": 5e-4}, broken={"original": when})
    with pytest.raises(MachineError, match="the original cannot be judged"):
        judge(machine, tmp_path, "a").session(0)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (GOOD * np.float32(1.01), "differs by 0.01 of its scale"),
        (GOOD[:4], r"is float32\[4\] instead of float32\[5\]"),
        (GOOD.astype(np.float64), "is float64"),
        (np.where(GOOD > 0, np.float32(np.nan), GOOD), "NaN"),
    ],
)
def test_wrong_outputs_have_no_speedup(tmp_path: Path, value: np.ndarray, said: str) -> None:
    machine = Machine({"original": 1e-3, "a": 1e-6}, outputs={"a": value})
    judged = judge(machine, tmp_path, "a")
    sessions = [judged.session(0), judged.session(1)]
    verdict = verdict_on("a", sessions)
    assert verdict.wall is None
    assert verdict.cpu is None
    assert not verdict.verified
    assert re.search(said, verdict.failure)


def test_rounding_is_allowed_and_reported(tmp_path: Path) -> None:
    machine = Machine({"original": 1e-3, "a": 1e-3}, outputs={"a": GOOD * np.float32(1.00001)})
    judged = judge(machine, tmp_path, "a")
    verdict = verdict_on("a", [judged.session(0), judged.session(1)])
    assert verdict.verified
    assert verdict.max_rel_error == pytest.approx(1e-5, rel=0.05)


def test_a_missing_output_is_wrong(tmp_path: Path) -> None:
    check = OutputCheck(tmp_path, 1e-4)
    write_outputs(check.path("original"), [[GOOD, GOOD]])
    write_outputs(check.path("a"), [[GOOD]])
    assert check.compared("original", "a") == (math.inf, "it has 1 outputs instead of 2")


def test_turns_are_long_enough_and_rounds_cover_all_inputs() -> None:
    protocol = Protocol(rounds=8, inputs=8, turn_s=0.05)
    assert runs_of_a_turn(0.5, protocol) == 1
    assert runs_of_a_turn(0.01, protocol) == 5
    assert runs_of_a_turn(1e-9, protocol) == 400
    assert runs_of_a_turn(0.5, Protocol(rounds=3, inputs=8)) == 3


def test_slow_models_have_fewer_rounds() -> None:
    protocol = Protocol(rounds=8, least_rounds=4, session_s=2.0)
    assert [rounds_of_a_session(run_s, protocol) for run_s in (1e-6, 0.01, 0.125, 0.2, 0.25, 1.0)] == [8, 8, 8, 5, 4, 4]


def test_sessions_of_a_slow_model_cover_all_inputs_together(tmp_path: Path) -> None:
    machine = Machine({"original": 1.0, "a": 0.5})
    judged = judge(machine, tmp_path, "a", protocol=Protocol(rounds=8, least_rounds=3, inputs=8))
    for number, expected in enumerate([{0, 1, 2}, {3, 4, 5}, {6, 7, 0}]):
        machine.turns.clear()
        judged.session(number)
        assert {place for _, inputs in machine.turns for place in inputs} == expected


def test_what_is_opened_first_is_not_timed(tmp_path: Path) -> None:
    machine = Machine({"original": 1e-3, "a": 1e-3, "b": 1e-3})
    judge(machine, tmp_path, "a", "b").session(0)
    assert machine.opened[0] == "original"
    assert sorted(machine.opened[1:]) == ["a", "b", "original"]
    assert [name for name, _ in machine.turns].count("original") == PROTOCOL.rounds


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_original_has_every_place_equally_often(tmp_path: Path, count: int) -> None:
    """A process that is opened early is slower as long as it lives."""
    for seed in range(5):
        machine = Machine({"original": 1e-3, **dict.fromkeys("abcde", 1e-3)})
        judged = judge(machine, tmp_path, *"abcde"[:count], protocol=Protocol(sessions=6, seed=seed))
        places = []
        for number in range(6):
            machine.opened.clear()
            judged.session(number)
            places.append(machine.opened.index("original", 1))
        assert sorted(places) == sorted(list(range(1, count + 2)) * (6 // (count + 1)))
