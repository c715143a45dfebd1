"""The process of a contestant: `python -m benchmarks.protocol.judging.contestant_process CONTESTANT FEEDS THREADS`.

It opens the contestant, reads a request per line from standard input and answers each with a line of JSON on standard
output: `{"do": "open", "outputs": PATH}` opens it, runs it on every input and writes the outputs, or without a path
runs it twice; `{"do": "turn", "inputs": [0, 1, ...]}` runs it untimed on the last of these inputs, so that caches hold
its weights again, then timed on each. Times are seconds per run. It ends with the end of its input.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks.protocol.contestants import Array, Contestant, Runner
from graph_rewrite.runtime.ort_worker.following import follow
from graph_rewrite.system.huge_pages import huge_bytes

WARM_UP_RUNS = 2
"""Runs of a contestant that is opened to be timed only."""
Clock = Callable[[], float]
Feeds = Sequence[Mapping[str, Array]]


class ContestantServer:
    """A contestant with its inputs at hand, answering requests."""

    def __init__(
        self,
        contestant: Contestant,
        feeds: Feeds,
        threads: int,
        wall: Clock = time.perf_counter,
        cpu: Clock = time.process_time,
    ) -> None:
        self._contestant, self._feeds, self._threads = contestant, feeds, threads
        self._wall, self._cpu = wall, cpu
        self._runner: Runner | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request; an exception of the contestant becomes an answer, too."""
        try:
            if request["do"] == "open":
                return self._open(request.get("outputs"))
            return self._turn(request["inputs"])
        except Exception as error:  # whatever a tool says about a model is a finding
            return {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]}

    def _open(self, path: str | None) -> dict[str, Any]:
        began = self._wall()
        self._runner = self._contestant.open(self._threads)
        outputs = []
        for feed in self._feeds if path else self._feeds[:WARM_UP_RUNS]:
            found = self._runner.run(feed)
            if path:  # copied, since outputs are valid until the next run only
                outputs.append([np.array(value) for value in found])
        if path:
            write_outputs(Path(path), outputs)
        run_began = self._wall()
        self._runner.run(self._feeds[0])
        run_s = self._wall() - run_began
        return {
            "opened_s": run_began - began, "run_s": run_s, "bytes": resident_bytes(), "huge_bytes": huge_bytes(),
        }  # fmt: skip

    def _turn(self, inputs: Sequence[int]) -> dict[str, Any]:
        if self._runner is None:
            raise RuntimeError("the contestant is not open")
        run, feeds = self._runner.run, self._feeds
        run(feeds[inputs[-1]])
        was_on = gc.isenabled()
        gc.disable()
        try:
            wall, cpu = self._wall(), self._cpu()
            for place in inputs:
                run(feeds[place])
            cpu, wall = self._cpu() - cpu, self._wall() - wall
        finally:
            if was_on:
                gc.enable()
        return {"wall": wall / len(inputs), "cpu": cpu / len(inputs)}


def write_outputs(path: Path, outputs: Sequence[Sequence[Array]]) -> None:
    """Write the outputs on each input as an .npz file."""
    arrays: dict[str, Any] = {f"{i}-{j}": value for i, values in enumerate(outputs) for j, value in enumerate(values)}
    np.savez(path, **arrays)


def read_outputs(path: Path) -> list[list[Array]]:
    """Inverse of `write_outputs`."""
    outputs: list[list[Array]] = []
    with np.load(path, allow_pickle=False) as archive:
        for i, j in sorted(tuple(map(int, name.split("-"))) for name in archive.files):
            outputs.extend([] for _ in range(i + 1 - len(outputs)))
            assert len(outputs[i]) == j, "outputs are numbered without gaps"
            outputs[i].append(archive[f"{i}-{j}"])
    return outputs


def write_feeds(folder: Path, feeds: Feeds) -> None:
    """Write inputs into a folder, a file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, feed in enumerate(feeds):
        arrays: dict[str, Any] = dict(feed)
        np.savez(folder / f"{place:02}.npz", **arrays)


def read_feeds(folder: Path) -> list[dict[str, Array]]:
    """Inverse of `write_feeds`."""
    feeds = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as archive:
            feeds.append({name: archive[name] for name in archive.files})
    return feeds


def resident_bytes() -> int:
    """Return the memory that this process holds; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def serve(server: ContestantServer, requests: TextIO, answers: TextIO) -> None:
    """Answer requests until there are no more."""
    for line in requests:
        answers.write(json.dumps(server.answer(json.loads(line))) + "\n")
        answers.flush()


def main(arguments: Sequence[str]) -> int:
    """Serve the contestant of the command line. It ends with its parent, and at SIGTERM."""
    follow(os.getppid())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # What libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    contestant = Contestant.from_json(json.loads(arguments[0]))
    serve(ContestantServer(contestant, read_feeds(Path(arguments[1])), int(arguments[2])), sys.stdin, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
