"""The control `replay`: the rewrites recorded for a model, or for one of the same architecture at another size, applied
without any search."""

from __future__ import annotations

import time

from agents.conclusion.conclude import original_kept, saved_and_checked
from agents.conclusion.recordings import actions_of
from agents.core.base import OptimizationResult
from agents.core.paths import known_results
from graph_rewrite.errors import UserError
from graph_rewrite.latency import Latency
from graph_rewrite.replay import fingerprint, replay
from graph_rewrite.replay.memory import ResultMemory
from graph_rewrite.task.problem import Problem

REPLAY = "replay"
"""The name of the control, in the place of an agent's."""


def replayed_result(problem: Problem, memory: ResultMemory | None = None) -> OptimizationResult:
    """Return the fastest recorded result for a problem's model, number of threads and any weights, replayed, saved and
    checked. Where none is recorded at these sizes, the fastest of the architecture at others is applied as far as it
    goes. Nothing is measured: the latency is left open. The original where the result's outputs differ.

    Args:
        memory: recorded results; those that come with RewriteGym by default.

    Raises:
        UserError: none is recorded, or at these sizes none replays as a whole, at others none in any part.
    """
    began = time.monotonic()
    memory = ResultMemory(known_results(), read_only=True) if memory is None else memory
    graph, threads = problem.model.graph, problem.deployment.threads
    here, any_size = fingerprint(graph), fingerprint(graph, any_size=True)
    known = memory.recall(here, {}, any_size)
    found = [one for one in known if one.recording.deployment.get("threads", 1) == threads]
    at_these_sizes = [one for one in found if one.recording.fingerprint == here]
    for one in sorted(at_these_sizes or found, key=lambda result: -result.speedup):
        made = replay(one.recording, graph, problem.rewriter, partial=not at_these_sizes)
        if not made.applied or (at_these_sizes and not made.complete):
            continue
        checked, actions, end = saved_and_checked(problem, made.graph), actions_of(made.applied), made.graph
        message = f"recorded as x{one.speedup:.3f}{'' if at_these_sizes else ' at other sizes'}"
        message += f", {made.steps} of {len(one.recording.steps)} steps; {checked.outcome.message}"
        if not checked.outcome.ok:
            checked, actions, end = original_kept(problem), (), problem.model.original
        unknown = Latency(0.0, 1.0, (1.0, 1.0), 0, 0.0)
        return OptimizationResult(
            REPLAY, end, unknown, actions, checked, (), 0, 0, time.monotonic() - began, message
        )  # fmt: skip
    why = f"{len(found)} recorded results do not replay" if found else "no result is recorded"
    raise UserError(f"{problem.model.uri}, {threads} thread(s): {why}")
