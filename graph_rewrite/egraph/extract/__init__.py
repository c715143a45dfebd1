"""Extraction: one e-node per class, so that the graph that the roots need costs little.

It works on plain arrays (`CostedEGraph`) and knows nothing of tensors. `tree`, `shared`, `dag` and `ilp` hold a method
each.
"""

from graph_rewrite.egraph.extract.costed import CostedEGraph, Extraction, NoExtraction
from graph_rewrite.egraph.extract.methods import METHODS, Method, extract

__all__ = ["METHODS", "CostedEGraph", "Extraction", "Method", "NoExtraction", "extract"]
