"""The outcome of one runtime, where several are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graph_rewrite.latency import Latency
from graph_rewrite.runtime import PROVIDERS


@dataclass(frozen=True, slots=True)
class RuntimeResult:
    """The outcome of a runtime: what its result would give. Speed-ups are relative to the original in ONNX Runtime,
    with all of its optimisers and as many threads."""

    provider: str
    plain: Latency | None = None
    """Of the original in this runtime; None where it was not timed."""
    latency: Latency | None = None
    """Of the result of the search; None where there is none, or it was not timed."""
    message: str = ""
    """The outcome of the search, or why there is none."""
    chosen: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain values; None where nothing was timed."""
        return {
            "provider": self.provider, "runtime": PROVIDERS[self.provider].title, **_told("plain_", self.plain),
            **_told("", self.latency), "message": self.message, "chosen": self.chosen,
        }  # fmt: skip


def _told(prefix: str, latency: Latency | None) -> dict[str, Any]:
    timed = latency if latency is not None and latency.ok else None
    return {
        f"{prefix}speedup": None if timed is None else timed.speedup,
        f"{prefix}speedup_ci95": None if timed is None else list(timed.ci95),
        f"{prefix}latency_ms": None if timed is None else timed.ms,
    }
