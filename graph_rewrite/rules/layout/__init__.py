"""Rewrites that keep images in ONNX Runtime's blocked layout: channels padded to blocks, and the layout as explicit
operators."""
