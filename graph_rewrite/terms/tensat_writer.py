"""Substitutions as TENSAT's s-expressions."""

from __future__ import annotations

from graph_rewrite.terms.rule_file import ACTIVATIONS, PADDINGS
from graph_rewrite.terms.substitution import INPUT, Operand, Side
from graph_rewrite.terms.tensat_reader import PLAIN, POOLS

NAMES = {own: name for name, own in (*PLAIN.items(), *POOLS.items())}
"""TENSAT's name of each of our operators that has another there."""


def write_side(side: Side) -> list[str]:
    return [_text(side, operand) for operand in side.outputs]


def _text(side: Side, operand: Operand) -> str:
    if operand.node == INPUT:
        return f"?input_{operand.index + 1}"
    node = side.terms[operand.node]
    inputs = " ".join(_text(side, source) for source in node.inputs)
    if node.op == "split":
        return f"(split_{operand.index} (split {node.param('axis')} {inputs}))"
    if node.op in ("imatmul", "iewmul"):
        return NAMES[node.op]
    values = dict(node.params)
    if node.op in ("transpose", "reshape"):
        word = "_".join(map(str, node.param("perm" if node.op == "transpose" else "shape")))
        return f"({node.op} {inputs} {word}{' 1' if node.op == 'transpose' else ''})"
    numbers: list[int] = []
    for name in ("kernel", "stride"):
        value = values.get(name)
        numbers.extend(value if isinstance(value, tuple) else ())
    if "padding" in values:
        numbers.append(PADDINGS.index(str(values["padding"])))
    if "activation" in values:
        numbers.append(ACTIVATIONS.index(str(values["activation"])))
    numbers.extend(int(node.param(name)) for name in ("axis", "rank") if name in values)
    names = {"conv": "conv2d", "iconv": "Iconv", "cpool": "Cpool", **NAMES}
    if node.op in ("maxpool", "avgpool"):
        return f"({names[node.op]} {inputs} {' '.join(map(str, numbers))} 0)"
    parts = [names.get(node.op, node.op), *map(str, numbers), inputs]
    return f"({' '.join(part for part in parts if part)})"
