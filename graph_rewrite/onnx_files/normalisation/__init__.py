"""Normalisation: the graph that search starts from.

`normalise` runs a list of passes, each in a file of its own. The result is in one operator set, holds no node that
depends on constants alone, computes each expression once, and has no node that no output needs.
"""

from graph_rewrite.onnx_files.normalisation.operator_set import INTERNAL_OPSET
from graph_rewrite.onnx_files.normalisation.pipeline import NormalisationReport, normalise
from graph_rewrite.onnx_files.normalisation.static_inputs import SymbolicShapeError

__all__ = ["INTERNAL_OPSET", "NormalisationReport", "SymbolicShapeError", "normalise"]
