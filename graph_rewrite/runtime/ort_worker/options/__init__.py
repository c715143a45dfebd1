"""The options of a session: the optimisers of ONNX Runtime, session settings, and the block of this CPU."""
