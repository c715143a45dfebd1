"""A process that steps an environment for long does not grow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak import LIMIT_MB

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_memory_settles() -> None:
    """A small transformer, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.soak",
        "--model",
        "zoo://bert?layers=2&hidden=32&heads=2&vocab=100",
    ]
    done = subprocess.run(
        [*command, "--steps", "1200", "--warm-up", "600", "--every", "600", "--json"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["resident_mb"]) == 3
    assert found["growth_mb"] == found["resident_mb"][-1] - found["resident_mb"][0] < LIMIT_MB
