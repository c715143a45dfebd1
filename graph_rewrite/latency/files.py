"""Latency of a model file as it is deployed, against another file: no graph is loaded, nothing is written."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from graph_rewrite.latency.meter import Latency, Measurable
from graph_rewrite.latency.ort_meter import OrtMeter
from graph_rewrite.runtime import JUDGE, Deployment, Plan


@dataclass(frozen=True)
class _File:
    """A model file, as a meter sees it."""

    path: Path
    disabled_optimizers: frozenset[str] = frozenset()
    session_settings: tuple[tuple[str, bool | int | str], ...] = ()

    @property
    def hash(self) -> str:
        return hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()


def compare_files(
    original: Path, optimised: Path, deployment: Deployment, *, workspace: Path, plan: Plan = JUDGE
) -> Latency:
    """Return the latency of a model file opened with `deployment`, and its speed-up over `original`, opened as anybody
    would: with the same provider and threads.

    Raises:
        BaselineError: the original cannot be measured.
    """
    asked = _File(optimised, deployment.disabled_optimizers, tuple(sorted(deployment.settings.to_json().items())))
    with OrtMeter(_File(original), _in_place, deployment, workspace=workspace, keep_files=True) as meter:
        return meter.confirm(asked, plan)


def _in_place(graph: Measurable, folder: Path) -> Path:
    if not isinstance(graph, _File):
        raise TypeError(f"not a file: {type(graph).__name__}")
    return graph.path
