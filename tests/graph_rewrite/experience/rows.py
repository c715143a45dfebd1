"""Labels made up for tests."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from graph_rewrite.experience.records import LabelRow, SharedPart, canonical

CONTEXT: dict[str, Any] = {
    "device": "a processor", "deployment": {"provider": "cpu", "threads": 1, "disabled_optimizers": []},
    "onnxruntime": "1", "rewritegym": "1", "commit": "", "clock": "cpu",
}  # fmt: skip


def made_up(
    number: int = 0, rules: tuple[str, ...] = ("R",), family: str = "f", saved: float = 1e-3, taken: int = 1000,
    shape: tuple[int, ...] = (1, 8), model: str = "", op: str = "Relu", attrs: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[LabelRow, list[SharedPart]]:  # fmt: skip
    """Return a label and its parts: a window of one operator in a model of 10 ms."""
    node = {"op": op, **({"attrs": dict(attrs)} if attrs else {}), "in": ["i0"], "out": [[1, *shape]]}
    window = SharedPart.of(
        "window",
        {"fingerprint": str(shape), "opset": 20, "domains": {}, "inputs": [[1, *shape]], "constants": {},
         "nodes": [node], "outputs": ["n0.0"]},
    )  # fmt: skip
    whole = SharedPart.of("model", {"uri": model, "family": family, "fingerprint": "1", "fingerprint_any_size": "2"})
    place = SharedPart.of("place", {"window": window.id, "model": whole.id, "number": number})
    context, plan = SharedPart.of("context", CONTEXT), SharedPart.of("plan", {"effort": "scan"})
    at = [{"nodes": ["n0.0"]}]
    steps = [
        SharedPart.of("step", {"rule": rule, "family": rule, "sites": 1, "kind": "site", "at": at}) for rule in rules
    ]
    body = {
        "place": place.id, "context": context.id, "plan": plan.id, "steps": [step.id for step in steps], "sites": 2,
        "status": "ok", "model_s": 1e-2, "saved_s": saved, "low_s": saved - 1e-4, "high_s": saved + 1e-4, "runs": 5,
        "window_s": 1e-3, "part": 0.5, "cost_s": 0.3,
    }  # fmt: skip
    return LabelRow(canonical(body), taken), [window, whole, place, context, plan, *steps]
