"""Judgements that are kept session by session, and go on where they stopped."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.judging.judge import Protocol
from benchmarks.protocol.judging.judgement import Judgement, Quiet, judged
from graph_rewrite.errors import MachineError
from tests.benchmarks.protocol.planted import GOOD, Machine, contestants, make_judge

PROTOCOL = Protocol(sessions=4, rounds=2, inputs=2)
ORIGINAL = Contestant("original", "planted")


def play(
    folder: Path,
    machine: Machine,
    others: list[Contestant],
    protocol: Protocol = PROTOCOL,
    *,
    at_once: int = 1,
    quiet: Quiet = nullcontext,
    stopped: Event | None = None,
    **setting: Any,
) -> Judgement:
    return judged(
        folder, ORIGINAL, others, protocol, make_judge(machine, folder / "outputs", protocol, stopped=stopped),
        setting=setting, wait=lambda what: {"quiet": "3 of 4" not in what, "lost": 0.0}, what="m", at_once=at_once,
        quiet=quiet,
    )  # fmt: skip


@pytest.mark.parametrize("at_once", [2, 3])
def test_sessions_side_by_side_say_what_sessions_one_by_one_say(tmp_path: Path, at_once: int) -> None:
    alone, together = (Machine({"original": 1e-3, "a": 5e-4}) for _ in range(2))
    first = play(tmp_path / "alone", alone, contestants("a"))
    second = play(tmp_path / "together", together, contestants("a"), at_once=at_once)
    assert [session.number for session in second.sessions] == [0, 1, 2, 3]
    assert first.verdicts == second.verdicts
    assert sorted(alone.turns) == sorted(together.turns)
    assert (alone.lanes, together.lanes) == ({0}, set(range(at_once)))


def test_the_machine_is_kept_to_each_group_of_sessions(tmp_path: Path) -> None:
    machine, entered = Machine({"original": 1e-3, "a": 5e-4}), list[int]()

    @contextmanager
    def quiet() -> Iterator[None]:
        entered.append(len(machine.turns))
        yield

    play(tmp_path, machine, contestants("a"), at_once=2, quiet=quiet)
    assert entered == [0, 2 * 2 * PROTOCOL.rounds]


def test_a_session_that_fails_stops_those_beside_it(tmp_path: Path) -> None:
    machine = Machine({"original": 1e-3, "a": 5e-4}, broken={"original": "turn"})
    stopped = Event()
    with pytest.raises(MachineError, match="original cannot be judged"):
        play(tmp_path, machine, contestants("a"), at_once=2, stopped=stopped)
    assert stopped.is_set()
    assert machine.open_now == 0
    assert not list(tmp_path.rglob("session-*.json"))


def test_a_judgement_that_is_there_is_not_repeated(tmp_path: Path) -> None:
    machine = Machine({"original": 1e-3, "a": 5e-4})
    first = play(tmp_path, machine, contestants("a"))
    count = len(machine.turns)
    assert play(tmp_path, machine, contestants("a")) == first
    assert len(machine.turns) == count


def test_an_interrupted_judgement_loses_the_session_under_way(tmp_path: Path) -> None:
    machine = Machine({"original": 1e-3, "a": 5e-4})
    turns = 2 * PROTOCOL.rounds

    def interrupt() -> None:
        if len(machine.turns) == 2 * turns + 1:
            raise KeyboardInterrupt

    machine.before_turn = interrupt
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, machine, contestants("a"))
    assert machine.open_now == 0
    again = Machine({"original": 1e-3, "a": 5e-4})
    found = play(tmp_path, again, contestants("a"))
    assert len(again.turns) == 2 * turns
    assert len(found.sessions) == PROTOCOL.sessions


@pytest.mark.parametrize("change", ["file", "protocol", "contestants", "setting"])
def test_another_judgement_is_played_anew(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.onnx"
    path.write_text("one")
    machine = Machine({"original": 1e-3, "a": 5e-4, "b": 1e-3})
    others = [Contestant("a", "planted", path)]
    first = play(tmp_path, machine, others, threads=1)
    protocol = PROTOCOL
    if change == "file":
        path.write_text("another")
    elif change == "protocol":
        protocol = Protocol(sessions=4, rounds=3, inputs=2)
    elif change == "contestants":
        others = [*others, *contestants("b")]
    second = play(tmp_path, machine, others, protocol, threads=2 if change == "setting" else 1)
    assert first.key != second.key


def test_wrong_and_broken_contestants_leave_after_their_first_session(tmp_path: Path) -> None:
    machine = Machine({"original": 1e-3, "a": 5e-4, "b": 1e-9, "c": 1e-3}, {"b": -GOOD}, {"c": "turn"})
    found = play(tmp_path, machine, contestants("a", "b", "c"))
    assert [machine.opened.count(name) for name in ("a", "b", "c")] == [4, 1, 1]
    assert [found.verdicts[name].verified for name in ("a", "b", "c")] == [True, False, False]
    assert found.verdicts["b"].max_rel_error == pytest.approx(2.0)


def test_one_model_is_timed_once_and_counts_for_all_that_are_it(tmp_path: Path) -> None:
    def found(name: str, model: str, deployment: str, **options: Any) -> Contestant:
        path = tmp_path / name / "result.onnx"
        path.parent.mkdir()
        path.write_text(model)
        path.with_name("result.onnx.json").write_text(deployment)
        return Contestant(name, "planted", path, options)

    others = [
        found("a", "fast", "1 thread"), found("b", "fast", "1 thread"), found("c", "fast", "2 threads"),
        found("d", "other", "1 thread"), found("e", "fast", "1 thread", plain=True),
    ]  # fmt: skip
    machine = Machine({"original": 1e-3, **dict.fromkeys("acde", 5e-4)}, instance=0.05, seed=3)
    verdicts = play(tmp_path / "judged", machine, others).verdicts
    assert {name: verdict.judged_as for name, verdict in verdicts.items()} == {
        "a": "", "b": "a", "c": "", "d": "", "e": "",
    }  # fmt: skip
    assert "b" not in machine.opened
    assert verdicts["b"].sessions == verdicts["a"].sessions != verdicts["c"].sessions


def test_what_disturbed_a_session_is_reported(tmp_path: Path) -> None:
    found = play(tmp_path, Machine({"original": 1e-3, "a": 5e-4}), contestants("a"))
    assert found.facts["disturbed_sessions"] == [2]
    assert found.facts["sessions_played"] == 4


def test_contestants_have_names_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names of their own"):
        play(tmp_path, Machine({}), contestants("a", "a"))


def test_sessions_are_processes_of_their_own(tmp_path: Path) -> None:
    """Processes differ: the interval must show it, however alike the rounds of each are."""
    machine = Machine({"original": 1e-3, "a": 1e-3}, instance=0.05, noise=1e-4, seed=5)
    verdict = play(tmp_path, machine, contestants("a")).verdicts["a"]
    assert verdict.wall is not None
    assert verdict.wall.high / verdict.wall.low > 1.03
    assert np.std(verdict.sessions) > 0.01
