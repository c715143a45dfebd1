"""Graphs, rules, candidates, verification and latency: the library below the environment. Imports neither gymnasium
nor PyTorch."""

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
