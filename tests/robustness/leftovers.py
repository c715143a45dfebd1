"""Checks of all that a run leaves: its output, processes, locks, caches and temporary files."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import rewritegym
from graph_rewrite.delivery.deployed import recorded_deployment, sidecar_of
from graph_rewrite.latency import MachineLock
from graph_rewrite.replay import Recording


def living(session: int, patience: float) -> list[str]:
    """Return the commands of the processes of a session that are still alive after so many seconds."""
    until = time.monotonic() + patience
    while (found := _members(session)) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def _members(session: int) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, _, _, its = folder.joinpath("stat").read_text().rpartition(")")[2].split()[:4]
            if int(its) == session and state != "Z":
                found.append(folder.joinpath("cmdline").read_text().replace("\0", " "))
        except (OSError, ValueError):
            continue  # it has just ended
    return found


def check_output(model: Path, output: Path) -> None:
    """Check that an output is a whole model that computes what the original does, and that what lies beside it is
    whole."""
    onnx.checker.check_model(str(output))
    recorded_deployment(output)
    shape = [dim.dim_value for dim in onnx.load(model).graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    plain = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    before, after = (np.asarray(session.run(None, feeds)[0]) for session in (plain, rewritegym.session(output)))
    assert np.allclose(before, after, rtol=1e-3, atol=1e-4 * np.abs(before).max())
    for beside in (sidecar_of(output), output.with_name(f"{output.name}.actions.json")):
        if beside.exists():
            json.loads(beside.read_text())


def check_folders(folder: Path) -> None:
    """Check that no lock is held, and that caches open and hold nothing broken."""
    for lock in (folder / "tmp").glob("**/*.lock"):
        with MachineLock(lock, timeout_s=0.0):
            pass
    cache = folder / "cache"
    if (cache / "latency.sqlite3").exists():
        with closing(sqlite3.connect(cache / "latency.sqlite3")) as connection:
            assert connection.execute("PRAGMA quick_check").fetchone()[0] == "ok"
    for result in (cache / "results").glob("*.json"):
        Recording.from_json(json.loads(result.read_text())["actions"])
    assert not list(cache.glob("**/*corrupt*"))


def cached_rows(folder: Path) -> int:
    """Return the number of measurements in the cache."""
    path = folder / "cache" / "latency.sqlite3"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as connection:
        known = connection.execute("SELECT name FROM sqlite_master WHERE name = 'measurement'").fetchone()
        return int(connection.execute("SELECT count(*) FROM measurement").fetchone()[0]) if known else 0


def check_after_second_run(folder: Path) -> None:
    """Check that a run has removed what a killed one left, and has left nothing itself."""
    left = [path for path in (folder / "tmp").iterdir() if path.name.startswith("rewritegym-") and path.is_dir()]
    hidden = [path for path in (*folder.iterdir(), *(folder / "cache").glob("**/*")) if path.name.startswith(".")]
    assert not left, f"temporary files: {left}"
    assert not hidden, f"unfinished files: {hidden}"
    assert os.access(folder, os.W_OK)
