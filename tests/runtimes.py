"""Every runtime that a deployment may name and that runs on a CPU: tests that hold for all of them."""

import importlib.util

import pytest

HAS_OPENVINO = importlib.util.find_spec("openvino") is not None
needs_openvino = pytest.mark.skipif(not HAS_OPENVINO, reason="OpenVINO is not installed: the extra `openvino`")
every_provider = pytest.mark.parametrize("provider", ["cpu", pytest.param("openvino", marks=needs_openvino)])
"""Runs a test with ONNX Runtime's CPU provider and with OpenVINO; its parameter is `provider`."""
