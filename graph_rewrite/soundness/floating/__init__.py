"""The comparison of a graph and its rewrite in floating point, in ONNX Runtime and by the float64 reference."""
