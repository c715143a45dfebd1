"""Counts of a store of experience: labels by family, by rule and by circumstances."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from graph_rewrite.experience.exchange import StoredRows, rows_of
from graph_rewrite.experience.records import Label, complete


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of labels and of what they are about."""

    path: str
    bytes: int
    labels: int
    left_out: int
    """StoredRows that are damaged or lack a part."""
    failed: int
    """Labels of windows that ONNX Runtime could not run after the chain."""
    surely_faster: int
    surely_slower: int
    windows: int
    models: int
    families: dict[str, int]
    """Labels by family, the largest first; likewise the next ones."""
    rules: dict[str, int]
    """By the last rule of the chain."""
    depths: dict[str, int]
    """By the length of the chain."""
    machines: dict[str, int]
    efforts: dict[str, int]
    cost_s: float
    """Seconds that all timings took together."""
    half_of_model: float
    """Median of half the 95% interval, as a share of the model's time; 0.0 without labels."""

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {name: getattr(self, name) for name in self.__slots__}


def statistics_of(path: Path) -> Statistics:
    """Return the statistics of a store or of an export.

    Raises:
        UserError: it cannot be read.
    """
    return count(rows_of(path), str(path), path.stat().st_size)


def count(rows: StoredRows, path: str = "", size: int = 0) -> Statistics:
    """Return the statistics of rows that were read from a file of `size` bytes."""
    labels = list(complete(iter(rows.labels), {part.id: json.loads(part.text) for part in rows.parts}))
    good = [label for label in labels if label.ok]
    kinds = Counter(part.kind for part in rows.parts)
    return Statistics(
        path, size, len(labels), rows.left_out, len(labels) - len(good),
        sum(label.body["low_s"] > 0.0 for label in good), sum(label.body["high_s"] < 0.0 for label in good),
        kinds["window"], kinds["model"],
        _ranked(label.family for label in labels),
        _ranked(label.rules[-1] for label in labels),
        dict(sorted(Counter(str(len(label.steps)) for label in labels).items())),
        _ranked(map(_machine, labels)),
        _ranked(label.plan["effort"] for label in labels),
        sum(label.body["cost_s"] for label in good),
        median(label.half_of_model for label in good) if good else 0.0,
    )  # fmt: skip


def _machine(label: Label) -> str:
    deployment = label.context["deployment"]
    return f"{label.context['device']}, {label.provider}, threads {deployment['threads']}"


def _ranked(names: Any) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda entry: (-entry[1], entry[0])))
