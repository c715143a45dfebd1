"""Gelu and SiLU: the spelled-out forms against the operators, both ways."""

import math

import numpy as np
import pytest

from graph_rewrite.onnx_files.assembly import named_in
from graph_rewrite.rules.fusion import activations as A
from tests.graph_rewrite.rules.checking import check_rule, model, refuses

FLOAT32 = 1e-6  # constants and attributes are rounded to float32, wherever the arithmetic is done
CONSTANTS = {
    "half": 0.5, "one": 1.0, "root": math.sqrt(2), "inverse": math.sqrt(0.5), "three": 3.0, "cubic": 0.044715,
    "slope": math.sqrt(2 / math.pi), "c": 1.702,
}  # fmt: skip
ERF = "t = {} e = Erf(t) a = Add(one, e)"
TANH = "t = Mul(cube, cubic) u = Add(x, t) v = Mul(slope, u) w = Tanh(v) a = Add(w, one)"
FIRST, LAST, INSIDE = (
    "p = Mul(half, x) y = Mul(p, a)", "p = Mul(x, a) y = Mul(p, half)", "p = Mul(half, a) y = Mul(x, p)"
)  # fmt: skip
CUBE, POW = "square = Mul(x, x) cube = Mul(x, square)", "cube = Pow(x, three)"
FORMS = {
    A.FuseErfGelu: (ERF.format("Div(x, root)"), FIRST),
    A.FuseErfGeluHalfLast: (ERF.format("Div(x, root)"), LAST),
    A.FuseErfGeluHalfInside: (ERF.format("Div(x, root)"), INSIDE),
    A.FuseErfGeluOfProduct: (ERF.format("Mul(x, inverse)"), FIRST),
    A.FuseErfGeluOfProductHalfLast: (ERF.format("Mul(x, inverse)"), LAST),
    A.FuseErfGeluOfProductHalfInside: (ERF.format("Mul(x, inverse)"), INSIDE),
    A.FuseTanhGelu: (POW, TANH, FIRST),
    A.FuseTanhGeluHalfInside: (POW, TANH, INSIDE),
    A.FuseTanhGeluOfCube: (CUBE, TANH, FIRST),
    A.FuseTanhGeluFactored: (
        "t = Mul(x, cubic) u = Mul(x, t) v = Add(one, u) s = Mul(x, slope) m = Mul(s, v) w = Tanh(m) a = Add(one, w)",
        FIRST,
    ),
}


def activation(*parts, **changed):
    body = " ".join(parts)
    used = {name: np.float32(value) for name, value in named_in(body, {**CONSTANTS, **changed}).items()}
    return model(f"(float[3,5] x) => (y) {{ {body} }}", **used)


@pytest.mark.parametrize("rule", FORMS)
def test_spelled_out_gelu_becomes_one_operator(rule):
    (after,) = check_rule(rule, activation(*FORMS[rule]), becomes=["Gelu"], rtol=FLOAT32)
    approximate = [node.attrs.get("approximate", "none") for node in after.nodes.values()]
    assert approximate == ["tanh" if "Tanh" in rule.__name__ else "none"]


@pytest.mark.parametrize(("rule", "changed"), [
    (A.FuseErfGelu, {"root": 1.5}), (A.FuseErfGelu, {"half": 0.25}), (A.FuseErfGeluHalfLast, {"one": 2.0}),
    (A.FuseTanhGelu, {"three": 2.0}), (A.FuseTanhGelu, {"cubic": 0.045}), (A.FuseTanhGelu, {"slope": 0.8}),
])  # fmt: skip
def test_other_constants_are_no_gelu(rule, changed):
    ((name, value),) = changed.items()
    refuses(rule, activation(*FORMS[rule], **changed), f"a constant is {value:g} instead of {CONSTANTS[name]:.7g}")


def test_gelu_is_spelled_out_and_recognised_again():
    (erf,) = check_rule(A.ExpandGelu, activation("y = Gelu(x)"), rtol=FLOAT32)
    check_rule(A.FuseErfGelu, erf, becomes=["Gelu"], rtol=FLOAT32)
    (tanh,) = check_rule(A.ExpandTanhGelu, activation('y = Gelu<approximate="tanh">(x)'), rtol=FLOAT32)
    check_rule(A.FuseTanhGeluOfCube, tanh, becomes=["Gelu"], rtol=FLOAT32)


def test_gelu_of_the_runtime():
    (contrib,) = check_rule(A.GeluAsMicrosoft, activation("y = Gelu(x)"), becomes=["Gelu"])
    assert [node.domain for node in contrib.nodes.values()] == ["com.microsoft"]
    check_rule(A.GeluFromMicrosoft, contrib, becomes=["Gelu"])
    check_rule(A.GeluAsFastGelu, activation('y = Gelu<approximate="tanh">(x)'), becomes=["FastGelu"])


def test_only_float32_has_kernels_of_the_runtime():
    text = '(double[3,5] x) => (y) {{ y = Gelu<approximate="{}">(x) }}'
    refuses(A.GeluAsMicrosoft, model(text.format("none")), "float32 only")
    refuses(A.GeluAsFastGelu, model(text.format("tanh")), "float32 only")
    refuses(A.FuseSilu, model("(double[3,5] x) => (y) { s = Sigmoid(x) y = Mul(x, s) }"), "float32 only")


def test_quick_gelu_and_back():
    graph = activation("t = Mul(c, x) s = Sigmoid(t) y = Mul(x, s)")
    (quick,) = check_rule(A.FuseQuickGelu, graph, becomes=["QuickGelu"])
    check_rule(A.ExpandQuickGelu, quick, becomes=["Mul", "Mul", "Sigmoid"])
    (silu,) = check_rule(A.FuseSilu, activation("s = Sigmoid(x) y = Mul(s, x)"), becomes=["QuickGelu"])
    check_rule(A.ExpandQuickGelu, silu, becomes=["Mul", "Sigmoid"])


def test_quick_gelu_by_the_kernel_of_silu():
    graph = activation("y = com.microsoft.QuickGelu<alpha=1.702>(x)")
    check_rule(A.QuickGeluAsScaledSilu, graph, becomes=["Mul", "Mul", "QuickGelu"], rtol=FLOAT32)
    refuses(A.QuickGeluAsScaledSilu, activation("y = com.microsoft.QuickGelu<alpha=1.0>(x)"), "alpha is 1")


def test_fast_gelu_takes_no_scalar():
    refuses(A.GeluAsFastGelu, model('(float x) => (y) { y = Gelu<approximate="tanh">(x) }'), "no scalar")
