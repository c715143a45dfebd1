"""A default that is spelled out makes no other operator; what only looks like one does."""

from __future__ import annotations

from typing import Any

import pytest

from graph_rewrite.ir.attributes import operator_signature
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rules import find_rule
from graph_rewrite.rules.rewriter import Rewriter


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Gelu", {"approximate": "none"}),
        ("Gemm", {"alpha": 1.0, "beta": 1.0, "transA": 0}),
        ("Reshape", {"allowzero": 0}),
        ("Conv", {"group": 1, "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "kernel_shape": (3, 3)}),
        ("MaxPool", {"strides": (1, 1), "ceil_mode": 0}),
    ],
)
def test_a_default_that_is_spelled_out_changes_nothing(op: str, attrs: dict[str, Any]) -> None:
    assert operator_signature(op, "", attrs) == operator_signature(op, "", {})


@pytest.mark.parametrize(
    ("op", "domain", "attrs"),
    [
        ("Softmax", "", {"axis": -1}),  # 1 before opset 13
        ("Softmax", "", {"axis": 1}),
        ("Concat", "", {"axis": 1}),
        ("Gemm", "", {"alpha": 1}),  # no float
        ("ThresholdedRelu", "", {"alpha": -0.0}),
        ("Attention", "", {"softcap": -0.0}),
        ("Gelu", "", {"approximate": "tanh"}),
        ("Gelu", "com.microsoft", {"approximate": "none"}),
        ("MaxPool", "", {"kernel_shape": (3, 3)}),
        ("MaxPool", "", {"pads": (0, 0, 1, 1)}),
        ("Conv", "", {"strides": (2, 1)}),
        ("Conv", "", {"strides": ()}),
        ("Transpose", "", {"perm": (1, 0)}),
    ],
)
def test_everything_else_does(op: str, domain: str, attrs: dict[str, Any]) -> None:
    assert operator_signature(op, domain, attrs) != operator_signature(op, domain, {})


def test_a_form_and_back_is_the_graph_it_began_with() -> None:
    """Exporters spell out that Gelu is exact; the rule that puts it together again does not."""
    graph = model('(float[2,8] x) => (y) { y = Gelu<approximate="none">(x) }')
    start, there, back = graph.hash, find_rule("ExpandGelu"), find_rule("FuseErfGelu")
    for rule in (there, back):
        (candidate, *_) = Rewriter([rule], deployment=False).candidates(graph)
        graph = candidate.apply()
    assert graph.hash == start
