"""The judgement: the original and all contestants of a model, timed in turn, in fresh processes for every session.

A session opens a process per contestant, in shuffled order, as many at once as fit into memory beside one of the
original; what does not fit follows with another process of the original. Where the memory of a process lies depends on
when it was opened: of processes of one model those that were opened first run slower as long as they live, by 1% or 2%
on a Zen 4. Therefore the first is a placeholder that is never timed, and over the sessions the place of the original
behind it goes evenly from the first to the last. Each group then plays rounds: in a round every
contestant has one turn, in shuffled order, of equally many runs on the same inputs, after one untimed run that brings
its weights back into the caches, and back into memory where they left it: without that run, many contestants
of BERT-base seemed to take twice as long as they do. Inputs rotate from run to run.

Sessions may be played side by side, each in a lane of its own: the cores of a lane run its processes alone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.judging.outputs import OutputCheck
from benchmarks.protocol.judging.seats import Seat, SeatError, Seating
from graph_rewrite.errors import MachineError

MOST_RUNS = 400
"""Runs of a turn."""


@dataclass(frozen=True)
class Protocol:
    """The settings of a judgement."""

    sessions: int = 6
    """Processes per contestant."""
    rounds: int = 8
    """Turns of each contestant in a session, at most."""
    session_s: float = 2.0
    """Seconds of the original's turns in a session: slow models have fewer rounds, but at least `least_rounds`."""
    least_rounds: int = 4
    inputs: int = 8
    """Different inputs that rotate."""
    turn_s: float = 0.05
    """Seconds that a turn of the original takes at least; one run where that takes longer."""
    seed: int = 0
    """Seed of the orders and of the inputs."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for the results file."""
        return asdict(self)


@dataclass
class SessionTimes:
    """Seconds per run in each round of one session: of the contestant, and of the original in its group, by two
    clocks."""

    session: int
    group: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    original_wall: list[float] = field(default_factory=list)
    original_cpu: list[float] = field(default_factory=list)


