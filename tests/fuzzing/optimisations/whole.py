"""One whole optimisation of a random model: search, conclusion, validation, writing, and the verdict on what was
written."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
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
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.runtime.ort_worker import comparison
from graph_rewrite.task.problem import open_problem
from tests.envs.fakes import OperatorCountMeter
from tests.fuzzing.optimisations.generator import RandomModel, random_model
from tests.fuzzing.optimisations.rounding import Judge, difference, told
from tests.fuzzing.optimisations.running import opened, run
from tests.fuzzing.optimisations.walk import LastIsBest, WalkAgent

MAGNITUDES = (1.0, 0.01, 20.0)
BATCHES = (1, 3, 5)
_FEEDS = 1000
_OWN_INPUTS = 40
_WRITTEN = {"out.onnx", "out.onnx.deployment.json", "out.onnx.actions.json", "out.onnx.data"}


@dataclass(frozen=True)
class Verdict:
    """The outcome for a model: `fault` is empty where all is well."""

    seed: int
    operators: frozenset[str]
    rules: Mapping[str, int] = field(default_factory=dict)
    """Sites that were rewritten in what was judged, by rule."""
    fault: str = ""
    kind: str = ""
    """The kind of fault: `mismatch`, `crash`, `files`, or `fuzzer` for a bug of these tests."""
    refused: str = ""
    """Why the checks refused the rewritten model although the judge finds nothing wrong with it, or why nothing at all
    is written, in words; docs/guides/limits.md describes both."""
    told: float = 1.0
    """Share of the output elements of which the comparison tells something."""
    judged: int = 0
    """Number of inputs on which the written file was compared."""
    symbolic: bool = False


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
    known = Verdict(seed, model.operators, symbolic=model.is_symbolic)
    with tempfile.TemporaryDirectory(dir=folder) as written:
        try:
            found, heard = _optimised(path, Path(written, "out.onnx"), seed, agent)
        except Exception as error:
            words = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            return replace(known, fault=words, kind="crash")
        known = replace(known, rules=dict(found.result.rule_histogram))
        if heard or found.result.rule_faults:
            words = "\n".join([*heard, *found.result.faults.tracebacks.values()])
            return replace(known, fault=words, kind="crash")
        verdict = _verdict(model, known, found, path, Path(written))
    if not verdict.fault:
        path.unlink()
    return verdict


def _optimised(path: Path, output: Path, seed: int, agent: str) -> tuple[Optimization, list[str]]:
    """Optimise a file. Return the outcome, and warnings of numbers that went wrong on the way."""
    WalkAgent.path = ()
    folder = {"REWRITEGYM_WORKSPACE": str(path.parent / "work")}
    with planted(agent), mock.patch.dict(os.environ, folder), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", RuntimeWarning)
        found = rewritegym.optimize(
            path, output, time_limit="10m", threads=1, agent=agent, seed=seed, max_size_growth=1e9, size_price=0.0,
            memory=False,
        )  # fmt: skip
    numeric = [one for one in heard if issubclass(one.category, RuntimeWarning)]
    return found, [f"{one.filename}:{one.lineno}: {one.message}" for one in numeric]


def _verdict(model: RandomModel, known: Verdict, found: Optimization, path: Path, folder: Path) -> Verdict:
    """Judge the files of an outcome, or its reason for writing none."""
    judge, seed = Judge(model.proto, model.float_types), known.seed
    if not found.verified:
        if "a copy of it does not agree" in found.message and _changes_itself(model, path, seed):
            return replace(known, refused=found.message)
        return replace(known, fault=found.message, kind="files")
    if fault := _files(folder):
        return replace(known, fault=fault, kind="files")
    try:
        session = _as_printed(found.deployment, folder / "out.onnx")
    except RuntimeError as error:
        return replace(known, fault=str(error), kind="files")
    fault, share, count = _compare(model, judge, session, seed)
    if fault:
        return replace(known, fault=fault + _first_wrong(model, judge, seed), kind="mismatch")
    known = replace(known, told=share, judged=count)
    if not WalkAgent.path or model.is_symbolic or not found.result.is_original:
        return known
    # The walk ended at another graph than the original, which is what came out: were the checks right?
    if wrong := _compare(model, judge, _saved_walk(folder), seed)[0]:
        words = f"the checks caught it ({found.message}): {wrong}{_first_wrong(model, judge, seed)}"
        return replace(known, fault=words, kind="mismatch")
    return replace(known, refused=found.message)


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
        try:
            fault = difference(reference, run(session, feeds))
        except RuntimeError as error:
            fault = str(error)
        if fault:
            return f"input {number}: {fault}", 0.0, count
        share, count = min(share, told(reference)), count + 1
    return "", share, count


def _as_printed(deployment: Deployment, path: Path) -> Any:
    """Open a file by the code that is printed for it.

    Raises:
        RuntimeError: ONNX Runtime refuses it.
    """
    space: dict[str, Any] = {}
    try:
        exec(deployment_code(deployment, path)["python"], space)
    except Exception as error:  # its classes differ from version to version
        raise RuntimeError(f"it does not open: {error}") from error
    return space["session"]


def _changes_itself(model: RandomModel, path: Path, seed: int) -> bool:
    """Return whether ONNX Runtime's own optimisations change the outputs of the original."""
    sessions = opened(model.proto), _as_printed(Deployment(), path)
    for number in range(_OWN_INPUTS):
        feeds = model.feeds(seed + number, 1.0)
        one, other = (run(session, feeds) for session in sessions)
        if any(not np.array_equal(one[name], other[name]) for name in one):
            return True
    return False


def _saved_walk(folder: Path) -> Any:
    """Open the graph at which a walk ended; without optimisations where ONNX Runtime's own ones fail."""
    last = WalkAgent.path[-1][1]
    path = save(last, folder / "refused.onnx")
    try:
        return _as_printed(deployment_of(last, Deployment()), path)
    except RuntimeError:
        return opened(onnx.load(path))


def _first_wrong(model: RandomModel, judge: Judge, seed: int) -> str:
    """Return the first rewrite of a walk after which outputs differ, without optimisations of ONNX Runtime; empty where
    there is none."""
    if model.is_symbolic:
        return ""
    for number, (rule, graph) in enumerate(WalkAgent.path, 1):
        if fault := _compare(model, judge, opened(to_proto(graph)), seed)[0]:
            return f"; first after rewrite {number}, {rule}: {fault}"
    return ""
