"""Depthwise convolutions on images with their columns of zeros written out."""

from typing import Any

import pytest

from graph_rewrite import Graph
from graph_rewrite.operators import nchwc
from graph_rewrite.rules.layout.column_padding import PadBeforeBlockedDepthwise, PadBeforeTransposeAndDepthwise
from graph_rewrite.soundness.cases.blocked import examples_of, image
from tests.graph_rewrite.optimized import optimized_ops
from tests.graph_rewrite.rules.checking import check_rule, refuses

BLOCK = nchwc.block_size()
pytestmark = pytest.mark.skipif(not BLOCK, reason="ONNX Runtime has no blocked layout on this CPU")
RULES = (PadBeforeTransposeAndDepthwise, PadBeforeBlockedDepthwise)
EXAMPLES = [(rule, graph) for rule in RULES for graph in examples_of(rule.__name__)] if BLOCK else []


@pytest.mark.parametrize(("rule", "graph"), EXAMPLES)
def test_outputs_are_equal(rule: Any, graph: Graph) -> None:
    check_rule(rule, graph)


def test_only_columns_are_padded_before_and_the_rest_of_the_convolution_stays() -> None:
    text = (
        "(float[2,C,3,7] x) => (y) { t = NCHWC.Conv<kernel_shape=[5,5],group=32,pads=[1,2,3,1],"
        'activation="Relu">(x, w, b)  y = Neg(t) }'
    )
    graph = image(text, {"w": (-2, 1, 5, 5), "b": (32,)})
    (after,) = check_rule(PadBeforeBlockedDepthwise, graph)
    (conv,) = (node for node in after.nodes.values() if node.op == "Conv")
    assert conv.attrs["pads"] == (1, 0, 3, 0)
    assert conv.attrs["activation"] == "Relu"
    image_type = after.types[conv.inputs[0]]
    assert image_type is not None
    assert image_type.shape == (2, 2 * BLOCK, 3, 10)


@pytest.mark.parametrize(("shape", "filters", "attrs", "reason"), [
    ("1,B,7,7", (-1, -1, 5, 5), "kernel_shape=[5,5],pads=[2,2,2,2]", "not a depthwise convolution"),
    ("1,B,7,7", (-1, 1, 3, 3), "kernel_shape=[3,3],group=16,pads=[1,1,1,1]", "taps along a row"),
    ("1,B,7,7", (-1, 1, 5, 5), "kernel_shape=[5,5],group=16,pads=[2,2,2,2],strides=[2,2]", "has strides"),
    ("1,B,3,28", (-1, 1, 5, 5), "kernel_shape=[5,5],group=16,pads=[2,2,2,2]", "few columns"),
    ("1,B,5,7", (-1, 1, 5, 5), "kernel_shape=[5,5],group=16", "few columns"),
])  # fmt: skip
def test_what_does_not_pay_is_refused(shape: str, filters: tuple[int, ...], attrs: str, reason: str) -> None:
    text = f"(float[{shape}] x) => (y) {{ y = NCHWC.Conv<{attrs}>(x, w) }}"
    refuses(PadBeforeBlockedDepthwise, image(text, {"w": filters}), reason)


@pytest.mark.parametrize(("rule", "graph"), EXAMPLES)
def test_a_second_application_finds_nothing(rule: Any, graph: Graph) -> None:
    (after,) = check_rule(rule, graph)
    refuses(rule, after, "few columns")


def test_the_runtime_does_not_put_the_padding_back() -> None:
    """Else the rule would change nothing."""
    rule, graph = EXAMPLES[0]
    (after,) = check_rule(rule, graph)
    assert "Pad" in optimized_ops(after)
    assert "Pad" not in optimized_ops(graph)
