"""`rewritegym.optimize`: the whole optimisation as a Python call."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from agents.optimization.options import OptimizeOptions, shape_texts, threads_text
from agents.optimization.outcome import Optimization
from agents.optimization.output import check_output, saved
from agents.optimization.reports import check_report, reserved_seconds, try_report
from agents.optimization.run import Progress, optimize_model
from agents.optimization.sources import as_file
from graph_rewrite.onnx_files.model_file import check_openable
from graph_rewrite.system.scratch import new_scratch_folder
from graph_rewrite.task.workspace import workspace


def optimize(
    model: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    example_inputs: Any = None,
    shapes: Mapping[str, Sequence[int]] | Sequence[Mapping[str, Sequence[int]]] | None = None,
    time_limit: float | str = 120.0,
    threads: int | Iterable[int] | Literal["auto"] | None = None,
    overwrite: bool = False,
    report: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Optimization:
    """Search for a faster form of a model that computes the same, and check it.

    Args:
        model: a path of an ONNX file, an `onnx.ModelProto`, an `onnx_ir.Model`, or a `torch.nn.Module`.
        output: the file to write, with `specialise=True` the folder of a bundle; by default nothing is written, and
            `save` of the outcome does it.
        example_inputs: for a module, its positional arguments as a tuple, or its keyword arguments as a mapping.
        shapes: shapes of inputs with symbolic dimensions, by name; or several such mappings. The search is for the
            first, and with `specialise=True` a model is made for each.
        time_limit: seconds for everything, or a text such as "10m".
        threads: threads per inference as deployed; by default one per physical core. Of several, the search is for the
            first, and the result is measured with each. With "auto", the search chooses it.
        overwrite: replace `output` and `report` if there are such files.
        report: an HTML file to write a report to.
        progress: called with the search as it goes on; `search.end()` ends it.
        options: further fields of `OptimizeOptions`, such as `agent="greedy"` or `standard_ops_only=True`.

    Returns:
        The result with its latency, its rewrites and the outcome of the comparison. Where nothing is surely faster, it
        is the original with a speed-up of exactly 1.0.

    Raises:
        UserError: a mistake in the arguments or the model, where the message says what to do; or `output` cannot be
            written any more, where it says in which file the result is instead.
        MachineError: the model cannot be measured on this machine.
        TypeError: an option that does not exist, or a model of another kind.
    """
    began = time.monotonic()
    given = OptimizeOptions(
        shape=shape_texts(shapes or {}), time_limit=str(time_limit), threads=threads_text(threads), **options
    )
    workspace()  # the folder of the model is removed with it
    folder = new_scratch_folder("model")
    path = as_file(model, Path(folder.name), example_inputs)
    check_openable(path)
    target = None if output is None else check_output(path, Path(output), overwrite=overwrite, bundle=given.specialise)
    page = None if report is None else Path(report)
    if page is not None:
        check_report(page, path, target, overwrite=overwrite)
    reserved = reserved_seconds(given.seconds, page)
    outcome = optimize_model(path, given, began=began, reserved=reserved, progress=progress, keep=folder)
    written = None if target is None else saved(outcome, target)
    if page is not None:
        try_report(outcome, outcome.entry(written), page, Console(stderr=True))
    return outcome
