"""Sessions for settings that a plain `onnxruntime.InferenceSession` does not keep to by itself."""
