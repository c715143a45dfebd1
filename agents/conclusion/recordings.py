"""The recording of a result: made from its actions, and written beside its file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agents.core.base import Action
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.device import device_name
from graph_rewrite.replay import AppliedStep, Recording, UnrecordableError, record
from graph_rewrite.runtime import runtime_of
from graph_rewrite.system.huge_pages import pages_of_children
from graph_rewrite.task.problem import Problem

SUFFIX = ".actions.json"
"""Appended to the model's file name: the file beside it that holds its recorded actions."""


def actions_file(output: Path) -> Path:
    """Return the file beside a result that holds its recorded actions."""
    return output.with_name(output.name + SUFFIX)


def recording_of(problem: Problem, actions: Sequence[Action], graph: Graph, rules: str = "default") -> Recording:
    """Return the recording of the actions that led from the problem's graph to `graph`; without actions the original
    was kept, which is no normalised graph.

    Args:
        rules: names of the rule sets that the problem was opened with.

    Raises:
        UnrecordableError: actions that are no candidates, such as an extraction from an e-graph.
    """
    made = record(
        problem.model.graph, problem.rewriter, actions, end=graph if actions else None, rules=rules
    )  # fmt: skip
    return replace(recording_for(problem, made), environment=measured_with(problem.deployment.provider))


def recording_for(problem: Problem, recording: Recording) -> Recording:
    """Return a recording that names the model, the shapes and the deployment of a problem."""
    return replace(
        recording, model=str(problem.model.path.resolve()), model_hash=problem.model.original.hash,
        shapes=dict(problem.model.shapes),
        deployment={"provider": problem.deployment.provider, "threads": problem.deployment.threads},
    )  # fmt: skip


def recording_or_none(
    problem: Problem, actions: Sequence[Action], graph: Graph, rules: str = "default"
) -> Recording | None:
    """Return what `recording_of` does; None where the actions cannot be recorded."""
    with suppress(UnrecordableError):
        return recording_of(problem, actions, graph, rules)
    return None


def environment(provider: str) -> dict[str, str]:
    """Return what a latency depends on beside the model and its deployment, by name."""
    return {"device": device_name(provider), **runtime_of(provider).version()}


def measured_with(provider: str) -> dict[str, str]:
    """Return `environment`, and whether models had huge pages, which a rewrite's gain seldom depends on."""
    return {**environment(provider), "memory_pages": pages_of_children()}


def write_recording(recording: Recording | None, output: Path) -> Path | None:
    """Write a recording beside the result `output`, with the path of the original as it is seen from there. Without one
    a file of an earlier result is removed."""
    if recording is None:
        actions_file(output).unlink(missing_ok=True)
        return None
    if not recording.model:
        return recording.write(actions_file(output))
    try:
        original = os.path.relpath(recording.model, output.parent.resolve())
    except ValueError:  # another drive
        original = recording.model
    return replace(recording, model=original).write(actions_file(output))


def actions_of(steps: Sequence[AppliedStep]) -> tuple[Action, ...]:
    """Return the steps of a replay as the actions of a search."""
    return tuple(Action(step.key, step.rule, step.description, step.count) for step in steps)
