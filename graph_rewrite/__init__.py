"""Graphs, rules, candidates, verification and latency: the library below the environment. Imports neither gymnasium
nor PyTorch.

The names below are imported when they are first used, so that a command which needs none of them starts at once.
"""

from typing import TYPE_CHECKING, Any

from graph_rewrite.system.lazy_exports import public_name

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

__all__ = [
    "Candidate", "Graph", "ModelLoadError", "Node", "Refusal", "Rewriter", "Rule", "Site", "TensorType", "all_rules",
    "load", "save",
]  # fmt: skip

_HOME = {
    "Candidate": "graph_rewrite.rewriting.candidates",
    "Graph": "graph_rewrite.ir.graph",
    "ModelLoadError": "graph_rewrite.onnx_files.loading",
    "Node": "graph_rewrite.ir.node",
    "Refusal": "graph_rewrite.rewriting.rule",
    "Rewriter": "graph_rewrite.rules.rewriter",
    "Rule": "graph_rewrite.rewriting.rule",
    "Site": "graph_rewrite.rewriting.sites",
    "TensorType": "graph_rewrite.ir.tensor_type",
    "all_rules": "graph_rewrite.rules",
    "load": "graph_rewrite.onnx_files.loading",
    "save": "graph_rewrite.onnx_files.saving",
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    return public_name(__name__, _HOME, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
