"""Resident memory of a process that steps an environment for a long time.

    python -m benchmarks.soak --model bert [--steps 10000] [--json]

Actions are random legal site and class actions, in episodes of 40 steps that measure no latency. The first steps are
the warm-up: tables and memos of operators, types and shapes fill. `growth_mb` is the resident memory at the end minus
that after the warm-up.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tyro

from benchmarks.env_speed import make_env, rollout

LIMIT_MB = 50.0
"""Growth that is allowed over 10,000 steps on BERT-base."""


@dataclass(frozen=True)
class Arguments:
    """Report the resident memory of a process that steps an environment."""

    model: str = "bert"
    """A name of the zoo, zoo://NAME?PARAMETER=VALUE, or an ONNX file."""
    steps: int = 10_000
    """Steps after the warm-up."""
    warm_up: int = 1_000
    """Steps before memory is first read."""
    every: int = 1_000
    """Steps between two readings."""
    seed: int = 0
    """Seed of the random actions."""
    rules: str = "default"
    """Rule sets, separated by commas: default, generated, taso, or all."""
    json: bool = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True)
class Soak:
    """Resident memory in MB after the warm-up and after every so many steps, and its growth from first to last."""

    resident_mb: list[float]
    growth_mb: float


def soak(arguments: Arguments) -> Soak:
    """Step an environment and read the memory of the process."""
    env, rng = make_env(arguments.model, arguments.rules), np.random.default_rng(arguments.seed)
    readings: list[float] = []
    done, due = 0, arguments.warm_up
    while done < arguments.warm_up + arguments.steps:
        taken = sum(1 for _ in rollout(env, rng))
        if not taken:
            raise ValueError(f"no rule applies to {arguments.model}: there are no steps to take")
        done += taken
        if done >= due:
            readings.append(resident_mb())
            due += arguments.every
            if not arguments.json:
                print(f"{done:6d} steps: {readings[-1]:8.1f} MB", file=sys.stderr, flush=True)
    env.close()
    return Soak(readings, readings[-1] - readings[0])


def resident_mb() -> float:
    """Return the resident memory of this process, after a collection of garbage."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    """Run the command line; exit status 1 where the process grew by more than the limit."""
    arguments = tyro.cli(Arguments, description=__doc__)
    found = soak(arguments)
    if arguments.json:
        print(json.dumps(asdict(found)))
    else:
        print(f"growth: {found.growth_mb:.1f} MB over {arguments.steps} steps; limit {LIMIT_MB:.0f} MB")
    return 0 if found.growth_mb <= LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
