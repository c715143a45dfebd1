"""ONNX Runtime's blocked layout NCHWc as explicit operators, step by step.

A convolution enters the layout, with its constant filters in the order of the layout; what maps or moves whole blocks
follows; ReorderInput and ReorderOutput cancel where they meet. Each rule applies at one operator, or at all of a class;
`blocked_subgraphs` takes a whole subgraph at once. A model with these operators is bound to the CPU's block
(`graph_rewrite.operators.nchwc`), which its deployment records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from onnx import TensorProto

from graph_rewrite.ir.node import Node
from graph_rewrite.operators.nchwc import DOMAIN, plain_filters
from graph_rewrite.operators.operator_sets import POOLS
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, MaybeConst, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.layout.blocked_conv import fused_activation, unsuited
from graph_rewrite.rules.layout.blocked_walk import Walk
from graph_rewrite.rules.layout.carried_operators import BINARY_CARRIED, UNARY_CARRIED, leaves_layout

_FUSED = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"})


class _Blocked(Rule):
    family = "blocked_layout"


class _Enters(_Blocked):
    """A rule of a convolution labelled `conv` and what follows it."""

    def refusal(self, m: Match, x: Ref, w: Ref) -> Refusal | None:
        maker = m.producer(x)
        beside = (*(() if maker is None else (maker,)), *m.consumers(m.root()))
        if not any(leaves_layout(node) for node in beside):
            return Refusal("ONNX Runtime keeps what stands beside it in the layout by itself")
        if x.rank != 4 or x.dtype != TensorProto.FLOAT:
            return Refusal("not a convolution of two-dimensional images in float32")
        reason = unsuited(m.node("conv"), x.shape, w)
        return Refusal(reason) if reason else None

    def carried(self, op: ReplacementBuilder, m: Match) -> Any:
        walk = Walk(op, m)
        for node in m.nodes:
            walk.carry(node)
        if not walk.convolutions or not walk.is_blocked(m.root_values[0]):
            return Refusal("the layout has no such convolution")
        return walk.plain(m.root_values[0])


class ConvInBlockedLayout(_Enters):
    """Conv(x, w, b) = ReorderOutput(Conv'(ReorderInput(x), w', b)), w' the constant filters in the order of the
    layout; inputs of fewer channels than a block stay plain, others are padded with zeros to whole blocks"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Conv(x, w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        readers = m.consumers(m.root())
        if len(readers) == 1 and readers[0].op in _FUSED and not m.is_output(m.root()):
            return Refusal("an activation follows, which belongs into the convolution")
        return self.refusal(m, x, w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        return self.carried(op, m)


class ConvActivationInBlockedLayout(_Enters):
    """f(Conv(x, w, b)) = ReorderOutput(Conv'(ReorderInput(x), w', b) with the activation f), w' the constant filters in
    the order of the layout"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.any_of(_FUSED)(op.Conv(x, w, b, _label="conv"))

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        return self.refusal(m, x, w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        return self.carried(op, m)


class ResidualInBlockedLayout(_Enters):
    """Relu(Add(Conv(x, w, b), s)) = ReorderOutput(Conv'(ReorderInput(x), w', b, ReorderInput(s)) with Relu), w' the
    constant filters in the order of the layout; the convolution adds to s"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst, s: Any) -> Any:
        return op.Relu(op.Add(op.Conv(x, w, b, _label="conv"), s, _label="sum"))

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None, s: Ref) -> Refusal | None:
        return self.refusal(m, x, w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None, s: Ref) -> Any:
        return self.carried(op, m)


class BlockedConvToConv(_Blocked):
    """ReorderOutput(Conv'(ReorderInput(x), w', b)) = Conv(x, w, b), w the filters in their own order"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        conv = op.nchwc.Conv(op.nchwc.ReorderInput(x, _label="entered"), w, b, _label="conv")
        return op.nchwc.ReorderOutput(conv)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if m.attrs("conv").get("activation"):
            return Refusal("the convolution has an activation")
        if m.value("entered").shape != x.shape or m.value("conv").shape != m.root().shape:
            return Refusal("the channels do not fill blocks")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        def apply(name: str, attrs: Mapping[str, Any], inputs: Sequence[Any]) -> Ref:
            refs = tuple(v if isinstance(v, Ref) else op.constant(v) for v in inputs)
            return op.apply(name, "", dict(attrs), refs, 1)[0]

        attrs = m.attrs("conv")
        return op.Conv(x, plain_filters(w, attrs, x.shape[1], apply), b, **attrs)


class ActivationIntoBlockedConv(_Blocked):
    """f(Conv'(x, w, b, s)) = Conv'(x, w, b, s) with the activation f"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: Maybe, s: Maybe) -> Any:
        return op.any_of(_FUSED)(op.nchwc.Conv(x, w, b, s, _label="conv"), _label="f")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None, s: Ref | None) -> Refusal | None:
        return Refusal("the convolution has an activation") if m.attrs("conv").get("activation") else None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None, s: Ref | None) -> Any:
        fused = fused_activation(m.node("f"), ())
        return op.nchwc.Conv(x, w, b, s, **m.attrs("conv"), **(fused or {}))


