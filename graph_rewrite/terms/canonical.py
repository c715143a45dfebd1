"""Substitutions up to the names of their inputs."""

from __future__ import annotations

from graph_rewrite.terms.substitution import INPUT, Operand, Side, Substitution, Term


def normalised(substitution: Substitution) -> Substitution:
    """The same substitution with equal terms shared, terms in the order in which the outputs need them, none that no
    output needs, and inputs numbered in the order of their first use, source first."""
    names: dict[int, int] = {}
    source, target = _normalised(substitution.source, names), _normalised(substitution.target, names)
    return Substitution(source, target, substitution.conditions)


def _normalised(side: Side, names: dict[int, int]) -> Side:
    places: dict[Term, int] = {}

    def visit(operand: Operand) -> Operand:
        if operand.node == INPUT:
            return Operand(INPUT, names.setdefault(operand.index, len(names)))
        node = side.terms[operand.node]
        made = Term(node.op, tuple(visit(source) for source in node.inputs), node.params)
        return Operand(places.setdefault(made, len(places)), operand.index)

    outputs = tuple(visit(operand) for operand in side.outputs)
    return Side(tuple(places), outputs)


def side_text(side: Side, outputs: tuple[Operand, ...] | None = None, names: dict[int, int] | None = None) -> str:
    """A side as an expression in inputs numbered in the order of their first use; `names` goes on with a numbering."""
    numbering: dict[int, int] = {} if names is None else names
    return "; ".join(_text(side, operand, numbering) for operand in (outputs or side.outputs))


def differs_by_fusion(substitution: Substitution) -> bool:
    """Return whether both sides are the same once activations that convolutions and products have fused stand alone."""
    return _unfused(substitution.source) == _unfused(substitution.target)


def _unfused(side: Side) -> list[str]:
    def text(operand: Operand) -> str:
        if operand.node == INPUT:
            return f"x{operand.index}"
        node = side.terms[operand.node]
        parts = [text(source) for source in node.inputs]
        params = [f"{name}={value}" for name, value in node.params if name != "activation"]
        plain = f"{node.op}({', '.join((*parts, *params))})" + (f".{operand.index}" if node.outputs > 1 else "")
        activation = dict(node.params).get("activation", "none")
        return plain if activation == "none" else f"{activation}({plain})"

    return [text(operand) for operand in side.outputs]


def interchangeable(side: Side) -> bool:
    """Return whether exchanging any two neighbouring outputs gives the same side up to the names of its inputs."""
    outputs = side.outputs
    if len(outputs) < 2:
        return False
    own = side_text(side)
    swaps = ((*outputs[:i], outputs[i + 1], outputs[i], *outputs[i + 2 :]) for i in range(len(outputs) - 1))
    return all(side_text(side, swapped) == own for swapped in swaps)


def is_connected(side: Side) -> bool:
    """Return whether the outputs hang together by terms or inputs that they share, other than scalars and constants."""
    scalars = {node.inputs[1] for node in side.terms if node.op == "smul"}
    scalars |= {Operand(place) for place, node in enumerate(side.terms) if not node.inputs}
    groups: list[set[Operand]] = []
    for output in side.outputs:
        reached: set[Operand] = set()
        stack = [output]
        while stack:
            operand = stack.pop()
            if operand.node != INPUT:
                stack.extend(side.terms[operand.node].inputs)
                operand = Operand(operand.node)
            if operand not in scalars:
                reached.add(operand)
        apart = [group for group in groups if not group & reached]
        groups = [*apart, reached.union(*(group for group in groups if group & reached))]
    return len(groups) <= 1


def _text(side: Side, operand: Operand, names: dict[int, int]) -> str:
    if operand.node == INPUT:
        return f"x{names.setdefault(operand.index, len(names))}"
    node = side.terms[operand.node]
    parts = [_text(side, source, names) for source in node.inputs]
    params = [f"{name}={value}" for name, value in node.params]
    return f"{node.op}({', '.join((*parts, *params))}).{operand.index}"
