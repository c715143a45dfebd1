"""Numbers that an operator keeps as an attribute are numbers of float32, in models of float64 too."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules.convolution import absorption as C
from graph_rewrite.rules.fusion import normalizations as N
from tests.graph_rewrite.rules.checking import check_rule, refuses, weights
from tests.graph_rewrite.sample_models import parsed

SMALL = {"x": 1e-3 * weights(2, 4, dtype=np.float64)}
"""Inputs whose variance is as small as epsilon, which then decides."""
VECTORS = {name: weights(4, seed=seed, dtype=np.float64) for seed, name in enumerate("gbm")}
SPELLED_OUT = """(double[2,4] x) => (double[2,4] y) { m = ReduceMean<keepdims=1>(x, axes) d = Sub(x, m) q = Pow(d, two)
    v = ReduceMean<keepdims=1>(q, axes) e = Add(v, eps) r = Sqrt(e) y = Div(d, r) }"""


def model(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    return parsed(text, *(onnx.numpy_helper.from_array(value, name) for name, value in constants.items()))


@pytest.mark.parametrize(
    ("rule", "operator"),
    [
        (N.ExpandLayerNormalization, "LayerNormalization(x, g, b)"),
        (N.ExpandRMSNormalization, "RMSNormalization(x, g)"),
        (C.BatchNormToMulAdd, "BatchNormalization(x, g, b, m, v)"),
    ],
)
def test_an_epsilon_by_default_is_rounded_to_float32(rule: type[Rule], operator: str) -> None:
    constants = {name: value for name, value in {**VECTORS, "v": np.full(4, 1e-6)}.items() if f" {name}" in operator}
    graph = model(f"(double[2,4] x) => (double[2,4] y) {{ y = {operator} }}", **constants)
    check_rule(rule, graph, feeds=SMALL, rtol=1e-7, rtol_float32=1e-13)


@pytest.mark.parametrize("epsilon", [1e-3, float(np.float32(1e-5))])
def test_an_epsilon_of_float64_becomes_an_attribute_only_if_nothing_is_lost(epsilon: float) -> None:
    axes, two = np.array([-1]), np.array(2.0)
    graph = model(SPELLED_OUT, axes=axes, two=two, eps=np.array(epsilon))
    if float(np.float32(epsilon)) == epsilon:
        check_rule(N.FusePlainLayerNormalization, graph, feeds=SMALL, becomes=["LayerNormalization"])
    else:
        refuses(N.FusePlainLayerNormalization, graph, "is no number of float32")