class SumIntoBlockedConv(_Blocked):
    """Add(Conv'(x, w, b), s) = Conv'(x, w, b, s)"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: Maybe, s: Any) -> Any:
        return op.Add(op.nchwc.Conv(x, w, b, _label="conv"), s)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None, s: Ref) -> Refusal | None:
        if m.attrs("conv").get("activation"):
            return Refusal("the convolution has an activation")
        return None if s.shape == m.root().shape == m.value("conv").shape else Refusal("one summand is broadcast")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None, s: Ref) -> Any:
        return op.nchwc.Conv(x, w, b, s, **m.attrs("conv"))


class ReorderOutputThenInput(_Blocked):
    """ReorderInput(ReorderOutput(x)) = x, where the channels fill blocks"""

    shared_interior = True

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.nchwc.ReorderInput(op.nchwc.ReorderOutput(x, _label="plain"))

    def check(self, m: Match, x: Ref) -> Refusal | None:
        whole = m.value("plain").shape == x.shape == m.root().shape
        return None if whole else Refusal("the channels do not fill blocks: what fills them up is not kept")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return x


class ReorderInputThenOutput(_Blocked):
    """ReorderOutput(ReorderInput(x)) = x"""

    shared_interior = True

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.nchwc.ReorderOutput(op.nchwc.ReorderInput(x))

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return None if m.root().shape == x.shape else Refusal("channels of zeros are kept, or channels are cut off")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return x


class _Follows(_Blocked):
    """A rule of an operator, labelled `f`, on a value that comes out of the layout: the operator moves into the
    layout."""

    shared_interior = True
    operators: ClassVar[frozenset[str]]

    def source(self, op: PatternBuilder, x: Any, rest: Values) -> Any:
        return op.any_of(self.operators)(op.nchwc.ReorderOutput(x), rest, _label="f")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, *rest: Any) -> Any:
        return _followed(op, m, m.node("f"))


def _followed(op: ReplacementBuilder, m: Match, node: Node) -> Any:
    walk = Walk(op, m)
    for value in node.inputs:
        if value is not None and m.graph.types[value] is not None and _comes_out(m, m.ref(value)):
            walk.blocked(value)
    walk.carry(node)
    if not all(walk.is_blocked(value) for value in m.root_values):
        return Refusal("the layout has no such operator, or the channels do not fill blocks")
    results = tuple(walk.plain(value) for value in m.root_values)
    return results if len(results) > 1 else results[0]


def _comes_out(m: Match, x: Ref) -> bool:
    node = m.producer(x)
    return node is not None and node.op == "ReorderOutput" and node.domain == DOMAIN


class UnaryInBlockedLayout(_Follows):
    """f(ReorderOutput(x)) = ReorderOutput(f(x)) for element-wise f"""

    operators = UNARY_CARRIED


class BinaryInBlockedLayout(_Follows):
    """f(ReorderOutput(x), y) = ReorderOutput(f(x, ReorderInput(y))) for f in Add, Sub, Mul, Div, Max, Min and y of the
    same shape; a y of one element stays, one per channel becomes a depthwise convolution"""

    operators = BINARY_CARRIED - {"Pow"}

    def source(self, op: PatternBuilder, x: Any, y: Any) -> Any:
        return op.any_of(self.operators)(op.nchwc.ReorderOutput(x, _label="out"), y, _label="f", _any_order=True)

    def check(self, m: Match, x: Ref, y: Ref) -> Refusal | None:
        second = m.node("f").inputs[0] != m.value("out").external
        return Refusal("both operands come out of the layout: once is enough") if second and _comes_out(m, y) else None


class PoolInBlockedLayout(_Follows):
    """f(ReorderOutput(x)) = ReorderOutput(f'(x)) for f in MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool"""

    operators = POOLS


class ConcatInBlockedLayout(_Blocked):
    """Concat(ReorderOutput(x), y, ...) = ReorderOutput(Concat(x, ReorderInput(y), ...)), along channels or any other
    axis, where all channels fill blocks"""

    shared_interior = True

    def source(self, op: PatternBuilder, operands: Values) -> Any:
        return op.Concat(operands, _label="f")

    def check(self, m: Match, operands: tuple[Ref, ...]) -> Refusal | None:
        return None if any(_comes_out(m, x) for x in operands) else Refusal("no operand comes out of the layout")

    def target(self, op: ReplacementBuilder, m: Match, operands: tuple[Ref, ...]) -> Any:
        return _followed(op, m, m.node("f"))


class CutInBlockedLayout(_Follows):
    """f(ReorderOutput(x)) = ReorderOutput(f(x)) for f in Slice, Gather of ranges and Pad, along the batch, rows,
    columns, or whole blocks of channels"""

    operators = frozenset({"Slice", "Gather", "Pad"})


class SplitInBlockedLayout(_Follows):
    """Split(ReorderOutput(x)) = ReorderOutput of both parts of Split(x), along the batch, rows, columns, or whole
    blocks of channels"""

    def source(self, op: PatternBuilder, x: Any, sizes: Values) -> Any:
        return op.Split(op.nchwc.ReorderOutput(x), sizes, _outputs=2, _label="f")


RULES = (
    ConvInBlockedLayout, ConvActivationInBlockedLayout, ResidualInBlockedLayout, BlockedConvToConv,
    ActivationIntoBlockedConv, SumIntoBlockedConv, ReorderOutputThenInput, ReorderInputThenOutput, UnaryInBlockedLayout,
    BinaryInBlockedLayout, PoolInBlockedLayout, ConcatInBlockedLayout, CutInBlockedLayout, SplitInBlockedLayout,
)  # fmt: skip
