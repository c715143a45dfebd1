"""The process in which two models are compared: what it is asked, and what its end means."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graph_rewrite.runtime.leaf_process import LimitBroughtForward, describe_exit, leaf_command, run_leaf
from graph_rewrite.system.deadline import seconds_left
from graph_rewrite.system.scratch import scratch_folder


class ComparisonError(RuntimeError):
    """The comparison did not come to an end in a stage, such as `original: run`."""

    def __init__(self, message: str, stage: str) -> None:
        super().__init__(message)
        self.stage = stage


def run_comparison(request: Mapping[str, object], timeout_s: float, time_share: float | None = None) -> Any:
    """Return the reply of `ort_worker.comparison` to a request.

    Args:
        time_share: part of the time that is left which the comparison may take, if what it must run takes no longer;
            where the time limit is brought forward meanwhile, it begins anew with what is left then. None for requests
            that know no limit.

    Raises:
        ComparisonError: a model cannot be opened or run, crashes its runtime, or takes too long.
        OutOfTime: the time limit is reached.
    """
    while True:
        left = seconds_left()
        limited = {} if time_share is None else {"within_s": time_share * left if math.isfinite(left) else None}
        try:
            return _run({**request, **limited}, timeout_s)
        except LimitBroughtForward:
            continue


def _run(request: Mapping[str, object], timeout_s: float) -> Any:
    with scratch_folder("verify") as folder:
        asked, report = Path(folder, "request"), Path(folder, "findings")
        asked.write_text(json.dumps(request), "utf-8")
        try:
            ended = run_leaf(leaf_command("ort_worker.comparison", [str(asked), str(report)]), timeout_s)
        except subprocess.TimeoutExpired as error:
            stage = _last_stage(report)
            raise ComparisonError(f"no end after {timeout_s:g} s ({stage})", stage) from error
        messages = _messages(report)
        last: dict[str, Any] = messages[-1] if messages else {}
        if "reply" in last:
            return last["reply"]
        stage = _last_stage(report)
        if "error" in last:
            raise ComparisonError(f"{stage}: {last['error']}", stage)
        words = " / ".join(ended.stderr.strip().splitlines()[-3:])
        raise ComparisonError(
            f"{stage}: the runtime crashed ({describe_exit(ended.returncode)}) {words}".strip(), stage
        )


def _messages(report: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []


def _last_stage(report: Path) -> str:
    stages = [str(message["stage"]) for message in _messages(report) if "stage" in message]
    return stages[-1] if stages else "start"
