"""Matching: commutative operands, shared values, optional and variadic inputs, several roots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import onnx
import pytest

from graph_rewrite import Graph, load
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.matching import Matcher
from graph_rewrite.rewriting.patterns import Const, Maybe, MaybeConst, Scalar, Values, build_pattern
from graph_rewrite.rewriting.prefilter import PatternIndex
from tests.graph_rewrite import sample_models
from tests.graph_rewrite.rules.checking import model


def matches(graph: Graph, source: Callable[..., Any], symmetric: bool = False) -> list[Match]:
    """Return all matches in the graph's order. Every one must also pass the quick test that goes before matching."""
    pattern = build_pattern(source)
    index = PatternIndex([pattern])
    found = []
    for node in graph.order():
        here = list(Matcher(graph, pattern, set(), symmetric).at(node))
        assert not here or index.plausible(graph, node, set()) == [0]
        found.extend(here)
    return found


def bound(graph: Graph, source: Callable[..., Any], symmetric: bool = False) -> list[list[str]]:
    """Return the names of the values that each match binds its variables to."""

    def name(ref: Any) -> str:
        if ref is None:
            return "-"
        return "+".join(map(name, ref)) if isinstance(ref, tuple) else graph.names[ref.external]

    return [[name(ref) for ref in match.refs] for match in matches(graph, source, symmetric)]


class TestOperands:
    def test_both_orders_of_a_commutative_operator(self) -> None:
        graph = model("(float[3] a, float[3] b) => (y) { t = Relu(a)  y = Add(b, t) }")

        def source(op: Any, x: Any, y: Any) -> Any:
            return op.Add(op.Relu(x), y)

        assert bound(graph, source) == [["a", "b"]]
        assert bound(model("(float[3] a, float[3] b) => (y) { y = Add(b, a) }"),
                     lambda op, x, y: op.Add(x, y)) == [["b", "a"], ["a", "b"]]  # fmt: skip
        assert bound(model("(float[3] a) => (y) { y = Add(a, a) }"),
                     lambda op, x, y: op.Add(x, y)) == [["a", "a"]]  # fmt: skip

    def test_one_order_of_any_other_operator(self) -> None:
        graph = model("(float[3] a, float[3] b) => (y) { t = Relu(a)  y = Sub(b, t) }")
        assert bound(graph, lambda op, x, y: op.Sub(op.Relu(x), y)) == []
        assert bound(graph, lambda op, x, y: op.Sub(y, op.Relu(x))) == [["a", "b"]]

    def test_what_one_order_bound_is_forgotten_by_the_other(self) -> None:
        graph = model(
            "(float[3] a, float[3] b) => (y) { s = Mul(a, b)  t = Mul(b, w)  y = Add(s, t) }", w=[1.0, 2.0, 3.0]
        )

        def factored(op: Any, x: Any, y: Any, w: Const) -> Any:
            return op.Add(op.Mul(x, y), op.Mul(x, w))

        assert bound(graph, factored) == [["b", "a", "w"]]

    def test_one_variable_twice(self) -> None:
        graph = model("(float[3] a, float[3] b) => (y, z) { y = Mul(a, a)  z = Mul(a, b) }")
        assert bound(graph, lambda op, x: op.Mul(x, x)) == [["a"]]

    def test_equal_constants_are_one_value(self) -> None:
        text = "(float[3] a) => (y) { s = Mul(a, v)  t = Mul(s, w)  y = Neg(t) }"

        def source(op: Any, x: Any, c: Const) -> Any:
            return op.Mul(op.Mul(x, c), c)

        assert bound(model(text, v=[1.0, 2.0, 3.0], w=[1.0, 2.0, 3.0]), source) == [["a", "v"]]
        assert bound(model(text, v=[1.0, 2.0, 3.0], w=[1.0, 2.0, 4.0]), source) == []

    def test_kinds_of_constants(self) -> None:
        graph = model("(float[3] a) => (y, z) { y = Mul(a, v)  z = Mul(a, s) }", v=[1.0, 2.0, 3.0], s=[2.0])

        def constant(op: Any, x: Any, c: Const) -> Any:
            return op.Mul(x, c)

        def scalar(op: Any, x: Any, c: Scalar) -> Any:
            return op.Mul(x, c)

        assert bound(graph, constant) == [["a", "v"], ["a", "s"]]
        assert bound(graph, scalar) == [["a", "s"]]


