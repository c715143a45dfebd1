"""A model that draws random numbers is told from a wrong rewrite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graph_rewrite import load
from graph_rewrite.delivery.equivalence import equivalent
from graph_rewrite.delivery.random_operators import random_operators
from graph_rewrite.runtime import Deployment
from tests.graph_rewrite.sample_models import parsed

CPU = Deployment()
HALF = numpy_helper.from_array(np.float32(0.5), "half")
TRUE = numpy_helper.from_array(np.array(True), "yes")
RANDOM = {
    "Dropout": "y = Dropout(x, half, yes)",
    "RandomNormalLike": "r = RandomNormalLike(x)  y = Add(x, r)",
    "RandomUniform": "r = RandomUniform<shape = [4, 8]>()  y = Add(x, r)",
    "Multinomial": "m = Multinomial<sample_size = 8>(x)  y = Cast<to = 1>(m)",
    "Bernoulli": "p = Sigmoid(x)  y = Bernoulli(p)",
}


def model(body: str) -> onnx.ModelProto:
    return parsed(f"(float[4,8] x) => (float[4,8] y) {{ {body} }}", HALF, TRUE, opset=20)


@pytest.mark.parametrize("operator", RANDOM)
def test_a_random_model_is_named_as_such(tmp_path: Path, operator: str) -> None:
    """An operator's number among the nodes is part of its seed, so that a rewrite before it changes what it draws."""
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    onnx.save(model(RANDOM[operator]), paths[0])
    onnx.save(model("n = Neg(x)  z = Neg(n)  " + RANDOM[operator].replace("(x", "(z")), paths[1])
    found = equivalent(*paths, CPU)
    assert not found.ok
    assert found.random == ("y",)
    assert f"the original draws random numbers ({operator})" in found.message
    assert "export it in eval mode" in found.message


@pytest.mark.parametrize("operator", RANDOM)
def test_a_random_model_that_is_unchanged_may_be_kept(tmp_path: Path, operator: str) -> None:
    path = tmp_path / "a.onnx"
    onnx.save(model(RANDOM[operator]), path)
    assert equivalent(path, path, CPU).ok


def test_operators_in_subgraphs_count_and_dropout_only_in_training() -> None:
    assert random_operators(load(model("y = Dropout(x, half)"))) == ()
    branch = """(float[4,8] x, bool c) => (float[4,8] y) {
        y = If (c) <then_branch = a () => (float[4,8] p) { p = RandomNormalLike(x) },
                    else_branch = b () => (float[4,8] q) { q = Neg(x) }>
    }"""
    assert random_operators(load(parsed(branch))) == ("RandomNormalLike",)


def test_a_wrong_rewrite_of_a_model_without_randomness_is_no_random_model(tmp_path: Path) -> None:
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    onnx.save(model("y = Relu(x)"), paths[0])
    onnx.save(model("y = Abs(x)"), paths[1])
    found = equivalent(*paths, CPU)
    assert not found.ok
    assert found.random == ()
