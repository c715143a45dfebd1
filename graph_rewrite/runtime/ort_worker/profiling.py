"""The profile of a model: what its runtime reports of every kernel that it runs. Runs inside the worker."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from time import perf_counter
from typing import Any

from .deployment import Deployment
from .feeds import ModelInput
from .narrow_floats import runner
from .rotating.recipes import Recipes
from .rotating.rotation import Rotation
from .runtimes.opening import runtime_of
from .runtimes.protocol import Kernel

_MOST_RUNS = 50
_MOST_EVENTS = 30_000  # ONNX Runtime writes 600 bytes of JSON for a kernel and a run, and reading them takes longest.
_LEAST_RUNS = 3
_OVERRUN = 5.0  # Times the budget after which even the fewest runs are not waited for.


def profile(
    path: str,
    deployment: Deployment,
    feeds: Recipes,
    folder: str,
    budget_s: float,
    begin_run: Callable[[], None],
    nodes: int = 1,
) -> list[Kernel]:
    """Run a model of so many nodes, with its inputs in turn, for about `budget_s` seconds, at least three times if that
    is no more than five times the budget, and return its kernels in the order of execution. A model of thousands of
    nodes is run less often. `begin_run` is called before every run."""
    session, told = runtime_of(deployment.provider).open_profiled(path, deployment, folder)
    inputs = [ModelInput(item.name, item.type, tuple(item.shape)) for item in session.get_inputs()]
    rotation, made = Rotation(inputs, feeds), dict[int, Any]()
    turns = cycle([runner(session, None, rotation.feeds(turn, inputs), made) for turn in range(rotation.count)])
    begin_run()
    next(turns)()
    started, runs, elapsed = perf_counter(), 0, 0.0
    most = min(_MOST_RUNS, _MOST_EVENTS // max(1, nodes))
    while runs < 1 or (runs < most and elapsed < (budget_s if runs >= _LEAST_RUNS else _OVERRUN * budget_s)):
        begin_run()
        next(turns)()
        runs, elapsed = runs + 1, perf_counter() - started
    return told(1)