class TestInputs:
    def test_optional_inputs(self) -> None:
        graph = model("(float[3] a) => (x, y, z) { x = Clip(a)  y = Clip(a, , h)  z = Clip(a, l, h) }", l=-1.0, h=1.0)

        def any_clip(op: Any, x: Any, low: Maybe, high: MaybeConst) -> Any:
            return op.Clip(x, low, high)

        assert bound(graph, any_clip) == [["a", "-", "-"], ["a", "-", "h"], ["a", "l", "h"]]
        assert bound(graph, lambda op, x: op.Clip(x)) == [["a"]]
        assert bound(graph, lambda op, x, h: op.Clip(x, None, h)) == [["a", "h"]]

        def computed(op: Any, x: Any, high: MaybeConst) -> Any:
            return op.Max(x, high)

        assert bound(model("(float[3] a, float[3] b) => (y) { y = Max(a, b) }"), computed) == []

    def test_variadic_inputs(self) -> None:
        graph = model("(float[3] a, float[3] b) => (y) { y = Concat<axis = 0>(a, b, a) }")

        def every(op: Any, parts: Values) -> Any:
            return op.Concat(parts, axis=op.attr("axis"))

        def first_apart(op: Any, first: Any, rest: Values) -> Any:
            return op.Concat(first, rest)

        assert bound(graph, every) == [["a+b+a"]]
        assert bound(graph, first_apart) == [["a", "b+a"]]
        assert matches(graph, every)[0].attr("axis") == 0


class TestAttributes:
    def test_literal_attributes_and_defaults(self) -> None:
        graph = model("(float[3,4] a) => (x, y) { x = Softmax(a)  y = Softmax<axis = 0>(a) }")
        assert len(matches(graph, lambda op, x: op.Softmax(x, axis=-1))) == 1
        assert len(matches(graph, lambda op, x: op.Softmax(x, axis=0))) == 1
        assert len(matches(graph, lambda op, x: op.Softmax(x))) == 2
        assert [m.attr("a") for m in matches(graph, lambda op, x: op.Softmax(x, axis=op.attr("a", 7)))] == [7, 0]

    def test_one_attribute_variable_twice(self) -> None:
        text = "(float[3,4] a) => (y) { t = Softmax<axis = 0>(a)  y = Softmax<axis = AXIS>(t) }"

        def source(op: Any, x: Any) -> Any:
            return op.Softmax(op.Softmax(x, axis=op.attr("a")), axis=op.attr("a"))

        assert len(matches(model(text.replace("AXIS", "0")), source)) == 1
        assert matches(model(text.replace("AXIS", "1")), source) == []

    def test_one_of_several_operators(self) -> None:
        graph = model("(float[3] a) => (x, y, z) { x = Relu(a)  y = Tanh(a)  z = Neg(a) }")
        found = matches(graph, lambda op, x: op.any_of({"Relu", "Tanh"})(x, _label="f"))
        assert [match.node("f").op for match in found] == ["Relu", "Tanh"]

    def test_number_of_outputs(self) -> None:
        graph = model("(float[4] a) => (x, y) { x, y = Split<num_outputs = 2>(a) }")
        assert matches(graph, lambda op, x: op.Split(x)) == []

        def halves(op: Any, x: Any) -> Any:
            a, b = op.Split(x, _outputs=2)
            return op.Neg(b), a

        assert matches(graph, halves) == []
        graph = model("(float[4] a) => (x, y) { x, t = Split<num_outputs = 2>(a)  y = Neg(t) }")
        assert len(matches(graph, halves)) == 1
        graph = model("(float[4] a) => (x, y) { t, x = Split<num_outputs = 2>(a)  y = Neg(t) }")
        assert matches(graph, halves) == [], "the other half is negated"


