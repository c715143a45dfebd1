"""Diagrams of a rule's two sides, and compact text drawings of them, for a terminal and for code blocks on a page.

    Add                       =>  MatMul
    ├─ MatMul(x, w)               ├─ x
    └─ MatMul(x, v)               └─ [Add(w, v)]

An operator over variables alone stands on one line, any other is the root of a tree. What is used more than once, and
an operator with several outputs, has a name and is drawn once, below. Brackets enclose what is computed from constants
alone, once, and costs nothing at run time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WIDTH = 110
"""The widest drawing, in characters, whose sides stand beside each other; in wider ones they stand one below the
other."""
INLINE = 44
"""The longest expression over constants that is written on one line."""


@dataclass(frozen=True, slots=True)
class DrawnOperand:
    """A variable or a literal (`text`), or output `index` of step number `step`. `constant` marks a value that is known
    before run time."""

    text: str = ""
    step: int = -1
    index: int = 0
    constant: bool = False


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """An operator: its name and attributes (`axis=1`) as text, operands, number of outputs. `label` names it for the
    other side of the rule; `constant` marks what is computed before run time."""

    op: str
    inputs: tuple[DrawnOperand, ...]
    attrs: tuple[str, ...] = ()
    outputs: int = 1
    label: str = ""
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Diagram:
    """One side of a rule, or a part of a graph: steps in an order in which operands come first, and what it computes,
    with names where those matter."""

    steps: tuple[DrawnNode, ...]
    outputs: tuple[DrawnOperand, ...]
    names: tuple[str, ...] = ()
    """Names of the outputs; empty for none."""


def draw(diagram: Diagram) -> list[str]:
    """The lines of a drawing of one side."""
    return _Drawer(diagram).lines()


def draw_both(source: Diagram, target: Diagram, width: int = WIDTH) -> str:
    """Source and target side by side, where they fit into `width` characters, else one below the other."""
    left, right = draw(source), draw(target)
    column = max(map(len, left))
    if column + 6 + max(map(len, right)) > width:
        return "\n".join([*left, "=>", *right])
    rows = max(len(left), len(right))
    left += [""] * (rows - len(left))
    right += [""] * (rows - len(right))
    signs = ["  =>  ", *["      "] * (rows - 1)]
    return "\n".join((a.ljust(column) + sign + b).rstrip() for a, sign, b in zip(left, signs, right, strict=True))


class _Drawer:
    def __init__(self, diagram: Diagram) -> None:
        self._steps, self._outputs = diagram.steps, diagram.outputs
        self._names = self._names_of_shared()

    def lines(self) -> list[str]:
        """The outputs, then what has a name, each where it is first needed."""
        several = len(self._outputs) > 1
        lines: list[str] = []
        for number, output in enumerate(self._outputs, 1):
            name = f"out{number}"
            if several and self._names.get(output.step) == name:
                lines.extend(self._body(output.step, f"{name} = "))
            else:
                lines.extend(self._tree(output, f"{name} = " if several else ""))
        for step in self._visited():
            if step in self._names and not self._names[step].startswith("out"):
                lines.extend(self._body(step, f"{self._names[step]} = "))
        return lines

    def _names_of_shared(self) -> dict[int, str]:
        uses = Counter(o.step for o in self._operands() if o.step >= 0)
        taken = {o.text for o in self._operands()} | {step.label for step in self._steps}
        free = (name for name in _candidates() if name not in taken)
        names = {}
        for number in self._visited():
            step = self._steps[number]
            place = [i for i, output in enumerate(self._outputs, 1) if output.step == number]
            if uses[number] > 1 and step.outputs == 1 and place:
                names[number] = f"out{place[0]}"
            elif uses[number] > 1 or step.outputs > 1:
                names[number] = step.label or next(free)
        return names

    def _operands(self) -> Iterator[DrawnOperand]:
        yield from self._outputs
        for number in self._visited():
            yield from self._steps[number].inputs

    def _visited(self) -> list[int]:
        """Numbers of the steps that the outputs need, in the order in which a reader meets them."""
        found: dict[int, None] = {}
        queue = [output.step for output in self._outputs]
        while queue:
            number = queue.pop(0)
            if number >= 0 and number not in found:
                found[number] = None
                queue.extend(operand.step for operand in self._steps[number].inputs)
        return list(found)

    def _tree(self, operand: DrawnOperand, prefix: str) -> list[str]:
        """An operand as a tree; only its name where it is drawn elsewhere."""
        if operand.step < 0 or operand.step in self._names:
            return [prefix + self._short(operand)]
        step = self._steps[operand.step]
        return self._body(operand.step, f"{prefix}{step.label}: " if step.label else prefix)

    def _body(self, number: int, prefix: str) -> list[str]:
        step = self._steps[number]
        inline = self._inline(number)
        if inline is not None:
            return [prefix + inline]
        head = f"[{step.op}]" if step.constant else step.op
        lines = [prefix + " ".join((head, *step.attrs))]
        for i, operand in enumerate(step.inputs):
            last = i == len(step.inputs) - 1
            first, *rest = self._tree(operand, "")
            lines.append(("└─ " if last else "├─ ") + first)
            lines.extend(("   " if last else "│  ") + line for line in rest)
        return lines

    def _inline(self, number: int) -> str | None:
        """The step on one line: where its operands are names or literals, or where it is a short constant."""
        step = self._steps[number]
        if all(o.step < 0 or o.step in self._names for o in step.inputs):
            text = _call(step, [self._short(operand) for operand in step.inputs])
            return f"[{text}]" if step.constant else text
        if step.constant:
            text = self._expression(number)
            return f"[{text}]" if len(text) <= INLINE else None
        return None

    def _expression(self, number: int) -> str:
        step = self._steps[number]
        parts = [
            self._short(o) if o.step < 0 or o.step in self._names else self._expression(o.step) for o in step.inputs
        ]
        return _call(step, parts)

    def _short(self, operand: DrawnOperand) -> str:
        if operand.step < 0:
            return operand.text
        name = self._names[operand.step]
        return f"{name}[{operand.index}]" if self._steps[operand.step].outputs > 1 else name


def _call(step: DrawnNode, inputs: Sequence[str]) -> str:
    return f"{step.op}({', '.join((*inputs, *step.attrs))})"


def _candidates() -> Iterator[str]:
    """Names for shared values."""
    yield from "tuvw"
    number = 1
    while True:
        yield f"t{number}"
        number += 1
