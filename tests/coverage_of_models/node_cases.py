"""The node test cases of `onnx.backend.test`, each optimised as a whole and compared with what it expects."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import onnxruntime as ort
from onnx.backend.test.case.test_case import TestCase

import rewritegym
from graph_rewrite.errors import MachineError, UserError
from tests.coverage_of_models.ort_values import difference, expected_value, fed, opened, run

Status = Literal["not run", "optimised", "kept", "refused", "wrong", "crashed"]
RAN: tuple[Status, ...] = ("optimised", "kept", "refused", "wrong", "crashed")
"""Outcomes of cases that ONNX Runtime runs."""
OWN_TOLERANCE = 1e-3
"""Of the outputs that ONNX Runtime gives for the original, where those are not what the case expects."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    name: str
    operator: str
    status: Status
    message: str = ""
    seconds: float = 0.0
    rules: Sequence[str] = ()
    """The rewrites of the result, in order."""
    as_expected: bool = True
    """True where ONNX Runtime gives the outputs that the case expects for the original; its own count otherwise."""


@dataclass(frozen=True)
class _Reference:
    """The values that a result must compute: per data set, the inputs as the case gives them, and the outputs."""

    inputs: Sequence[Sequence[Any]]
    outputs: Sequence[Sequence[Any]]
    as_expected: bool
    is_random: bool
    tolerance: tuple[float, float] = field(default=(0.0, 0.0))


@cache
def node_cases() -> Mapping[str, TestCase]:
    """Return all cases by name, in the order of `onnx`; making their inputs and outputs takes some seconds."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


def judged(case: TestCase, time_limit: float, **options: Any) -> Outcome:
    """Optimise a case that ONNX Runtime runs, and compare the outputs of the file that is written.

    Args:
        time_limit: seconds of the optimisation.
        options: further options of `rewritegym.optimize`.
    """
    operator = _operator(case)
    try:
        reference = _reference(case)
    except _NOT_RUN as error:
        return Outcome(case.name, operator, "not run", _first_line(error))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="node-case-") as folder:
        try:
            found = rewritegym.optimize(case.model, threads=1, time_limit=time_limit, **options)
            written = found.save(Path(folder, "result.onnx"))
        except (UserError, MachineError) as error:
            return Outcome(case.name, operator, "refused", str(error), time.monotonic() - began)
        seconds = time.monotonic() - began
        if written is None:
            return Outcome(case.name, operator, "refused", found.message, seconds)
        wrong = _wrong(written, reference)
    status: Status = "wrong" if wrong else "kept" if found.result.is_original else "optimised"
    rules = [str(rewrite["rule"]) for rewrite in found.rewrites]
    return Outcome(case.name, operator, status, wrong or found.message, seconds, rules, reference.as_expected)


_NOT_RUN = (
    ort.capi.onnxruntime_pybind11_state.Fail, ort.capi.onnxruntime_pybind11_state.InvalidArgument,
    ort.capi.onnxruntime_pybind11_state.InvalidGraph, ort.capi.onnxruntime_pybind11_state.InvalidProtobuf,
    ort.capi.onnxruntime_pybind11_state.NotImplemented, ort.capi.onnxruntime_pybind11_state.RuntimeException,
)  # fmt: skip


def _operator(case: TestCase) -> str:
    """Return the operator that a case is for: that of its name where the model holds an expanded function."""
    nodes = case.model.graph.node
    return nodes[0].op_type if len(nodes) == 1 else case.name.removeprefix("test_").split("_")[0]


def _reference(case: TestCase) -> _Reference:
    session = opened(case.model.SerializeToString())
    inputs = [given for given, _ in case.data_sets]
    expected = [[expected_value(value) for value in outputs] for _, outputs in case.data_sets]
    own = [run(session, fed(given, session)) for given in inputs]
    limits = (case.rtol, case.atol)
    if not _differences(expected, own, *limits):
        return _Reference(inputs, expected, True, False, limits)
    again = [run(session, fed(given, session)) for given in inputs]
    is_random = bool(_differences(own, again, 0.0, 0.0))
    return _Reference(inputs, own, False, is_random, (OWN_TOLERANCE, OWN_TOLERANCE))


def _wrong(written: Path, reference: _Reference) -> str:
    """Return what is wrong with a written file; empty where it computes what it must."""
    session = rewritegym.session(written)
    found = [run(session, fed(given, session)) for given in reference.inputs]
    return "" if reference.is_random else _differences(reference.outputs, found, *reference.tolerance)


def _differences(expected: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]], rtol: float, atol: float) -> str:
    for wanted, given in zip(expected, found, strict=True):
        if len(wanted) != len(given):
            return f"{len(given)} outputs, not {len(wanted)}"
        for number, (a, b) in enumerate(zip(wanted, given, strict=True)):
            if text := difference(a, b, rtol, atol):
                return f"output {number} {text}"
    return ""


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