class TestRoots:
    TEXT = "(float[2,3] a) => (x, y, z) { x = MatMul(a, u)  y = MatMul(a, v)  z = MatMul(a, w) }"
    WEIGHTS: ClassVar = {name: [[float(i)] * 4] * 3 for i, name in enumerate("uvw")}

    @staticmethod
    def parallel(op: Any, x: Any, v: Const, w: Const) -> Any:
        return op.MatMul(x, v), op.MatMul(x, w)

    def test_several_roots_are_found_through_what_they_share(self) -> None:
        graph = model(self.TEXT, **self.WEIGHTS)
        pairs = bound(graph, self.parallel)
        assert sorted(pairs) == [["a", v, w] for v in "uvw" for w in "uvw" if v != w]

    def test_interchangeable_roots_are_matched_once(self) -> None:
        graph = model(self.TEXT, **self.WEIGHTS)
        assert bound(graph, self.parallel, symmetric=True) == [["a", "u", "v"], ["a", "u", "w"], ["a", "v", "w"]]

        def three(op: Any, x: Any, u: Const, v: Const, w: Const) -> Any:
            return op.MatMul(x, u), op.MatMul(x, v), op.MatMul(x, w)

        assert bound(graph, three, symmetric=True) == [["a", "u", "v", "w"]]

    def test_roots_further_down(self) -> None:
        graph = model(
            "(float[2,3] a) => (x, y) { s = MatMul(a, u)  t = MatMul(a, v)  x = Add(s, b)  y = Add(t, c) }",
            u=self.WEIGHTS["u"], v=self.WEIGHTS["v"], b=[1.0] * 4, c=[2.0] * 4,
        )  # fmt: skip

        def biased(op: Any, x: Any, u: Const, v: Const, b: Const, c: Const) -> Any:
            return op.Add(op.MatMul(x, u), b), op.Add(op.MatMul(x, v), c)

        assert bound(graph, biased, symmetric=True) == [["a", "u", "v", "b", "c"]]

    def test_roots_that_share_nothing_are_not_paired(self) -> None:
        graph = model("(float[3] a, float[3] b) => (x, y) { x = Relu(a)  y = Relu(b) }")
        assert matches(graph, lambda op, x, y: (op.Relu(x), op.Relu(y))) == []


class TestWhatIsNeverMatched:
    def test_opaque_nodes(self) -> None:
        graph = load(sample_models.functions())
        assert {node.opaque for node in graph.nodes.values()} == {True}
        graph = load(sample_models.sparse())
        assert matches(graph, lambda op: op.Constant()) == []
        assert len(matches(graph, lambda op, x, w: op.MatMul(x, w))) == 1

        def constant(op: Any, x: Any, w: Const) -> Any:
            return op.MatMul(x, w)

        assert matches(graph, constant) == [], "a sparse initializer is no constant"

    def test_overridable_initializers_are_no_constants(self) -> None:
        def constant(op: Any, x: Any, w: Const) -> Any:
            return op.MatMul(x, w)

        assert matches(load(sample_models.overridable()), constant) == []

    def test_values_without_a_static_type(self) -> None:
        text = "(float[N] x) => (float[N] y) { t = Relu(x)  y = Neg(t) }"
        assert matches(load(sample_models.parsed(text)), lambda op, x: op.Neg(x)) == []
        assert len(matches(load(sample_models.parsed(text), {"x": (3,)}), lambda op, x: op.Neg(x))) == 1

    def test_other_domains(self) -> None:
        graph = model("(float[3] a) => (float[3] x, float[3] y) { x = Gelu(a)  y = com.microsoft.Gelu(a) }")
        assert len(matches(graph, lambda op, x: op.Gelu(x))) == 1
        assert [m.anchor.domain for m in matches(graph, lambda op, x: op.ms.Gelu(x))] == ["com.microsoft"]


class TestMatch:
    def test_what_a_rule_can_ask(self) -> None:
        graph = model("(float[3] a) => (y, t) { t = Relu(a)  y = Add(t, w) }", w=[1.0, 2.0, 3.0])

        def source(op: Any, x: Any, c: Const) -> Any:
            return op.Add(op.Relu(x, _label="inner"), c)

        (match,) = matches(graph, source)
        x, c = match.refs
        assert (x.shape, x.rank, x.dtype, x.is_const) == ((3,), 1, onnx.TensorProto.FLOAT, False)
        assert c.numpy().tolist() == [1.0, 2.0, 3.0]
        with pytest.raises(ValueError, match="not a constant"):
            x.numpy()
        inner = match.value("inner")
        assert match.is_output(inner)
        assert match.is_output(match.root())
        assert not match.is_output(x)
        assert [node.op for node in match.consumers(inner)] == ["Add"]
        producer = match.producer(inner)
        assert producer is not None
        assert producer.op == "Relu"
        assert match.producer(x) is None
        assert {inner.external, x.external} <= match.reads, "what was asked is what the match depends on"


def test_a_pattern_must_compute_something() -> None:
    with pytest.raises(TypeError, match="must end in operators"):
        build_pattern(lambda op, x: x)