@dataclass
class Session:
    """The outcome of one session: times by contestant, why some have none, and what their outputs are like."""

    number: int
    times: dict[str, SessionTimes] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    """Largest error of the outputs, relative to their scale; infinite where something else is wrong with them. The
    first session compares them."""
    wrong: dict[str, str] = field(default_factory=dict)
    """What is wrong with the outputs of those beyond the tolerance."""
    huge_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes of each contestant's memory in huge pages, once it is open: one that got fewer than in other sessions is
    slower."""
    groups: int = 0
    """Groups that the contestants were opened in, as many at once as fit into memory."""
    interference: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Session:
        """Inverse of `to_json`."""
        times = {name: SessionTimes(**found) for name, found in values["times"].items()}
        return cls(**{**values, "times": times})


Room = Callable[[int], int]
"""Returns how many more processes of so many bytes fit into memory."""


class Judge:
    """Plays sessions of one model.

    Args:
        original: the contestant that all others are compared with.
        seating: gives a contestant its process, on the cores of a lane.
        check: compares outputs; writes them into its folder.
        room: tells how many processes may be open at once.
        stopped: set by `stop`; seats end what they wait for when it is.
    """

    def __init__(
        self,
        original: Contestant,
        contestants: Iterable[Contestant],
        seating: Seating,
        check: OutputCheck,
        protocol: Protocol,
        *,
        room: Room = lambda size: sys.maxsize,
        stopped: Event | None = None,
    ) -> None:
        self._original, self._contestants = original, sorted(contestants, key=lambda one: one.name)
        self._seating, self._check, self._protocol = seating, check, protocol
        self._room, self._stopped = room, stopped or Event()

    def stop(self) -> None:
        """End the sessions under way in other threads."""
        self._stopped.set()

    def session(self, number: int, excluded: Iterable[str] = (), lane: int = 0) -> Session:
        """Play one session, without the contestants that failed before.

        Raises:
            MachineError: the original itself cannot be opened or run.
            JudgeStopped: `stop` was called in another thread.
        """
        left_out = set(excluded)
        rng = np.random.default_rng([self._protocol.seed, number])
        pending = [one for one in self._contestants if one.name not in left_out]
        pending = [pending[place] for place in rng.permutation(len(pending))]
        session = Session(number)
        while pending:
            pending = self._group(session, pending, rng, lane)
            session.groups += 1
        return session

    def _group(
        self, session: Session, pending: list[Contestant], rng: np.random.Generator, lane: int
    ) -> list[Contestant]:
        """Open as many as fit beside the original, play their rounds, and return those that are left."""
        with ExitStack() as stack:
            _, placeholder = self._opened_original(session, stack, lane, self._path(session, self._original))
            run_s, largest = float(placeholder["run_s"]), int(placeholder["bytes"])
            place = self._place(session, max(1, min(len(pending), self._room(largest) - 1)), rng)
            original: Seat | None = None
            seats: dict[str, Seat] = {}
            while pending and (not seats or self._room(largest) > (original is None)):
                if original is None and len(seats) >= place:
                    original, _ = self._opened_original(session, stack, lane)
                contestant, *pending = pending
                seat = stack.enter_context(self._seating(contestant, lane))
                try:
                    found = seat.open(self._path(session, contestant))
                except SeatError as error:
                    session.failures[contestant.name] = str(error)
                    continue
                largest = max(largest, int(found["bytes"]))
                session.huge_bytes[contestant.name] = int(found["huge_bytes"])
                if session.number == 0:
                    self._compare(session, contestant.name)
                seats[contestant.name] = seat
            if original is None:
                original, _ = self._opened_original(session, stack, lane)
            self._play(session, original, seats, run_s, rng)
        return pending

    def _place(self, session: Session, size: int, rng: np.random.Generator) -> int:
        """Return how many of a group of about `size` contestants are opened before the original."""
        sessions = self._protocol.sessions
        order = np.random.default_rng([self._protocol.seed, sessions, session.groups]).permutation(sessions)
        return int((order[session.number % sessions] + rng.random()) / sessions * (size + 1))

    def _opened_original(
        self, session: Session, stack: ExitStack, lane: int, outputs: Path | None = None
    ) -> tuple[Seat, dict[str, Any]]:
        try:
            seat = stack.enter_context(self._seating(self._original, lane))
            found = seat.open(outputs)
        except SeatError as error:
            raise MachineError(f"the original cannot be judged: {error}") from error
        session.huge_bytes[self._original.name] = int(found["huge_bytes"])
        return seat, found

    def _path(self, session: Session, contestant: Contestant) -> Path | None:
        """Return the file for outputs, which are compared in the first session."""
        return self._check.path(contestant.name) if session.number == 0 else None

    def _compare(self, session: Session, name: str) -> None:
        session.errors[name], problem = self._check.compared(self._original.name, name)
        if problem:
            session.wrong[name] = problem

    def _play(
        self, session: Session, original: Seat, seats: dict[str, Seat], run_s: float, rng: np.random.Generator
    ) -> None:
        times = {name: SessionTimes(session.number, session.groups) for name in seats}
        runs, rounds = runs_of_a_turn(run_s, self._protocol), rounds_of_a_session(run_s, self._protocol)
        first = session.number * rounds * runs
        for number in range(rounds if seats else 0):
            inputs = [(first + number * runs + run) % self._protocol.inputs for run in range(runs)]
            order: list[str | None] = [None, *(name for name in seats if name not in session.failures)]
            found: dict[str | None, dict[str, Any]] = {}
            for place in rng.permutation(len(order)):
                name = order[place]
                try:
                    found[name] = (original if name is None else seats[name]).turn(inputs)
                except SeatError as error:
                    if name is None:
                        raise MachineError(f"the original cannot be judged: {error}") from error
                    session.failures[name] = str(error)
            for name in found:
                if name is not None:
                    _add(times[name], found[name], found[None])
        session.times.update({name: taken for name, taken in times.items() if name not in session.failures})


def _add(times: SessionTimes, own: dict[str, Any], original: dict[str, Any]) -> None:
    times.wall.append(own["wall"])
    times.cpu.append(own["cpu"])
    times.original_wall.append(original["wall"])
    times.original_cpu.append(original["cpu"])


def runs_of_a_turn(run_s: float, protocol: Protocol) -> int:
    """Return the runs of a turn, the same for all contestants of a group, for an original that takes `run_s`."""
    return min(MOST_RUNS, max(1, math.ceil(protocol.turn_s / max(run_s, 1e-9)), _coverage(protocol)))


def rounds_of_a_session(run_s: float, protocol: Protocol) -> int:
    """Return the rounds of a session, for an original that takes `run_s`. Where they are too few for all inputs, the
    next session goes on with the others."""
    turn_s = run_s * (1 + runs_of_a_turn(run_s, protocol))
    enough = int(protocol.session_s / max(turn_s, 1e-9))
    return min(protocol.rounds, max(protocol.least_rounds, enough))


def _coverage(protocol: Protocol) -> int:
    """Return the runs of a turn with which the rounds cover all inputs."""
    return math.ceil(protocol.inputs / protocol.rounds)
