"""The profile of a model: what ONNX Runtime reports of every kernel that it runs. Runs inside the worker."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from itertools import cycle
from statistics import median
from time import perf_counter
from typing import Any

import onnxruntime as ort

from .deployment import Deployment, open_session
from .feeds import ModelInput
from .narrow_floats import runner
from .rotating.recipes import Recipes
from .rotating.rotation import Rotation

_MOST_RUNS = 50
_MOST_EVENTS = 30_000  # ONNX Runtime writes 600 bytes of JSON for a kernel and a run, and reading them takes longest.
_LEAST_RUNS = 3
_OVERRUN = 5.0  # Times the budget after which even the fewest runs are not waited for.
_KERNEL = "_kernel_time"

Event = dict[str, Any]


def profile(
    path: str,
    deployment: Deployment,
    feeds: Recipes,
    folder: str,
    budget_s: float,
    begin_run: Callable[[], None],
    nodes: int = 1,
) -> list[dict[str, Any]]:
    """Run a model of so many nodes, with its inputs in turn, for about `budget_s` seconds, at least three times if that
    is no more than five times the budget, and return its kernels. A model of thousands of nodes is run less often.
    `begin_run` is called before every run.

    Returns:
        For every kernel, in the order of execution, its `name`, `op`, median time per run in microseconds `us`, and
        the types of its operands and results, `inputs` and `outputs`, as [element type, shape]. A kernel that runs
        others within its time, such as If, counts as a whole. ONNX Runtime leaves out of `inputs` the weights that it
        keeps in a layout of its own.
    """
    options = deployment.session_options(measuring=True)
    options.enable_profiling = True
    options.profile_file_prefix = os.path.join(folder, "profile")
    session = open_session(path, deployment, options=options)
    inputs = [ModelInput(item.name, item.type, tuple(item.shape)) for item in session.get_inputs()]
    rotation, made = Rotation(inputs, feeds), dict[int, ort.OrtValue]()
    turns = cycle([runner(session, None, rotation.feeds(turn, inputs), made) for turn in range(rotation.count)])
    begin_run()
    next(turns)()
    started, runs, elapsed = perf_counter(), 0, 0.0
    most = min(_MOST_RUNS, _MOST_EVENTS // max(1, nodes))
    while runs < 1 or (runs < most and elapsed < (budget_s if runs >= _LEAST_RUNS else _OVERRUN * budget_s)):
        begin_run()
        next(turns)()
        runs, elapsed = runs + 1, perf_counter() - started
    written = session.end_profiling()
    try:
        with open(written, encoding="utf-8") as file:
            events: list[Event] = json.load(file)
    finally:
        os.unlink(written)
    return kernels(events, skipped=1)


def kernels(events: Iterable[Event], skipped: int) -> list[dict[str, Any]]:
    """Return the kernels in the events of a profile, without those of the first `skipped` runs."""
    timed = sorted((event for event in events if "dur" in event), key=lambda event: (event["ts"], -event["dur"]))
    begins = [event["ts"] for event in timed if event["name"] == "model_run"][skipped:]
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    end = begins[0] if begins else 0
    for event in timed:
        if event.get("cat") != "Node" or not event["name"].endswith(_KERNEL) or event["ts"] < end:
            continue  # before the first run that counts, or within the kernel before it
        end = event["ts"] + event["dur"]
        about = event["args"]
        entry = merged.setdefault(
            (event["name"], about.get("node_index", "")),
            {
                "name": event["name"].removesuffix(_KERNEL), "op": about["op_name"], "us": [],
                "inputs": _types(about.get("input_type_shape", ())),
                "outputs": _types(about.get("output_type_shape", ())),
            },
        )  # fmt: skip
        entry["us"].append(event["dur"])
    return [{**entry, "us": median(entry["us"])} for entry in merged.values()]


def _types(listed: Iterable[dict[str, list[int]]]) -> list[tuple[str, list[int]]]:
    return [(name, shape) for one in listed for name, shape in one.items()]
