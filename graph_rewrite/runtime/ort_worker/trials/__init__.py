"""Processes that try whether ONNX Runtime opens a model, or loads a library: either may crash them."""
