"""One whole optimisation of a random model: search, conclusion, validation, writing, and the verdict on what was
written."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import onnx

import rewritegym
from agents.core.registry import AGENTS
from agents.optimization import run as optimization_run
from agents.optimization.outcome import Optimization
from graph_rewrite import save
from graph_rewrite.delivery import comparison_process
from graph_rewrite.delivery.deployed import deployment_of
from graph_rewrite.delivery.deployment_code import deployment_code
from graph_rewrite.latency import Deployment
from graph_rewrite.runtime.ort_worker import comparison
from graph_rewrite.task.problem import open_problem
from tests.envs.fakes import OperatorCountMeter
from tests.fuzzing.optimisations.generator import RandomModel, random_model
from tests.fuzzing.optimisations.rounding import Judge, difference, told
from tests.fuzzing.optimisations.running import run
from tests.fuzzing.optimisations.walk import LastIsBest, WalkAgent

MAGNITUDES = (1.0, 0.01, 20.0)
BATCHES = (1, 3, 5)
_FEEDS = 1000
_WRITTEN = {"out.onnx", "out.onnx.deployment.json", "out.onnx.actions.json", "out.onnx.data"}


@dataclass(frozen=True)
class Verdict:
    """What became of a model: `fault` is empty where all is well."""

    seed: int
    operators: frozenset[str]
    rules: Mapping[str, int]
    """Sites that were rewritten in what was judged, by rule."""
    fault: str = ""
    kind: str = ""
    """The kind of fault: `mismatch`, `crash`, or `files`."""
    refused: str = ""
    """Why the checks refused the rewritten model, or the original, although nothing is wrong with it, in words; that
    is documented in docs/guides/limits.md."""
    told: float = 1.0
    """Share of the output elements of which the comparison tells something."""
    judged: int = 0
    """Number of inputs on which the written file was compared."""
    symbolic: bool = False
    message: str = ""


@contextmanager
def planted(agent: str) -> Iterator[None]:
    """Measure by a planted meter, compare in this process instead of a new one each time, and know the walk."""

    def in_this_process(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        module = command.index("ort_worker.comparison")
        return subprocess.CompletedProcess(command, comparison.main(list(command[module + 1 :])), "", "")

    kind = LastIsBest if agent == "walk" else OperatorCountMeter
    opened = partial(open_problem, meter=lambda model, deployment, folder: kind(model.original))
    processes = mock.Mock(run=in_this_process, TimeoutExpired=subprocess.TimeoutExpired)
    with (
        mock.patch.object(optimization_run, "open_problem", opened),
        mock.patch.object(comparison_process, "subprocess", processes),
        mock.patch.dict(AGENTS, {"walk": f"{WalkAgent.__module__}:WalkAgent"}),
    ):
        yield


def check(seed: int, folder: Path, agent: str = "walk") -> Verdict:
    """Make the model of a seed, optimise it, and judge what is written; failing models stay in the folder."""
    return judged(random_model(random.Random(seed)), seed, folder, agent)


def judged(model: RandomModel, seed: int, folder: Path, agent: str = "walk") -> Verdict:
    """Optimise a model, and compare what is written with the original in plain ONNX Runtime."""
    path = folder / f"model-{seed}.onnx"
    onnx.save(model.proto, str(path))
    told_of = partial(Verdict, seed, model.operators, symbolic=model.is_symbolic)
    with tempfile.TemporaryDirectory(dir=folder) as written:
        WalkAgent.last = None
        try:
            with planted(agent), mock.patch.dict(os.environ, {"REWRITEGYM_WORKSPACE": str(folder / "work")}):
                found = rewritegym.optimize(
                    path, Path(written, "out.onnx"), time_limit="10m", threads=1, agent=agent, seed=seed,
                    max_size_growth=1e9, size_price=0.0, memory=False,
                )  # fmt: skip
        except Exception as error:
            import traceback

            return told_of({}, fault=f"{type(error).__name__}: {error}\n{traceback.format_exc()}", kind="crash")
        rules = dict(found.result.rule_histogram)
        told_of = partial(told_of, rules, message=found.message)
        if found.result.rule_faults:
            return told_of(fault="\n".join(found.result.faults.tracebacks.values()), kind="crash")
        judge = Judge(model.proto, model.float_types)
        if not found.verified:
            fault = _own_differences(model, judge, path, seed)
            path.unlink() if fault else None
            return told_of(refused=found.message) if fault else told_of(fault=found.message, kind="files")
        if fault := _files(Path(written)):
            return told_of(fault=fault, kind="files")
        fault, share, count = _compare(model, judge, _as_printed(found.deployment, Path(written, "out.onnx")), seed)
        if fault:
            return told_of(fault=fault, kind="mismatch")
        refused = _is_refused(model, found)
        if refused and (wrong := _compare(model, judge, _saved_walk(Path(written)), seed)[0]):
            return told_of(fault=f"the checks caught it ({found.message}): {wrong}", kind="mismatch")
    path.unlink()
    return told_of(told=share, judged=count, refused=found.message if refused else "")


def _files(folder: Path) -> str:
    """Return what is wrong with the files that were written; empty where all is well."""
    names = {file.name for file in folder.iterdir()}
    if not {"out.onnx", "out.onnx.deployment.json"} <= names <= _WRITTEN:
        return f"the folder holds {sorted(names)}"
    onnx.checker.check_model(str(folder / "out.onnx"))
    return ""


def _compare(model: RandomModel, judge: Judge, session: Any, seed: int) -> tuple[str, float, int]:
    """Run a session on fresh inputs. Return what differs, the share of elements that the comparison tells something
    about, and the number of inputs."""
    share, count = 1.0, 0
    for number, magnitude in enumerate(MAGNITUDES):
        feeds = model.feeds(_FEEDS + 7 * seed + number, magnitude, BATCHES[number] if model.is_symbolic else 1)
        if (reference := judge.reference(feeds)) is None:
            continue
        if fault := difference(reference, run(session, feeds)):
            return f"input {number}: {fault}", 0.0, count
        share, count = min(share, told(reference)), count + 1
    return "", share, count


def _as_printed(deployment: Deployment, path: Path) -> Any:
    """Open a file by the code that is printed for it."""
    space: dict[str, Any] = {}
    exec(deployment_code(deployment, path)["python"], space)
    return space["session"]


def _own_differences(model: RandomModel, judge: Judge, path: Path, seed: int) -> str:
    """Return how the original differs from itself when ONNX Runtime optimises it."""
    return _compare(model, judge, _as_printed(Deployment(), path), seed)[0]


def _is_refused(model: RandomModel, found: Optimization) -> bool:
    """Return whether a walk ended at another graph than the original, which is what came out."""
    return WalkAgent.last is not None and not model.is_symbolic and found.result.is_original


def _saved_walk(folder: Path) -> Any:
    assert WalkAgent.last is not None
    path = save(WalkAgent.last, folder / "refused.onnx")
    return _as_printed(deployment_of(WalkAgent.last, Deployment()), path)
