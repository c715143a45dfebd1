"""Evidence from the graphs and files of a result beyond its JSON: operators, the site of each rewrite, near misses."""

from __future__ import annotations

import platform
import shlex
from collections import Counter
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from agents.conclusion.recordings import actions_file
from agents.core.base import Action, OptimizationResult
from agents.reporting.html.report import NearMiss, OptimizationReport, RewriteDetails
from graph_rewrite.delivery.bundles.code import bundle_code
from graph_rewrite.delivery.bundles.manifest import read_bundle
from graph_rewrite.delivery.deployment_code import deployment_code
from graph_rewrite.delivery.footprint import ModelFootprint, footprint
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.device import cpu_model, gpu_model
from graph_rewrite.onnx_files.weight_files import weight_files
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.operators.input_types import element_shapes
from graph_rewrite.operators.usual_values import settled_values
from graph_rewrite.replay.recorder import find_by_key
from graph_rewrite.replay.steps import TracedGraph
from graph_rewrite.rulebook.site_diagram import diagrams_of_site
from graph_rewrite.runtime import FeedSpec
from graph_rewrite.system.cpu_count import available_cores
from graph_rewrite.task.problem import Problem

MOST_NEAR_MISSES = 12
"""Rows of near misses that a report shows: those with the most sites."""
_PACKAGES = ("rewritegym", "onnxruntime-gpu", "onnxruntime", "openvino", "onnx", "onnx-ir", "numpy")


def report_of(
    result: OptimizationResult, problem: Problem, entry: Mapping[str, Any], *, timeout_s: float = 60.0
) -> OptimizationReport:
    """Return the report of a result: its JSON, and what its graphs and files tell.

    Args:
        entry: the JSON of the result, with the file that it was written to.
        timeout_s: the most seconds for loading and running the original, and the result, once.
    """
    written = entry.get("onnx_path")
    return OptimizationReport(
        entry,
        details=rewrite_details(problem, result.actions),
        operators=(_operators(problem.model.original), _operators(result.graph)),
        files=(_file_bytes(problem.model.path), _file_bytes(result.checked.path)),
        footprints=footprints(result, problem, timeout_s),
        near_misses=near_misses(problem, result.graph),
        code=_code(result, entry),
        machine=machine_of(problem.deployment.provider),
        tolerance=result.checked.outcome.tolerance,
        replay=_replay_command(Path(written)) if written and result.actions else "",
    )


def _code(result: OptimizationResult, entry: Mapping[str, Any]) -> dict[str, str]:
    """Return code that opens what was written, by language."""
    if bundle := (entry.get("dynamic") or {}).get("bundle"):
        return bundle_code(read_bundle(bundle), result.checked.deployment.custom_ops)
    written = entry.get("onnx_path")
    return deployment_code(result.checked.deployment, written) if written else {}


def rewrite_details(problem: Problem, actions: tuple[Action, ...]) -> tuple[RewriteDetails, ...]:
    """Follow the rewrites of a result from the model's first graph on. What comes after a rewrite that is no candidate,
    as those of e-graphs, has no details."""
    traced = TracedGraph(problem.model.graph, problem.rewriter)
    equations = {rule.name: rule.equation for rule in problem.rewriter.rules}
    found: list[RewriteDetails] = []
    for action in actions:
        candidate = find_by_key(traced, action.rule, action.key)
        if candidate is None and action.rule not in equations:
            # Settings of the session change no node.
            found.append(RewriteDetails())
            continue
        if candidate is None:
            break
        details = RewriteDetails(
            equations.get(action.rule, ""), tuple(_known_name(traced.graph, s.name) for s in candidate.sites)
        )
        if candidate.sites:
            try:
                before, after = diagrams_of_site(traced.graph, candidate.site)
            except InvalidRewriteError:
                break
            details = RewriteDetails(details.equation, details.where, before, after)
        found.append(details)
        if not traced.take(candidate):
            break
    rest = [RewriteDetails(equations.get(action.rule, "")) for action in actions[len(found) :]]
    return (*found, *rest)


def footprints(
    result: OptimizationResult, problem: Problem, timeout_s: float
) -> tuple[ModelFootprint, ModelFootprint] | None:
    """Load and run the original and the result, each in a process of its own; None where one of them cannot be run so,
    such as one with an input that is no tensor."""
    model = problem.model
    feeds = FeedSpec(
        0, index_ranges(model.original), element_shapes=element_shapes(model.original),
        values=settled_values(model.original),
    )  # fmt: skip
    original, plain = model.original, problem.deployment.plain()
    typed = {original.names[value]: original.types[value] for value in original.inputs}
    shapes = {name: type.shape for name, type in typed.items() if type is not None}
    before = footprint(model.path, plain, feeds, shapes=shapes, timeout_s=timeout_s)
    if before is None:
        return None
    after = footprint(result.checked.path, result.checked.deployment, feeds, shapes=shapes, timeout_s=timeout_s)
    return None if after is None else (before, after)


def near_misses(problem: Problem, graph: Graph) -> tuple[NearMiss, ...]:
    """Return why rules whose patterns occur in a graph do not apply there, those with the most sites first."""
    sites: dict[tuple[str, str], list[str]] = {}
    for refusal in problem.rewriter.explain(graph):
        sites.setdefault((refusal.rule, refusal.reason), []).append(refusal.site)
    found = [
        NearMiss(rule, reason, len(names), _known_name(graph, names[0])) for (rule, reason), names in sites.items()
    ]
    return tuple(sorted(found, key=lambda miss: (-miss.sites, miss.rule, miss.reason))[:MOST_NEAR_MISSES])


def _known_name(graph: Graph, name: str) -> str:
    """Return the name of a site; of one at a node that a rewrite inserted, where that comes from."""
    number = name.removeprefix("#")
    node = graph.nodes.get(int(number)) if name.startswith("#") and number.isdigit() else None
    return name if node is None or node.origin is None else "/".join(filter(None, node.origin))


def machine_of(provider: str) -> dict[str, str]:
    """Return hardware and versions by name."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    hardware = {"processor": cpu_model(), "cores that this process may use": str(available_cores())}
    if provider == "cuda":
        hardware["GPU"] = gpu_model()
    return {**hardware, "system": platform.platform(), "Python": platform.python_version(), **versions}


def _operators(graph: Graph) -> dict[str, int]:
    """Return the number of nodes by operator; those outside of ONNX with their domain."""
    names = (f"{node.domain}.{node.op}" if node.domain else node.op for node in graph.nodes.values())
    return dict(Counter(names).most_common())


def _file_bytes(path: Path) -> int:
    """Return the bytes of a model file and of the files of weights that it refers to."""
    beside = [path.parent / name for name in weight_files(path)]
    return sum(file.stat().st_size for file in (path, *beside) if file.is_file())


def _replay_command(written: Path) -> str:
    """Return the command that applies the recorded actions of a result, where they are recorded."""
    actions = actions_file(written)
    return f"rewritegym apply {shlex.quote(str(actions))} retrained.onnx" if actions.is_file() else ""
