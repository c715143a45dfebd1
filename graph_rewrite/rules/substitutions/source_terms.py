"""Terms of a substitution's source against what was matched: the pattern, attributes and constants."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping

import numpy as np

from graph_rewrite.ir.constants import Constant
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import (
    Const,
    Maybe,
    Pattern,
    PatternBuilder,
    PatternOutput,
    PatternValue,
    Scalar,
    Value,
    Var,
)
from graph_rewrite.rewriting.replacement import Ref
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.rules.helpers.axes import permutation
from graph_rewrite.rules.helpers.constants import ints, is_readable, uniform
from graph_rewrite.rules.helpers.element_types import numpy_dtype
from graph_rewrite.rules.helpers.geometry import geometry
from graph_rewrite.terms.onnx_form import (
    CONSTANT_OPS,
    ONNX_NAMES,
    constant_array,
    enlarge_pads,
    pads_of,
    scalar_inputs,
)
from graph_rewrite.terms.substitution import INPUT, Operand, Side, Substitution, Term
from graph_rewrite.terms.term_types import TermType, Types, close, operand_type

_SAME_CONSTANT: weakref.WeakKeyDictionary[Constant, dict[str, bool]] = weakref.WeakKeyDictionary()


def largest_constant(side: Side, types: Mapping[int, TermType], values: list[Types]) -> int:
    """Return the number of elements of the largest constant among a side's operands, 0 where there is none."""
    largest = 0
    for node in side.terms:
        open_types = [operand_type(operand, types, values) for operand in node.inputs]
        if any(type.constant for type in open_types):
            closed = close(node, open_types) or ()
            sizes = [math.prod(c.shape) for o, c in zip(open_types, closed, strict=False) if o.constant is not None]
            largest = max(largest, *sizes)
    return largest


def operand_rank(substitution: Substitution, operand: Operand) -> int | None:
    """Return the rank of an operand of the source where its term tells; None where any is possible."""
    node = substitution.source.terms[operand.node]
    if node.op == "concat":
        return int(node.param("rank"))
    for source in node.inputs:
        if source.node != INPUT:
            found = operand_rank(substitution, source)
            if found is not None:
                return found
    return 2 if node.op == "matmul" else None


def named(m: Match, name: str) -> Ref:
    """Return the value that a match binds to a variable of the pattern."""
    index = next(i for i, variable in enumerate(m.pattern.variables) if variable.name == name)
    ref: Ref = m.refs[index]
    return ref


def is_constant(ref: Ref, constant: Term, sized: TermType) -> bool:
    """Tell whether a constant of the graph is this one; it is read once."""
    if ref.shape != sized.shape or ref.constant is None or not is_readable(ref.constant):
        return False
    known = _SAME_CONSTANT.setdefault(ref.constant, {})
    key = repr(constant)
    if key not in known:
        wanted = constant_array(constant, sized, numpy_dtype(ref))
        known[key] = bool(np.array_equal(ref.numpy(), wanted))
    return known[key]


def attributes_refused(m: Match, label: str, node: Term, types: Types, results: Types) -> Refusal | None:
    """Refuse a matched node whose attributes are not the parameters of this term."""
    matched = m.node(label)
    if node.op in ("conv", "maxpool", "avgpool"):
        return _window_refused(m, label, node, types)
    if node.op in ("concat", "split"):
        axis = int(matched.attrs.get("axis", 0))
        same = axis % results[0].rank == node.param("axis") and node.param("axis") < results[0].rank
        if node.op == "concat" and results[0].rank != node.param("rank"):
            return Refusal("the operands of Concat have another rank")
        return None if same else Refusal(f"{matched.op} works on another axis")
    if node.op == "transpose" and permutation(matched.attrs.get("perm"), types[0].rank) != node.param("perm"):
        return Refusal("Transpose permutes the axes otherwise")
    if node.op == "enlarge":
        value, axes = named(m, f"v{label}"), named(m, f"a{label}")
        if ints(named(m, f"p{label}")) != enlarge_pads(types[0], node.param("kernel")) or axes is not None:
            return Refusal("Pad does not grow a kernel around its centre")
        return Refusal("Pad adds something else than zeros") if value is not None and uniform(value) != 0 else None
    return None


def _window_refused(m: Match, label: str, node: Term, types: Types) -> Refusal | None:
    matched, x = m.node(label), types[0]
    if node.op == "conv":
        kernel, group = types[1].shape[2:], x.shape[1] // types[1].shape[1]
    else:
        kernel, group = node.param("kernel"), 1
        if tuple(matched.attrs.get("kernel_shape", ())) != kernel or matched.attrs.get("ceil_mode", 0):
            return Refusal("the pooling has another kernel or rounds up")
    image = m.ref(next(value for value in matched.inputs if value is not None))
    own = geometry(matched, image, kernel)
    if own.strides != node.param("stride") or own.dilations != (1, 1) or own.group != group:
        return Refusal("strides, dilations or groups are others")
    if own.pads != pads_of(node, x.shape[2:], kernel):
        return Refusal(f"the padding is not {node.param('padding')!r}")
    if node.op == "avgpool" and any(own.pads) and not matched.attrs.get("count_include_pad", 0):
        return Refusal("the average leaves the padding out")
    return None


def source_pattern(substitution: Substitution, fused: bool) -> Pattern:
    """Return the source side as a pattern. Terms are labelled t0, t1, ...; activations t0a, ..."""
    source, scalars = substitution.source, scalar_inputs(substitution)
    variables = {f"x{i}": Var(f"x{i}", Scalar if i in scalars else Value) for i in source.inputs}
    builder = PatternBuilder()
    made: list[tuple[PatternValue, ...]] = []

    def variable(name: str, kind: type) -> Var:
        return variables.setdefault(name, Var(name, kind))

    for number, node in enumerate(source.terms):
        label = f"t{number}"
        if node.op in CONSTANT_OPS:
            made.append((variable(f"c{number}", Const),))
            continue
        operands: list[PatternValue | None] = [
            variables[f"x{o.index}"] if o.node == INPUT else made[o.node][o.index] for o in node.inputs
        ]
        if node.op == "split":
            operands.append(variable(f"s{label}", Maybe))
        elif node.op == "reshape":
            operands.append(variable(f"s{label}", Const))
        elif node.op == "conv":
            operands.append(None)
        elif node.op == "enlarge":
            operands += [variable(f"p{label}", Const), variable(f"v{label}", Maybe), variable(f"a{label}", Maybe)]
        fixed = {"mode": "constant"} if node.op == "enlarge" else {}
        activation = dict(node.params).get("activation", "none")
        if fused and node.op == "conv" and activation != "none":
            result = builder.ms.FusedConv(*operands, activation=ONNX_NAMES[str(activation)], _label=label)
        else:
            result = getattr(builder, ONNX_NAMES[node.op])(*operands, _label=label, _outputs=node.outputs, **fixed)
            if activation != "none":
                result = getattr(builder, ONNX_NAMES[str(activation)])(result, _label=f"{label}a")
        made.append(result if isinstance(result, tuple) else (result,))
    roots = tuple(made[o.node][o.index] for o in source.outputs)
    assert all(isinstance(root, PatternOutput) for root in roots)
    return Pattern(
        tuple(variables.values()), tuple(builder.nodes), tuple(r for r in roots if isinstance(r, PatternOutput))
    )
