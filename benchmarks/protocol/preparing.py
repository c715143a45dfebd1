"""Peers as contestants: prepared once for a model, and kept with what that depended on."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.reporting.runs import write_json
from benchmarks.protocol import ort_runner
from benchmarks.protocol.contestants import Contestant, check_plain

Prepare = Callable[[Path, Path, int], Contestant]
"""Makes a contestant of a model, with a working folder and a number of threads; raises where the tool is missing."""
KEPT = "peer.json"
_DEVICES: Mapping[str, str] = {ort_runner.MODULE: "provider", "benchmarks.peers.pytorch_runner": "device"}
"""Options of contestants, by module, that name where they run; others have their own device."""


def prepared(
    name: str, prepare: Prepare, model: Path, folder: Path, threads: int, versions: Mapping[str, str]
) -> tuple[Contestant, float]:
    """Return a peer and the seconds that its preparation took. One that was prepared from the same file, for the same
    threads and by the same versions is not prepared again, so that its file stays the one that was judged.

    Raises:
        Exception: whatever the tool says, such as that it is missing; nothing is kept then.
    """
    state = {"model": [str(model), *_state(model)], "threads": threads, "versions": dict(versions), "name": name}
    known = _known(folder / KEPT, state)
    if known is not None:
        return known
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    peer = check_plain(replace(prepare(model, folder, threads), name=name))
    seconds = round(time.monotonic() - began, 3)
    write_json(folder / KEPT, {"state": state, "contestant": peer.to_json(), "seconds": seconds})
    return peer, seconds


def on_device(contestant: Contestant, provider: str) -> Contestant:
    """Return a contestant that runs where the table's originals do, if it can and does not say another device."""
    option = _DEVICES.get(contestant.module)
    if provider == "cpu" or option is None or "deployment" in contestant.options:
        return contestant
    return replace(contestant, options={option: provider, **contestant.options})


def _known(path: Path, state: dict[str, Any]) -> tuple[Contestant, float] | None:
    try:
        kept = json.loads(path.read_text())
        peer, seconds, is_same = Contestant.from_json(kept["contestant"]), kept["seconds"], kept["state"] == state
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (peer, seconds) if is_same and (peer.path is None or peer.path.exists()) else None


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]
