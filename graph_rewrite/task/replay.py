"""Replay of recorded rewrites: the graph that a list of candidate keys leads to, without an environment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.session_choices import session_candidates
from graph_rewrite.task.problem import Problem


class ReplayError(UserError):
    """A recorded state or list of actions does not fit here; the message says what differs."""


def replay(problem: Problem, keys: Iterable[str]) -> Graph:
    """Return the graph that candidates with these keys lead to, one after another, from the problem's first graph.

    Raises:
        ReplayError: a key is not among the candidates of its graph, nor among its session choices on this machine.
    """
    graph = problem.model.graph
    for number, key in enumerate(keys, start=1):
        settings = session_candidates(graph, problem.deployment, problem.thread_choices, strict=problem.strict)
        if chosen := next((candidate for candidate in settings if candidate.key == key), None):
            graph = chosen.apply()
            continue
        candidates = problem.rewriter.candidates(graph)
        graph = candidates[find_candidate(candidates, key, number, problem.model.uri)].apply()
    return graph


def find_candidate(
    candidates: Sequence[Candidate], key: str, step: int, uri: str, expected: int | None = None, description: str = ""
) -> int:
    """Return the index of a recorded candidate: `expected` where it has the key, otherwise the first that has it.

    Args:
        step, uri, description: number of the step, model, and what the candidate was called, for the message.

    Raises:
        ReplayError: no candidate has the key.
    """
    if expected is not None and expected < len(candidates) and candidates[expected].key == key:
        return int(expected)
    for index, candidate in enumerate(candidates):
        if candidate.key == key:
            return index
    described = f" ({description})" if description else ""
    raise ReplayError(
        f"step {step} took candidate {key}{described}, which {uri} does not offer there now: "
        "the rules, the granularity or the model have changed since it was recorded"
    )
