"""BiasGelu and FastGelu of ONNX Runtime against Add and Gelu, both ways."""

import numpy as np
import pytest

from graph_rewrite.rules.fusion import bias_gelu as F
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights


@pytest.mark.parametrize(("approximate", "fuse", "split", "fused"), [
    ("none", F.FuseBiasGelu, F.SplitBiasGelu, "BiasGelu"), ("tanh", F.FuseBiasFastGelu, F.SplitFastGelu, "FastGelu"),
])  # fmt: skip
def test_bias_and_gelu(approximate, fuse, split, fused):
    text = f'(float[2,5,8] x) => (y) {{ t = Add(x, bias) y = Gelu<approximate="{approximate}">(t) }}'
    (joined,) = check_rule(fuse, model(text, bias=weights(8)), becomes=[fused])
    check_rule(split, joined, becomes=["Add", "Gelu"])
    refuses(fuse, model(text, bias=weights(5, 1)), "one number per channel")


@pytest.mark.parametrize(("rule", "form"), [(F.FuseBiasGelu, "none"), (F.FuseBiasFastGelu, "tanh")])
def test_scalars_have_no_channels(rule, form):
    graph = model(f'(float x) => (y) {{ t = Add(x, b)  y = Gelu<approximate="{form}">(t) }}', b=np.float32(2))
    refuses(rule, graph, "one number per channel")
