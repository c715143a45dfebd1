"""The semantics of an operator by its name and domain."""

from __future__ import annotations

from graph_rewrite.operators import contrib, nchwc
from graph_rewrite.soundness.semantics.blocked import blocked
from graph_rewrite.soundness.semantics.call import Semantics
from graph_rewrite.soundness.semantics.contrib import CONTRIB
from graph_rewrite.soundness.semantics.standard import STANDARD


def semantics_of(op: str, domain: str) -> Semantics | None:
    """Return the semantics of an operator; None where it has none over exact numbers."""
    if domain == nchwc.DOMAIN:
        return blocked if nchwc.is_modelled(op) else None
    if domain in ("", "ai.onnx"):
        return STANDARD.get(op)
    return CONTRIB.get(op) if domain == contrib.DOMAIN else None
