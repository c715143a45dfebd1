"""Substitutions as data, in TASO's algebra: types, semantics over a prime field, conditions, ONNX form, and rule
files."""
