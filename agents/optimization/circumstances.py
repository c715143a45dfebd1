"""The circumstances in which a result was found: all that its gain depends on beside the structure of the model."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from agents.conclusion.recordings import environment
from agents.optimization.options import OptimizeOptions
from graph_rewrite.task.problem import Problem

_IRRELEVANT = frozenset(
    {
        "time_limit",
        "seed",
        "shape",
        "threads",
        "provider",
        "agent",
        "checkpoint",
        "cpu_clock",
        "memory",
        "save_as_external_data",
        "search_again",
        "specialise",
    }
)
"""Options that change neither what may be found nor what it gains, or are in the context by themselves."""


def context_of(problem: Problem, options: OptimizeOptions) -> dict[str, Any]:
    """Return all that the choice of a result and its gain depend on, beside the structure of the model: the machine,
    the runtime, the deployment, and every option that limits what a search may do."""
    given = {name: value for name, value in asdict(options).items() if name not in _IRRELEVANT}
    if options.mutants == "off":
        del given["mutants"]  # results that were remembered before there were mutants stay what they are
    deployment = {"provider": problem.deployment.provider, "threads": problem.deployment.threads}
    context = {
        **environment(problem.deployment.provider), **deployment, "thread_choices": problem.thread_choices,
        "options": given,
    }  # fmt: skip
    # As it comes back out of a file: tuples are lists there.
    read: dict[str, Any] = json.loads(json.dumps(context, default=str))
    return read
