"""A matrix of small models, one per hard feature of ONNX files, and the check that each survives every rewrite."""
