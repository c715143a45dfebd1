"""Fast convolutions of explicit operators of the blocked layout."""

import pytest

from graph_rewrite import Graph
from graph_rewrite.operators import nchwc
from graph_rewrite.rules.layout.blocked_winograd import BlockedConvByRows4
from graph_rewrite.soundness.cases.blocked import examples_of, image
from tests.graph_rewrite.rules.checking import check_rule, refuses

BLOCK = nchwc.block_size()
pytestmark = pytest.mark.skipif(not BLOCK, reason="ONNX Runtime has no blocked layout on this CPU")
EXAMPLES = list(examples_of("BlockedConvByRows4")) if BLOCK else []


@pytest.mark.parametrize("graph", EXAMPLES)
def test_outputs_are_equal(graph: Graph) -> None:
    check_rule(BlockedConvByRows4, graph, rtol=1e-6)  # filters are transformed in float32


def test_sums_go_into_the_convolutions() -> None:
    text = "(float[2,C,36,5] x) => (y) { t = NCHWC.Conv<kernel_shape=[3,3],pads=[1,1,1,1]>(x, w)  y = Neg(t) }"
    (after,) = check_rule(BlockedConvByRows4, image(text, {"w": (-1, -2, 3, 3)}), rtol=1e-6)
    found = [node.op for node in after.nodes.values()]
    sums = [node for node in after.nodes.values() if node.op == "Conv" and len(node.inputs) == 4]
    assert len(sums) >= 5
    assert found.count("Add") <= 4
    assert {node.op for node in after.nodes.values() if not node.domain} <= {"Add", "Concat", "Neg", "Reshape"}


@pytest.mark.parametrize(("text", "filters", "reason"), [
    ("float[1,B,28,2] x) => (y) { y = NCHWC.Conv<kernel_shape=[3,3],strides=[2,2]>(x, w) }", (-1, -1, 3, 3), "rows"),
    ("float[1,B,64,4] x) => (y) { y = NCHWC.Conv<kernel_shape=[3,3],strides=[2,2]>(x, w) }", (-1, -1, 3, 3), "strides"),
    ("float[1,B,64,4] x) => (y) { y = NCHWC.Conv<kernel_shape=[1,1]>(x, w) }", (-1, -1, 1, 1), "no transform"),
    ("float[1,3,64,4] x) => (y) { y = NCHWC.Conv<kernel_shape=[3,3]>(x, w) }", (-1, 3, 3, 3), "do not fill blocks"),
    (
        "float[1,B,64,4] x) => (y) { y = NCHWC.Conv<kernel_shape=[3,3],activation=\"Relu\">(x, w) }", (-1, -1, 3, 3),
        "has an activation",
    ),
])  # fmt: skip
def test_what_does_not_pay_or_has_no_such_form_is_refused(text: str, filters: tuple[int, ...], reason: str) -> None:
    refuses(BlockedConvByRows4, image(f"({text}", {"w": filters}), reason)
