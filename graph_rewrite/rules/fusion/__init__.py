"""Rewrites between ONNX Runtime's fused operators, or the standard operators that name a whole function, and the forms
that they replace."""
