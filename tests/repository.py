"""Paths of the repository, and Python processes that run in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agents", "benchmarks", "envs", "graph_rewrite", "rewritegym")
"""Top-level packages of the distribution."""


def run_python(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter of the tests with these arguments and return its output as text."""
    return run([sys.executable, *arguments], cwd, **environment)


def run(command: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with additional environment variables and return its output as text."""
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
