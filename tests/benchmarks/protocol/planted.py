"""Planted seats, searches and tools: a judgement and a harness on clocks that stand still between runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.harness import Tools
from benchmarks.protocol.judging.contestant_process import write_outputs
from benchmarks.protocol.judging.judge import Judge, Protocol
from benchmarks.protocol.judging.judgement import MakeJudge
from benchmarks.protocol.judging.outputs import OutputCheck
from benchmarks.protocol.judging.seats import SeatError
from benchmarks.protocol.searches.runs import DONE, RESULT, Run

GOOD = np.linspace(-1.0, 1.0, 5, dtype=np.float32)


@dataclass
class Machine:
    """Contestants by name with their seconds per run; the whole machine slows down by `drift` with every turn."""

    seconds: Mapping[str, float]
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Outputs other than `GOOD`."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Contestants that fail: at `open`, or at `turn`."""
    drift: float = 0.0
    noise: float = 0.0
    instance: float = 0.0
    """Standard deviations of a turn and of a session's process, of the log of the time."""
    seed: int = 0
    turns: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    lanes: set[int] = field(default_factory=set)
    open_now: int = 0
    most_open: int = 0
    before_turn: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._rng, self._counting = np.random.default_rng(self.seed), Lock()

    @contextmanager
    def seat(self, contestant: Contestant, lane: int) -> Iterator[PlantedSeat]:
        with self._counting:
            self.lanes.add(lane)
            self.open_now += 1
            self.most_open = max(self.most_open, self.open_now)
        try:
            yield PlantedSeat(self, contestant.name, float(self._rng.normal(0.0, self.instance)))
        finally:
            with self._counting:
                self.open_now -= 1

    def time(self, name: str, instance: float) -> float:
        slower = 1.0 + self.drift * len(self.turns)
        return self.seconds[name] * slower * float(np.exp(instance + self._rng.normal(0.0, self.noise)))


@dataclass
class PlantedSeat:
    """A contestant on the planted machine."""

    machine: Machine
    name: str
    instance: float

    def open(self, outputs: Path | None) -> dict[str, Any]:
        self.machine.opened.append(self.name)
        if self.machine.broken.get(self.name) == "open":
            raise SeatError("it does not open")
        if outputs is not None:
            value = self.machine.outputs.get(self.name, GOOD)
            write_outputs(outputs, [[value], [value]])
        return {"run_s": self.machine.seconds[self.name], "bytes": 100, "huge_bytes": 64}

    def turn(self, inputs: Sequence[int]) -> dict[str, Any]:
        self.machine.before_turn()
        if self.machine.broken.get(self.name) == "turn":
            raise SeatError("its process ended with SIGSEGV")
        seconds = self.machine.time(self.name, self.instance)
        self.machine.turns.append((self.name, tuple(inputs)))
        return {"wall": seconds, "cpu": seconds / 2}


def contestants(*names: str) -> list[Contestant]:
    return [Contestant(name, "planted") for name in names]


def make_judge(machine: Machine, folder: Path, protocol: Protocol, **options: Any) -> MakeJudge:
    def make(original: Contestant, others: Sequence[Contestant]) -> Judge:
        folder.mkdir(parents=True, exist_ok=True)
        return Judge(original, others, machine.seat, OutputCheck(folder, 1e-4), protocol, **options)

    return make


def outcome(run: Run, **changes: Any) -> dict[str, Any]:
    """An outcome as a search leaves it: half the time, by its own measurement."""
    return {
        "status": DONE, "run": run.to_json(), "reason": "", "kept_original": False, "verified": True,
        "max_rel_error": 1e-6, "size_growth": 1.5, "measurements": 7, "seconds": run.budget_s, "pricing_s": 0.5,
        "rewrites": [{"rule": "A", "sites": 2}], "actions": None, "trajectory": [[1.0, 2, 1.5]],
        "search": {"speedup": 2.0, "speedup_ci95": [1.9, 2.1], "latency_ms": 1.0 + run.seed / 7, "baseline_ms": 2.0},
    } | changes  # fmt: skip


@dataclass
class Searches:
    """A planted search: remembers what was asked, and leaves a file of the run's own."""

    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Changes of the outcome, by the run's contestant name."""
    made: list[str] = field(default_factory=list)
    interrupt_at: str = ""
    """The run, `MODEL NAME`, at which Ctrl-C comes."""

    def __call__(self, runs: Sequence[tuple[Run, Path]]) -> list[dict[str, Any]]:
        return [self._search(run, folder) for run, folder in runs]

    def _search(self, run: Run, folder: Path) -> dict[str, Any]:
        name = f"{run.model} {run.contestant}"
        (folder / RESULT).write_text(name)
        if name == self.interrupt_at:
            raise KeyboardInterrupt
        self.made.append(name)
        return outcome(run, **self.changes.get(run.contestant, {}))


def tools(
    folder: Path, machine: Machine, searches: Searches, protocol: Protocol, peers: Mapping[str, Any] | None = None
) -> Tools:
    """Tools of a harness that start no process."""

    def locate(model: str) -> Path:
        path = folder / f"{model}.onnx"
        if not path.exists():
            path.write_text(model)
        return path

    return Tools(
        locate=locate, search=searches,
        judging=lambda model, place: make_judge(machine, place / "outputs", protocol),
        wait=lambda what: {"steal": 0.0, "busy": 0.0, "lost": 0.0, "quiet": True, "waited_s": 0.0},
        peers=dict(peers or {}), commit="abc", setting={"threads": 1},
    )  # fmt: skip
