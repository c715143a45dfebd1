"""Generator of random ONNX models, in blocks of operators that rules match."""
