"""Executors of simulations: this process, or several that are forked off it.

A worker begins with this process's memory: the e-graph, the rules, and what they matched. It asks for the time of an
operator that it meets for the first time; one that must be timed is timed when all others are at rest.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from agents.egraph_mcts.simulation import RulePath, SimulationJob, SimulationOutcome, Simulator
from graph_rewrite.egraph.costs import measured_cost
from graph_rewrite.latency import OperatorSpec
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.runtime.ort_worker.following import follow
from graph_rewrite.system.deadline import POLL_S, check_time

Price = Callable[[OperatorSpec], float]


class Executor(Protocol):
    """Runs jobs. Every ticket that `start` gives is to be handed to `finish` once, in any order."""

    def start(self, job: SimulationJob) -> int: ...

    def finish(self, ticket: int) -> SimulationOutcome: ...

    def move(self, path: RulePath) -> None:
        """Restrict later jobs to this path and those below. No job may be on its way."""

    def close(self) -> None: ...


class Inline:
    """Runs jobs in this process."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._outcomes: list[SimulationOutcome | None] = []

    def start(self, job: SimulationJob) -> int:
        self._outcomes.append(self._simulator.run(job))
        return len(self._outcomes) - 1

    def finish(self, ticket: int) -> SimulationOutcome:
        outcome, self._outcomes[ticket] = self._outcomes[ticket], None
        assert outcome is not None, f"ticket {ticket} was handed in before"
        return outcome

    def move(self, path: RulePath) -> None:
        self._simulator.move(path)

    def close(self) -> None:
        """Nothing to end."""


class WorkerDied(RuntimeError):
    """A process that simulates is gone."""

    def __init__(self) -> None:
        super().__init__("a process that ran simulations was ended from outside: out of memory?")


def _send(connection: Connection, message: object) -> None:
    try:
        connection.send(message)
    except OSError as error:
        raise WorkerDied from error


class Pool:
    """Runs jobs in forked processes.

    Args:
        simulator: what each of them begins with.
        workers: how many.
        price: what an operator takes, for simulators whose costs are `measured_cost`; None for others.
        needs_timing: whether `price` would have to time an operator.
    """

    def __init__(
        self, simulator: Simulator, workers: int, price: Price | None, needs_timing: Callable[[OperatorSpec], bool]
    ) -> None:
        self._own, self._price, self._needs_timing = simulator, price, needs_timing
        context = multiprocessing.get_context("fork")
        self._connections: list[Connection] = []
        self._processes: list[Any] = []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            self._connections.append(ours)
            arguments = (simulator, theirs, tuple(self._connections), price is not None, os.getpid())
            process = context.Process(target=_work, args=arguments, daemon=True, name="egraph-mcts simulation")
            process.start()
            theirs.close()
            self._processes.append(process)
        self._idle = [*self._connections]
        self._asking: dict[Connection, OperatorSpec] = {}
        self._running: dict[Connection, int] = {}
        self._queue: list[tuple[int, SimulationJob]] = []
        self._outcomes: dict[int, SimulationOutcome] = {}
        self._tickets = 0

    @staticmethod
    def is_possible() -> bool:
        """Return whether processes can be forked safely here: on Linux."""
        return sys.platform == "linux"

    def start(self, job: SimulationJob) -> int:
        ticket, self._tickets = self._tickets, self._tickets + 1
        self._queue.append((ticket, job))
        self._hand_out()
        return ticket

    def finish(self, ticket: int) -> SimulationOutcome:
        while ticket not in self._outcomes:
            check_time()
            for connection in wait([*self._running], timeout=POLL_S):
                assert isinstance(connection, Connection)
                self._receive(connection)
            self._answer()
            self._hand_out()
        return self._outcomes.pop(ticket)

    def move(self, path: RulePath) -> None:
        self._own.move(path)
        for connection in self._connections:
            _send(connection, path)

    def close(self) -> None:
        """End the processes, whatever they do."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.kill()
            process.join()
        self._connections, self._processes = [], []

    def _hand_out(self) -> None:
        """Give waiting jobs to idle workers; not while one waits for an operator to be timed."""
        while self._queue and self._idle and not self._asking:
            ticket, job = self._queue.pop(0)
            connection = self._idle.pop(0)
            self._running[connection] = ticket
            _send(connection, job)

    def _receive(self, connection: Connection) -> None:
        try:
            message = connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerDied from error
        if isinstance(message, SimulationOutcome):
            if message.faults is not None and self._own.faults is not None:
                self._own.faults.add(message.faults)
            self._outcomes[self._running.pop(connection)] = message
            self._idle.append(connection)
        elif isinstance(message, OperatorSpec):
            self._asking[connection] = message
        else:
            raise message

    def _answer(self) -> None:
        """Say what operators take: at once where it is known, else when nobody computes."""
        if self._price is None:
            return
        at_rest = len(self._asking) == len(self._running)
        answers = [
            (connection, self._price(spec))
            for connection, spec in self._asking.items()
            if at_rest or not self._needs_timing(spec)
        ]
        for connection, ms in answers:
            del self._asking[connection]
            _send(connection, ms)


class _Asking:
    """A worker's prices: asked for once, and what was waited for them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, float] = {}
        self.seconds = 0.0

    def __call__(self, spec: OperatorSpec) -> float:
        ms = self._known.get(spec.key)
        if ms is None:
            begin = time.monotonic()
            self._connection.send(spec)
            ms = self._known[spec.key] = float(self._connection.recv())
            self.seconds += time.monotonic() - begin
        return ms


def _work(
    simulator: Simulator, connection: Connection, others: tuple[Connection, ...], asks: bool, parent: int
) -> None:
    """Serve as a worker until nobody asks any more: paths are moves, jobs are run."""
    follow(parent)
    for other in others:
        other.close()
    prices, until = _Asking(connection), [math.inf]
    if asks:
        simulator.use(measured_cost(prices))
    simulator.out_of_time = lambda: time.monotonic() - prices.seconds >= until[0]
    # Most of what a simulation makes lives as long as its e-graph: looking through it for cycles takes a tenth of the
    # time, and finds none.
    gc.freeze()
    gc.disable()
    while True:
        reply: SimulationOutcome | Exception | None = None
        try:
            message = connection.recv()
            if isinstance(message, SimulationJob):
                until[0] = time.monotonic() - prices.seconds + message.seconds
                reply = _counted(simulator, message)
            else:
                simulator.move(message)
                gc.collect()
                gc.freeze()
        except (EOFError, ConnectionError):
            return  # nobody asks any more
        except Exception as error:
            reply = _portable(error)
        if reply is not None:
            try:
                connection.send(reply)
            except ConnectionError:
                return


def _counted(simulator: Simulator, job: SimulationJob) -> SimulationOutcome:
    """Run a job, and count the faults of rules on the way for the process that asked."""
    if simulator.faults is None:
        return simulator.run(job)
    simulator.faults = RuleFaults()
    outcome = simulator.run(job)
    return replace(outcome, faults=simulator.faults or None)


def _portable(error: Exception) -> Exception:
    """An error, or one that says the same, that can be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:  # whatever its class makes of that
        return RuntimeError(f"{type(error).__name__} in a simulation: {error}")
