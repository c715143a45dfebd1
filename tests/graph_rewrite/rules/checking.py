"""Checks of a rule's soundness: every candidate is applied to a small model, and the outputs before and after are
compared."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from graph_rewrite import Graph, Refusal, Rewriter, Rule, load, save
from graph_rewrite.onnx_files.assembly import OPSET, model
from graph_rewrite.operators.evaluation import run_graph

Array = np.ndarray[Any, Any]
STANDARD = {"", "ai.onnx"}


def weights(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Return seeded normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def eighths(*shape: int, seed: int = 0) -> Array:
    """Return seeded numbers whose sums and products, of few of them, are exact in float32: what a rewrite folds from
    them has no error in float64 either."""
    return (np.round(8 * weights(*shape, seed=seed)) / 8).astype(np.float32)


def ops(graph: Graph) -> list[str]:
    """Return the names of the operators, sorted."""
    return sorted(node.op for node in graph.nodes.values())


def check_rule(
    rule: Rule | type[Rule],
    model: Graph | onnx.ModelProto,
    sites: int = 1,
    *,
    becomes: Sequence[str] | None = None,
    feeds: Mapping[str, Array] | None = None,
    rtol: float = 1e-9,
    rtol_float32: float = 2e-5,
) -> list[Graph]:
    """Assert that `rule` has so many sites in `model` and that every candidate, one site or a whole class, gives
    the same outputs: in float64 by the reference semantics, and in float32 in ONNX Runtime without optimisations.

    Tolerances are relative to the largest element of each output. `becomes` lists the operators after the first
    site's rewrite, in any order. Returns the graphs after the rewrite of each single site.
    """
    graph = model if isinstance(model, Graph) else load(model)
    rule = rule if isinstance(rule, Rule) else rule()
    rewriter = Rewriter([rule], granularity="both", deployment=False)
    candidates = rewriter.candidates(graph)
    single = [candidate for candidate in candidates if candidate.kind == "site"]
    assert len(single) == sites, (
        f"{rule.name} has {len(single)} sites, expected {sites}: {[c.description for c in single]}; "
        f"refused: {[str(refusal) for refusal in rewriter.explain(graph)]}"
    )
    feeds = dict(feeds) if feeds is not None else random_feeds(graph)
    exact, runtime = run_graph(graph, feeds), run_onnxruntime(graph, feeds)
    for candidate in candidates:
        after = candidate.apply()
        assert_close(exact, run_graph(after, feeds), rtol, f"{candidate.description}, float64")
        assert_close(runtime, run_onnxruntime(after, feeds), rtol_float32, f"{candidate.description}, ONNX Runtime")
    results = [candidate.apply() for candidate in single]
    if becomes is not None:
        assert ops(results[0]) == sorted(becomes), f"{rule.name} gives {ops(results[0])}, expected {sorted(becomes)}"
    return results


def refuses(rule: Rule | type[Rule], model: Graph | onnx.ModelProto, reason_part: str) -> list[Refusal]:
    """Assert that `rule` has no candidate in `model`, and that a near miss gives a reason with these words."""
    graph = model if isinstance(model, Graph) else load(model)
    rewriter = Rewriter([rule if isinstance(rule, Rule) else rule()], granularity="site", deployment=False)
    found = rewriter.candidates(graph)
    assert not found, f"expected a refusal, found {[candidate.description for candidate in found]}"
    refusals = rewriter.explain(graph)
    assert any(reason_part in refusal.reason for refusal in refusals), [str(refusal) for refusal in refusals]
    return refusals


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Return a seeded array per input: normal numbers, small non-negative integers, or truth values."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in graph.inputs:
        type = graph.types[value]
        assert type is not None, f"input {graph.names[value]} has no static type"
        dtype = helper.tensor_dtype_to_np_dtype(type.dtype)
        normal = np.issubdtype(dtype, np.floating)
        array = rng.standard_normal(type.shape) if normal else rng.integers(0, 2, type.shape)
        feeds[graph.names[value]] = array.astype(dtype)
    return feeds


def run_onnxruntime(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of the saved graph in ONNX Runtime on the CPU with all optimisations off. The saved model must
    pass onnx's checker where all its operators are standard."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # constants that a rewrite left unused are no news here
    with tempfile.TemporaryDirectory() as folder:
        path = save(graph, Path(folder, "model.onnx"))
        if all(node.domain in STANDARD for node in graph.nodes.values()):
            onnx.checker.check_model(str(path), full_check=True)
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return [np.asarray(array) for array in session.run(None, dict(feeds))]


def assert_close(expected: Sequence[Array], found: Sequence[Array], rtol: float, what: str) -> None:
    """Assert that arrays are equal up to a tolerance, relative to the largest element of each."""
    assert len(expected) == len(found)
    for i, (before, after) in enumerate(zip(expected, found, strict=True)):
        assert before.shape == after.shape, f"{what}: output {i} has shape {after.shape}, expected {before.shape}"
        assert before.dtype == after.dtype, f"{what}: output {i} is {after.dtype}, expected {before.dtype}"
        finite = before[np.isfinite(before)] if np.issubdtype(before.dtype, np.floating) else before
        scale = float(np.max(np.abs(finite.astype(np.float64)))) if finite.size else 0.0
        np.testing.assert_allclose(after, before, rtol=0, atol=rtol * scale, err_msg=f"{what}: output {i}")


@dataclass(frozen=True)
class Case:
    """A row of a table of tests: a rule, a model in text, and what is expected of them.

    `expected` lists the operators after the rewrite (or is None), or holds words of the reason for a refusal.
    """

    rule: type[Rule]
    text: str
    expected: Sequence[str] | str | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    sites: int = 1
    opset: int = OPSET
    rtol: float = 1e-9

    def check(self) -> None:
        """Assert that the rule applies and keeps the outputs."""
        assert not isinstance(self.expected, str), "a reason is for check_refused"
        graph = model(self.text, self.opset, **self.constants)
        check_rule(self.rule, graph, self.sites, becomes=self.expected, rtol=self.rtol)

    def check_refused(self) -> None:
        """Assert that the rule refuses for the expected reason."""
        assert isinstance(self.expected, str), "name words of the reason"
        refuses(self.rule, model(self.text, self.opset, **self.constants), self.expected)

    def __str__(self) -> str:
        return self.rule.__name__


def untested(rules: Iterable[type[Rule]], applies: Iterable[Case], refused: Iterable[Case]) -> list[str]:
    """Return the names of rules without a case where they apply, or with reasons to refuse of which no case shows one.
    Rules that share the code of their conditions share such cases."""
    shown = {case.rule for case in applies}
    conditions = {code for case in refused for code in (case.rule.check, case.rule.target)}
    found = [rule.__name__ for rule in rules if rule not in shown]
    for rule in rules:
        own = {code for code in (rule.check, rule.target) if "return Refusal(" in inspect.getsource(code)}
        if own and not conditions & own:
            found.append(f"{rule.__name__} (refusal)")
    return found
