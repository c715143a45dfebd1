"""Waiting for a quiet machine, on a planted one; cores; and what the real machine says of itself."""

import os

import pytest

from benchmarks.protocol.machine import description
from benchmarks.protocol.machine.description import available_memory, machine, machine_name, room, versions
from benchmarks.protocol.machine.processes import child_environment, cores_for, pinned
from benchmarks.protocol.machine.quiet import PAUSE_S, Interference, QuietMachine, measure

QUIET, BUSY = Interference(0.0, 0.01, 0.001), Interference(0.0, 0.5, 0.3)


class PlantedMachine:
    """A machine that is busy for so many looks."""

    def __init__(self, busy: int) -> None:
        self.busy, self.slept, self.said = busy, 0.0, list[str]()

    def look(self) -> Interference:
        self.busy -= 1
        return BUSY if self.busy >= 0 else QUIET

    def sleep(self, seconds: float) -> None:
        self.slept += seconds

    def watch(self, patience_s: float) -> QuietMachine:
        return QuietMachine(self.look, patience_s, self.said.append, sleep=self.sleep)


def test_a_quiet_machine_is_not_waited_for() -> None:
    machine = PlantedMachine(0)
    found = machine.watch(60.0).wait("a run")
    assert found == {"steal": 0.0, "busy": 0.01, "lost": 0.001, "quiet": True, "waited_s": 0.0}
    assert not machine.said


def test_a_busy_machine_is_waited_for_and_told_of_once() -> None:
    machine = PlantedMachine(3)
    found = machine.watch(60.0).wait("a run")
    assert found["quiet"]
    assert found["waited_s"] == machine.slept == 3 * PAUSE_S
    assert len(machine.said) == 1
    assert "30.0% of the core" in machine.said[0]


def test_patience_ends_and_the_interference_is_recorded() -> None:
    machine = PlantedMachine(10**6)
    watch = machine.watch(4 * PAUSE_S)
    found = watch.wait("a run")
    assert not found["quiet"]
    assert found["lost"] == 0.3
    assert found["waited_s"] == 4 * PAUSE_S
    assert "begins all the same" in machine.said[-1]
    assert watch.wait("another run")["waited_s"] == 0.0
    machine.busy = 0
    assert watch.wait("a third")["quiet"]
    machine.busy = 2
    assert watch.wait("a fourth")["waited_s"] == 2 * PAUSE_S


@pytest.mark.parametrize("loud", [Interference(0.05, 0.0, 0.0), Interference(0.0, 0.4, 0.0), Interference(0, 0, 0.05)])
def test_any_kind_of_interference_counts(loud: Interference) -> None:
    assert not loud.is_quiet


def test_the_real_machine_answers() -> None:
    found = measure((), 0.05)
    assert all(0.0 <= share <= 1.0 for share in found.to_json().values())
    described = machine()
    assert described["cpu"]
    assert described["cores"] >= described["cores_allowed"] >= 1
    assert described["memory"] > available_memory() > 0
    assert machine_name().replace("-", "").isalnum()
    assert {"python", "onnx", "numpy"} <= versions().keys()
    assert room(1 << 20) > 10
    assert room(described["memory"]) == 0


def test_a_device_names_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(description, "gpu_model", lambda: "NVIDIA H100 80GB HBM3, 580.159.04")
    assert machine_name("cuda") == "nvidia-h100-80gb-hbm3"
    assert machine("cuda") == {**machine(), "gpu": "NVIDIA H100 80GB HBM3, 580.159.04"}


def test_outside_a_clone_a_variable_tells_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(description.COMMIT_VARIABLE, "0123456789ab")
    assert description.commit() == "0123456789ab"


def test_cores_are_of_different_physical_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5"}
    monkeypatch.setattr("benchmarks.protocol.machine.processes._siblings", siblings.__getitem__)
    assert cores_for(1, [0, 1, 4, 5]) == (5,)
    assert cores_for(2, [0, 1, 4, 5]) == (4, 5)
    assert cores_for(3, [0, 1, 4, 5]) == (1, 4, 5)
    assert cores_for(9, [0, 1]) == (0, 1)


def test_children_find_this_code_and_are_pinned() -> None:
    assert child_environment(3)["OMP_NUM_THREADS"] == "3"
    before = os.sched_getaffinity(0)
    core = max(before)
    with pinned((core,)):
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before
