"""A model with an operator of onnxruntime-extensions, for tests that need a library of operators."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.graph_rewrite.sample_models import parsed, weights

DOMAIN = "ai.onnx.contrib"
OPERATOR = f"{DOMAIN}::Inverse"


def library() -> str:
    """Return the path of a library of operators; skip the test where there is none."""
    reason = "onnxruntime-extensions is not installed: it is a library of operators to test with"
    return str(pytest.importorskip("onnxruntime_extensions", reason=reason).get_library_path())


def model(op: str = "Inverse", inputs: str = "float[4,4] x", seed: int = 0) -> onnx.ModelProto:
    """Return a model with two transpositions to compose, the operator, and a product behind it, whose type the file
    declares."""
    made = parsed(
        f"""({inputs}) => (float[4,4] y) {{
            s = Transpose<perm = [1, 0]>(x)  t = Transpose<perm = [1, 0]>(s)  u = Add(t, e)  n = Identity(u)
            i = ai.onnx.contrib.{op}(n)  p = Transpose<perm = [1, 0]>(i)  q = Transpose<perm = [1, 0]>(p)
            y = MatMul(q, a) }}""",
        weights("a", 4, 4, seed=seed),
        weights("e", 4, 4, seed=seed + 1),
    )
    made.opset_import.add(domain=DOMAIN, version=1)
    made.graph.value_info.append(onnx.helper.make_tensor_value_info("i", onnx.TensorProto.FLOAT, [4, 4]))
    return made


def write(path: Path, op: str = "Inverse", inputs: str = "float[4,4] x", seed: int = 0) -> Path:
    """Write the model."""
    onnx.save(model(op, inputs, seed), path)
    return path
