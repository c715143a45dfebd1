"""Every operator over the rationals and over the prime field against the float64 reference, at small integers."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.soundness.domains.domain import Unsupported
from graph_rewrite.soundness.domains.interpretation import Interpretation
from graph_rewrite.soundness.domains.prime_field import P, PrimeField
from graph_rewrite.soundness.domains.reals import Reals
from graph_rewrite.soundness.semantics.call import FLOATS
from graph_rewrite.soundness.semantics.evaluation import Evaluator, inputs_of
from tests.graph_rewrite.rules.checking import model

RNG = np.random.default_rng(3)


def whole(*shape):
    """Small integers, as float32 weights."""
    return RNG.integers(-3, 4, shape).astype(np.float32)


class FieldAt(PrimeField):
    """The prime field with given integers as variables."""

    def __init__(self, values):
        super().__init__()
        self._values = values

    def variables(self, name, shape):
        return self._values[name].astype(np.int64) % P

    def truths(self, name, shape):
        return self._values[name]


def small_feeds(graph, low=-3):
    feeds = {}
    for value in graph.inputs:
        type = graph.types[value]
        kind = {1: np.float32, 7: np.int64, 6: np.int32, 9: np.bool_, 11: np.float64, 2: np.uint8}[type.dtype]
        feeds[graph.names[value]] = RNG.integers(0 if kind in (np.bool_, np.uint8) else low, 4, type.shape).astype(kind)
    return feeds


def check(graph, feeds, field=True, integers=False):
    """The reals give what the reference gives, and the field what the reals give."""
    evaluator = Evaluator(Reals(feeds), Interpretation(ideal=False))
    exact = evaluator.outputs(graph, inputs_of(graph, evaluator.domain, 0, integers))
    expected = run_graph(graph, feeds)
    for reference, found in zip(expected, exact, strict=True):
        assert found.array.shape == reference.shape
        numbers = np.array([float(x) for x in found.array.reshape(-1)]).reshape(found.array.shape)
        np.testing.assert_allclose(numbers, reference.astype(np.float64), rtol=1e-6, atol=1e-6)
    if not field:
        return
    over = FieldAt(feeds)
    modular = Evaluator(over, Interpretation(ideal=False)).outputs(graph, inputs_of(graph, over, 0, integers))
    for fractions, residues in zip(exact, modular, strict=True):
        if residues.dtype in FLOATS or not residues.known:
            wanted = [x if residues.dtype == 9 else over.literal(Fraction(x)) for x in fractions.array.reshape(-1)]
            assert residues.array.reshape(-1).tolist() == wanted


W = {"w": whole(4, 2, 3, 3), "b": whole(4)}
RATIONAL = [
    ("(float[2,3] x, float[3] y) => (z) { a = Add(x, y) b = Sub(a, x) c = Mul(b, a) z = Neg(c) }", {}),
    ("(float[2,3] x) => (z) { a = Add(x, c) b = Reciprocal(a) z = Div(x, a) }", {"c": np.full(3, 5.5)}),
    ("(float[2,3] x, float[3] y, float[2,1] w) => (a, b) { a = Sum(x, y, w) b = Mean(x, y, w) }", {}),
    ("(float[2,3,4] x, float[4,5] y) => (z) { z = MatMul(x, y) }", {}),
    ("(float[4] x, float[3,4,5] y) => (z) { z = MatMul(x, y) }", {}),
    ("(float[4] x, float[4] y) => (z) { z = MatMul(x, y) }", {}),
    ("(float[2,3,4] x, float[4] y) => (z) { z = MatMul(x, y) }", {}),
    ("""(float[4,2] x, float[3,4] y, float[3] c) => (z)
        { z = Gemm<alpha=0.5, beta=2.0, transA=1, transB=1>(x, y, c) }""", {}),
    ("(float[2,4,5,5] x) => (y) { y = Conv<group=2, pads=[1,0,2,1], strides=[2,1]>(x, w, b) }", W),
    ("(float[1,4,7,6] x) => (y) { y = Conv<group=2, dilations=[2,1], auto_pad=\"SAME_UPPER\">(x, w) }", {"w": W["w"]}),
    ("(float[1,2,7] x) => (y) { y = Conv<auto_pad=\"SAME_LOWER\", strides=[2]>(x, w) }", {"w": whole(3, 2, 2)}),
    ("(float[1,2,3,4,3] x) => (y) { y = Conv<pads=[1,1,0,0,0,1]>(x, w) }", {"w": whole(2, 2, 2, 2, 3)}),
    ("(float[1,2,5,4] x) => (y) { y = AveragePool<kernel_shape=[2,2], pads=[1,0,0,1]>(x) }", {}),
    ("""(float[1,2,5,4] x) => (y)
        { y = AveragePool<kernel_shape=[3,2], pads=[1,1,1,1], count_include_pad=1, strides=[2,2]>(x) }""", {}),
    ("(float[1,2,5,4] x) => (y) { y = GlobalAveragePool(x) }", {}),
    ("""(float[1,4,3,2] x) => (y)
        { y = ConvTranspose<pads=[1,0,2,1], strides=[2,3], output_padding=[1,2]>(x, w, c) }""", {**W, "c": whole(2)}),
    ("(float[1,4,3,3] x) => (y) { y = ConvTranspose<dilations=[2,1]>(x, w) }", {"w": whole(4, 2, 2, 3)}),
    ("(float[1,2,3,2] x) => (y) { y = Resize(x, , s) }", {"s": np.array([1, 1, 2, 3], np.float32)}),
    ("""(float[1,1,3,4] x) => (a, b, c)
        <int64[2] s = {5, 2}> { a = Resize<axes=[2,3], nearest_mode="floor">(x, , , s)
        b = Resize<axes=[2,3], nearest_mode="ceil", coordinate_transformation_mode="align_corners">(x, , , s)
        c = Resize<axes=[2,3], nearest_mode="round_prefer_ceil", coordinate_transformation_mode="asymmetric">(x, , , s)
        }""", {}),
    ("""(float[1,2,3,2] x) => (a, b, c)
        <int64[4] s = {1, 2, 6, 1}> { a = Resize<mode="linear">(x, , , s)
        b = Resize<mode="linear", coordinate_transformation_mode="pytorch_half_pixel">(x, , , s)
        c = Resize<mode="linear", coordinate_transformation_mode="align_corners">(x, , , s) }""", {}),
    ("""(float[2,3,4] x) => (a, b, c, d)
        <int64[1] i = {-1}, int64[2] j = {0, 2}> { a = ReduceSum(x, i) b = ReduceMean<keepdims=0>(x, j)
        c = ReduceProd(x, i) d = ReduceSumSquare(x) }""", {}),
    ("""(float[2,3] x) => (a, b)
        { a = Pow(x, two) b = Pow(x, three) }""", {"two": np.float32(2), "three": np.full(3, 3.0)}),
    ("(float[2,3,4] x, float[2,4,3] y) => (z) { z = Einsum<equation=\"bij,bjk->bik\">(x, y) }", {}),
    ("(float[2,3] x) => (y) <int64 axis = {1}> { y = CumSum(x, axis) }", {}),
    ("""(float[2,3,4] x) => (a, b, c)
        <int64[2] s = {4, -1}, int64[1] o = {1}> { a = Transpose<perm=[2,0,1]>(x) b = Reshape(x, s)
        c = Unsqueeze(x, o) }""", {}),
    ("""(float[2,3] x, float[2,1] y) => (a, b, c)
        { a = Concat<axis=1>(x, y) b, c = Split<axis=1, num_outputs=2>(a) }""", {}),
    ("""(float[3,4] x) => (a, b)
        <int64[2] i = {2, 0}, int64[1] s = {-1}, int64[1] e = {-5}, int64[1] n = {1}> {
        a = Gather<axis=1>(x, i) b = Slice(x, s, e, n, s) }""", {}),
    ("""(float[2,3] x) => (a, b)
        <int64[4] p = {1, 0, 0, 2}, int64[3] s = {2, 2, 3}, float v = {1.5}> { a = Pad(x, p, v)
        b = Expand(x, s) }""", {}),
    ("""(float[2,1,3] x) => (a, b, c)
        <int64[1] o = {1}, int64[3] t = {1, 2, 2}> { a = Squeeze(x, o) b = Flatten<axis=2>(x)
        c = Tile(x, t) }""", {}),
    ("(float[1,4,2,2] x) => (a, b) { a = DepthToSpace<blocksize=2>(x) b = SpaceToDepth<blocksize=2>(x) }", {}),
    ("(float[3,3] x, bool[3,3] c, float[3] y) => (a, b) { a = Where(c, x, y) b = Trilu(x) }", {}),
    ("(float[2,3] x) => (y) { a = Dropout(x) y = Identity(a) }", {}),
    ("(float[2,3,5] a, float[2,3,4] b) => (y) { y = com.microsoft.FusedMatMul<alpha=0.25, transA=1>(a, b) }", {}),
    ("(float[1,4,4,4] x, float[1,4,2,2] z) => (y) { y = com.microsoft.FusedConv<group=2>(x, w, b, z) }", W),
    ("(int64[2,3] x, int64[3] y) => (z) { a = Mul(x, y) z = Sub(a, x) }", {}),
    ("(int64[2,3] x) => (y) { y = BitwiseNot(x) }", {}),
    ("(bool[3] x, bool[3] y) => (a, b, c) { a = And(x, y) b = Or(x, y) n = Not(x) c = Xor(n, y) }", {}),
    ("(bool[2,3] x) => (a, b) <int64[1] i = {1}> { a = ReduceMin(x, i) b = ReduceMax<keepdims=0>(x, i) }", {}),
    ("(bool[3] x, float[3] y) => (z) { a = Cast<to=1>(x) z = Add(a, y) }", {}),
]  # fmt: skip
ORDERED = [
    "(float[2,3] x, float[3] y) => (a, b) { a = Max(x, y) b = Min(x, y, a) }",
    "(float[2,3] x) => (a, b, c) { a = Relu(x) b = LeakyRelu<alpha=0.25>(x) c = Abs(x) }",
    "(float[2,3] x, float[3] s) => (a) { a = PRelu(x, s) }",
    "(float[2,3] x) => (a, b) <float low = {-1.0}, float high = {2.0}> { a = Clip(x, low, high) b = Clip(x, , high) }",
    "(float[2,3] x) => (a, b) { a = HardSigmoid(x) b = HardSwish(x) }",
    """(float[1,2,5,4] x) => (a, b)
        { a = MaxPool<kernel_shape=[3,2], pads=[1,1,1,0], strides=[2,1]>(x) b = GlobalMaxPool(x) }""",
    "(float[1,1,5,4] x) => (a) { a = MaxPool<kernel_shape=[2,2], ceil_mode=1, strides=[2,3]>(x) }",
    "(float[2,3] x) => (a, b) <int64[1] i = {1}> { a = ReduceMax(x, i) b = ReduceMin<keepdims=0>(x, i) }",
    """(float[2,3] x) => (a, b, c, d)
        <float h = {0.5}> { y = Mul(x, h) a = Floor(y) b = Ceil(y) c = Round(y) d = Sign(y) }""",
    """(float[3] x, float[3] y) => (a, b)
        { l = Less(x, y) g = GreaterOrEqual(x, y) a = Where(l, x, y) b = Where(g, x, y) }""",
    "(float[3] x, float[3] y) => (a) { e = Equal(x, y) n = Not(e) a = Where(n, x, y) }",
    """(float[1,2,3,3] x) => (y)
        <float[2,2,1,1] w = {1.0, -2.0, 0.5, 3.0}> {
        y = com.microsoft.FusedConv<activation="Clip", activation_params=[-1.0, 2.0]>(x, w) }""",
]  # fmt: skip


@pytest.mark.parametrize(("text", "constants"), RATIONAL, ids=lambda v: v if isinstance(v, str) else "")
def test_rational_operator(text, constants):
    graph = model(text, **constants)
    check(graph, small_feeds(graph))


@pytest.mark.parametrize("text", ORDERED)
def test_operator_that_compares(text):
    graph = model(text)
    check(graph, small_feeds(graph), field=False)


def test_indices_that_depend_on_an_input_are_drawn():
    graph = model("(float[3,2] x, int64[2] i) => (y) { y = Gather(x, i) }")
    over = PrimeField()
    inputs = inputs_of(graph, over, 0, integers=True)
    (found,) = Evaluator(over, Interpretation(ideal=False)).outputs(graph, inputs)
    np.testing.assert_array_equal(found.array, inputs["x"].array[inputs["i"].array])


@pytest.mark.parametrize(("text", "reason"), [
    ("(int64[2,2] x) => (z) { z = ReduceMean(x) }", "rounds"),
    ("(float[2] x, float[3] y) => (float[2] z) { z = Add(x, y) }", "cannot take these inputs"),
    ("(float[2] x) => (float[2] y) { y = RandomNormalLike(x) }", "no exact meaning of RandomNormalLike"),
    ("(float[1,1,4] x) => (y, i) { y, i = MaxPool<kernel_shape=[2]>(x) }", "indices of MaxPool"),
    ("(float[1,2,4] x, float[2,1,2] w) => (y) { y = ConvTranspose<group=2>(x, w) }", "with groups"),
    ('(float[1,1,4] x) => (y) <float[3] s = {1.0, 1.0, 2.0}> { y = Resize<mode="cubic">(x, , s) }', "by cubic"),
    ("(float[1,1,4] x, float[1,1,2] w) => (y) { y = ConvTranspose<auto_pad=\"SAME_UPPER\">(x, w) }", "depends on the"),
])  # fmt: skip
def test_what_has_no_exact_meaning_says_so(text, reason):
    graph = model(text)
    over = PrimeField()
    with pytest.raises(Unsupported, match=reason):
        Evaluator(over, Interpretation(ideal=False)).outputs(graph, inputs_of(graph, over, 0, integers=False))


def test_weights_that_were_folded_are_evaluated_as_expressions():
    from graph_rewrite import Rewriter
    from graph_rewrite.rules.matmul.algebra import AssociateMatMulRight

    graph = model("(float[2,3] x) => (y) { a = MatMul(x, v) y = MatMul(a, w) }", v=RNG.normal(size=(3, 4)),
                  w=RNG.normal(size=(4, 2)))  # fmt: skip
    (candidate,) = Rewriter([AssociateMatMulRight()], "site", deployment=False).candidates(graph)
    feeds = {"x": np.ones((2, 3), np.float32)}
    values = []
    for graph_ in (graph, candidate.apply()):
        evaluator = Evaluator(Reals(feeds), Interpretation(ideal=False))
        values.append(evaluator.outputs(graph_, inputs_of(graph_, evaluator.domain, 0, False))[0].array.tolist())
    assert values[0] == values[1]
    assert run_graph(graph, feeds)[0].tolist() != run_graph(candidate.apply(), feeds)[0].tolist()


@st.composite
def images(draw):
    rank = draw(st.integers(1, 2))
    small = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    kernel, dilations = small(1, 3), small(1, 2)
    pads = [draw(st.integers(0, min(k - 1, 2))) for k in (*kernel, *kernel)]
    sizes = small(2, 6)
    for i in range(rank):
        assume(sizes[i] + pads[i] + pads[rank + i] >= dilations[i] * (kernel[i] - 1) + 1)
    return {"sizes": sizes, "kernel": kernel, "strides": small(1, 3), "dilations": dilations, "pads": pads}


@settings(max_examples=20, deadline=None)
@given(images(), st.integers(1, 2), st.integers(0, 2**16))
def test_windows_of_convolutions(image, groups, seed):
    rng = np.random.default_rng(seed)
    attrs = ", ".join(f"{name}={image[name]}" for name in ("strides", "dilations", "pads"))
    shape = ",".join(map(str, (1, 2 * groups, *image["sizes"])))
    text = f"(float[{shape}] x) => (y) {{ y = Conv<group={groups}, {attrs}>(x, w) }}"
    graph = model(text, w=rng.integers(-3, 4, (2 * groups, 2, *image["kernel"])).astype(np.float32))
    check(graph, {"x": rng.integers(-3, 4, (1, 2 * groups, *image["sizes"])).astype(np.float32)})


@settings(max_examples=20, deadline=None)
@given(images(), st.integers(0, 1), st.integers(0, 2**16))
def test_windows_of_pools(image, included, seed):
    rng = np.random.default_rng(seed)
    attrs = ", ".join(f"{name}={image[name]}" for name in ("strides", "pads"))
    text = f"""(float[1,1,{",".join(map(str, image["sizes"]))}] x) => (y)
        {{ y = AveragePool<kernel_shape={image["kernel"]}, count_include_pad={included}, {attrs}>(x) }}"""
    check(model(text), {"x": rng.integers(-3, 4, (1, 1, *image["sizes"])).astype(np.float32)})


@pytest.mark.parametrize("zero", [np.int8(-2), np.uint8(3)])
def test_quantisation(zero):
    text = "(float[4] x) => (q, d) { q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z) }"
    graph = model(text, s=np.float32(0.25), z=zero)
    check(graph, {"x": np.array([0.125, -0.375, 100, -7], np.float32)}, field=False)


def test_quantisation_along_an_axis():
    text = "(float[2,3] x) => (q, d) { q = QuantizeLinear<axis = 0>(x, s, z)  d = DequantizeLinear<axis = 0>(q, s, z) }"
    graph = model(text, s=np.array([0.5, 2], np.float32), z=np.array([1, -1], np.int8))
    check(graph, {"x": np.array([[1, 2.25, 3.25], [-5, 1, 300]], np.float32)}, field=False)
