"""Sets of ONNX's operators that several modules use. The digest of a rule covers those that it refers to."""

from __future__ import annotations

POOLS = frozenset({"MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"})
