"""Graphs, rules, candidates, verification and latency: the library below the environment. Imports neither gymnasium
nor PyTorch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graph_rewrite.ir.graph import Graph
    from graph_rewrite.ir.node import Node
    from graph_rewrite.ir.tensor_type import TensorType
    from graph_rewrite.onnx_files.loading import ModelLoadError, load
    from graph_rewrite.onnx_files.saving import save
    from graph_rewrite.rewriting.candidates import Candidate
    from graph_rewrite.rewriting.rule import Refusal, Rule
    from graph_rewrite.rewriting.sites import Site
    from graph_rewrite.rules import all_rules
    from graph_rewrite.rules.rewriter import Rewriter

_HOMES = {
    "Candidate": "rewriting.candidates", "Site": "rewriting.sites", "Graph": "ir.graph", "Node": "ir.graph",
    "TensorType": "ir.graph",
    "ModelLoadError": "onnx_files.loading", "load": "onnx_files.loading", "save": "onnx_files.saving",
    "Rewriter": "rules.rewriter",
    "Refusal": "rewriting.rule", "Rule": "rewriting.rule", "all_rules": "rules",
}  # fmt: skip

__all__ = [
    "Candidate", "Graph", "ModelLoadError", "Node", "Refusal", "Rewriter", "Rule", "Site", "TensorType", "all_rules",
    "load", "save",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Lazy, so that the measurement worker, which lives below this package, starts without onnx.
    if name not in _HOMES:
        raise AttributeError(f"module 'graph_rewrite' has no attribute {name!r}")
    return getattr(importlib.import_module(f"graph_rewrite.{_HOMES[name]}"), name)
