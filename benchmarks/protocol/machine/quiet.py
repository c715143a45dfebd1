"""Interference: how much of the machine others take, measured before every run and every session.

The system says how much time its processors spent for others (`steal`: for other virtual machines; `busy`: for other
processes), and a calibration spins on one core: time that passes and is not its own was taken from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.protocol.machine.processes import pinned

SPIN_S = 0.5
"""Seconds of a calibration."""
PAUSE_S = 5.0
"""Seconds between two looks at a busy machine."""


@dataclass(frozen=True)
class Interference:
    """Shares of the machine, 0 to 1, that were not ours."""

    steal: float
    """Of all processors, taken by the hypervisor."""
    busy: float
    """Of the processors, used by other processes while one of ours spun."""
    lost: float
    """Of the time of the core that was spun on."""

    @property
    def is_quiet(self) -> bool:
        """True where timings mean what they say."""
        return self.steal <= 0.02 and self.lost <= 0.02 and self.busy <= 0.25

    def to_json(self) -> dict[str, float]:
        """Return plain values, for the results file."""
        return {name: round(value, 4) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return f"{self.lost:.1%} of the core, {self.busy:.1%} of all processors, {self.steal:.1%} stolen"


Look = Callable[[], Interference]


def _processor_times() -> tuple[float, float, float] | None:
    """Return seconds of all processors so far: used, stolen, and all."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, idle, waiting, irq, soft, steal = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields)
    used = user + nice + system + irq + soft
    return used, steal, used + steal + idle + waiting


def measure(cores: Sequence[int] = (), seconds: float = SPIN_S) -> Interference:
    """Spin on the last of `cores` for some seconds, and return what others took meanwhile."""
    before = _processor_times()
    with pinned(cores[-1:]):
        wall, own = time.perf_counter(), time.thread_time()
        while time.perf_counter() - wall < seconds:
            pass
        passed, own = time.perf_counter() - wall, time.thread_time() - own
    after = _processor_times()
    lost = min(1.0, max(0.0, 1.0 - own / passed))
    if before is None or after is None or after[2] <= before[2]:
        return Interference(0.0, 0.0, lost)
    used, steal, total = (late - early for late, early in zip(after, before, strict=True))
    return Interference(steal / total, min(1.0, max(0.0, (used - own) / total)), lost)


class QuietMachine:
    """Waits until the machine is quiet, in all at most `patience_s` seconds in a row.

    Args:
        look: measures the interference.
        say: tells the user why nothing happens.
    """

    def __init__(
        self,
        look: Look,
        patience_s: float = 240.0,
        say: Callable[[str], None] = lambda text: None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._look, self._patience, self._say, self._sleep = look, patience_s, say, sleep
        self._waited = 0.0

    def wait(self, what: str) -> dict[str, Any]:
        """Wait before `what`. Return the interference that is left, and the seconds that were waited.

        On a machine that stays busy the patience is spent once: later calls only measure, until it was quiet again.
        """
        waited, found = 0.0, self._look()
        while not found.is_quiet and self._waited < self._patience:
            if not waited:
                self._say(f"{what} waits for a quiet machine: others take {found}")
            self._sleep(PAUSE_S)
            waited, self._waited = waited + PAUSE_S, self._waited + PAUSE_S
            found = self._look()
        if found.is_quiet:
            self._waited = 0.0
        elif waited:
            self._say(f"{what} begins all the same: others take {found}; the results say so")
        return {**found.to_json(), "quiet": found.is_quiet, "waited_s": round(waited, 1)}
