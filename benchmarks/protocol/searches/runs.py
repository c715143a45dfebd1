"""Cold runs: each search in a process of its own that knows nothing of earlier ones, kept in a folder with its outcome.

The folder of a run holds `run.json` (the outcome, written last) and `result.onnx` (the optimised model). A run whose
outcome is there is not repeated; what an interrupted run left is removed before it begins again. Searches may run side
by side, each on cores of its own: an agent waits for what it times, so that one core is enough for both.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

from agents.core.config import load_config, model_uri, uri_parameters
from agents.reporting.runs import file_name
from benchmarks.protocol.machine.processes import child_environment, ending_with_us, pinned
from graph_rewrite import zoo
from graph_rewrite.errors import UserError
from graph_rewrite.system.atomic_files import remove_unfinished

OUTCOME, RESULT = "run.json", "result.onnx"
FOUND = "found.json"
"""What the process of a search says; the outcome has more."""
PROCESS = "benchmarks.protocol.searches.process"
"""The module of the process of a run."""
DONE, MISSING, FAILED = "done", "missing", "failed"
"""States of a run: it has a result; the agent cannot run on this model or machine; it broke."""
LIMIT_FACTOR, LIMIT_S = 4.0, 900.0
"""A run is killed after so many times its budget and these seconds: opening, pricing and checking come on top of it."""
CONCLUSION_SHARE, CONCLUSION_S = 0.3, 90.0
"""Share of the budget, and most seconds, for confirming, saving and checking the result, as for `optimize`."""
SLOWED = 1.3
"""Times the usual latency of the original, as seen by a search, from which something else ran on its core. Undisturbed
searches see 0.94 to 1.19 times the median (Zen 4)."""


@dataclass(frozen=True)
class Run:
    """A search: `agent` as `make_agent` takes it, called `name` in the table. `measurements` is None for no limit."""

    model: str
    name: str
    agent: str
    seed: int
    budget_s: float
    measurements: int | None = None
    threads: int = 1
    batch: int = 1
    kind: str = "agent"
    """`agent` or `control`."""
    provider: str = "cpu"

    @property
    def uri(self) -> str:
        """The model's URI, with the configured parameters and the batch."""
        return uri_of(self.model, self.batch)

    @property
    def contestant(self) -> str:
        """The name among the contestants of a judgement."""
        return f"{self.name}@{self.budget_s:g}/{self.seed}"

    @property
    def place(self) -> Path:
        """The run's folder, relative to that of the table."""
        return Path(file_name(self.model), f"{file_name(self.name)}-{self.budget_s:g}s", str(self.seed))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; what an older version did not name has its default."""
        return cls(**values)


Search = Callable[[Sequence[tuple[Run, Path]]], list[dict[str, Any]]]
"""Carries out runs side by side, each with a folder for its model, and returns the outcomes."""


def uri_of(model: str, batch: int) -> str:
    """Return the URI of a model of the zoo, or of a file, with its configured parameters.

    Raises:
        UserError: a batch for a model that comes from a file.
    """
    parameters = dict(load_config(model).model)
    return model_uri(model, {**parameters, **({"batch": batch} if batch > 1 else {})})


def located(model: str, batch: int) -> Path:
    """Return the file of a model, exported where it is one of the zoo.

    Raises:
        UserError: no such model.
    """
    uri = uri_of(model, batch)
    if uri.startswith("zoo://"):
        return zoo.export(zoo.name_in(uri), **uri_parameters(uri))
    path = Path(uri.removeprefix("file:"))
    if not path.is_file():
        raise UserError(f"{path}: no such model")
    return path.resolve()


def known_outcome(folder: Path, run: Run) -> dict[str, Any] | None:
    """Return the outcome of a run that was carried out already; None where there is none, it ended without a result,
    or it was made with other settings."""
    try:
        outcome: dict[str, Any] = json.loads((folder / OUTCOME).read_text())
        if outcome["status"] != DONE or Run.from_json(outcome["run"]) != run:
            return None
        has_model = outcome["kept_original"] or not outcome["verified"] or (folder / RESULT).is_file()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return outcome if has_model else None


def carried_out(
    runs: Sequence[Run], table: Path, search: Search, at_once: int = 1, anew: Container[Run] = ()
) -> dict[Run, dict[str, Any]]:
    """Return the outcomes of runs, known or new; the files of new ones are written by `search`, which gets `at_once` of
    them at a time. What is known of those `anew` does not count."""
    outcomes = {run: None if run in anew else known_outcome(table / run.place, run) for run in runs}
    missing = [run for run, outcome in outcomes.items() if outcome is None]
    for group in (missing[first : first + at_once] for first in range(0, len(missing), at_once)):
        found = search([(run, _emptied(table / run.place)) for run in group])
        outcomes.update(zip(group, found, strict=True))
    return {run: outcome for run, outcome in outcomes.items() if outcome is not None}


def disturbed(outcomes: Mapping[Run, Mapping[str, Any]]) -> dict[Run, str]:
    """Return the runs that something else disturbed, with the reason: they saw the original take `SLOWED` times as long
    as all of their model did in the median. What they found does not matter. A run is repeated once at most."""
    seen = {run: ms for run, one in outcomes.items() if (ms := one.get("search", {}).get("baseline_ms"))}
    of_model: dict[str, list[float]] = {}
    for run, ms in seen.items():
        of_model.setdefault(run.model, []).append(ms)
    usual = {model: median(all_ms) for model, all_ms in of_model.items()}
    return {
        run: f"the original took {ms:.3g} ms in its first search, {usual[run.model]:.3g} ms in the median of all"
        for run, ms in seen.items()
        if ms > SLOWED * usual[run.model] and not outcomes[run].get("repeated")
    }


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    remove_unfinished(folder.parent)
    return folder


def side_by_side(
    runs: Sequence[tuple[Run, Path]], cores: Sequence[tuple[int, ...]], module: str = PROCESS
) -> list[dict[str, Any]]:
    """Carry out runs at the same time, each in a process of its own; one that breaks has status `failed` with a reason.

    Args:
        runs: with a folder each, of the request, what is found and the model.
        cores: that each process may use; empty for all.
        module: is run with request and folder, and writes what it finds.
    """
    with ExitStack() as processes:
        # Of several, each has a lock for its own measurements: they are on cores of their own.
        waiting = [
            processes.enter_context(_begun(run, folder, own, module, own_lock=len(runs) > 1))
            for (run, folder), own in zip(runs, cores[: len(runs)], strict=True)
        ]
        return [wait() for wait in waiting]


@contextmanager
def _begun(
    run: Run, folder: Path, cores: tuple[int, ...], module: str, *, own_lock: bool
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Begin a run in a fresh process, which ends with the block. Yields a function that waits for what it finds."""
    request, temporary = folder / "request.json", folder / "temporary"
    request.write_text(json.dumps(run.to_json()))
    command = [sys.executable, "-m", module, str(request), str(folder)]
    environment = child_environment(1)
    if own_lock:
        temporary.mkdir()
        environment["TMPDIR"] = str(temporary)
    limit = LIMIT_FACTOR * run.budget_s + LIMIT_S
    ends = time.monotonic() + limit
    with (folder / "log.txt").open("w") as log, pinned(cores):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )

    def wait() -> dict[str, Any]:
        try:
            code = process.wait(ends - time.monotonic())
        except subprocess.TimeoutExpired:
            return failed(run, f"it was killed after {limit:g} s")
        return _found(run, folder, code)

    try:
        with ending_with_us(process):
            yield wait
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _found(run: Run, folder: Path, code: int) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / FOUND).read_text())
    except (OSError, ValueError):
        said = (folder / "log.txt").read_text(errors="replace").strip().splitlines()
        return failed(run, f"it ended with {code}: {said[-1] if said else 'no message'}"[:500])
    return found


def failed(run: Run, reason: str, status: str = FAILED) -> dict[str, Any]:
    """Return the outcome of a run without a result."""
    return {"status": status, "run": run.to_json(), "reason": reason}
