"""Operators: types of their results, reference semantics, and the work that they do.

`inference.infer` gives the types of results and `evaluation.run_operator` computes them, for ONNX's own operators
(`standard_types`, `standard_semantics`), for ONNX Runtime's (`contrib`) and for those of its blocked layout (`nchwc`).
`folding` evaluates operators over constants, `work` estimates operations and bytes.
"""
