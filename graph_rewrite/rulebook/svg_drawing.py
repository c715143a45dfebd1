"""Drawings of diagrams as SVG, for pages: operators as boxes, values at the border as pills, in layers.

Colours are left to the page: boxes have the classes `op` and one of `op-product`, `op-move`, `op-point` and `op-other`,
pills `value`, lines `edge`. All text is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.rulebook.drawing import Diagram, DrawnNode, DrawnOperand
from graph_rewrite.rulebook.layered_layout import Line, PlacedBox, lay_out
from graph_rewrite.rulebook.values import escaped

MOST_STEPS = 32
"""The most operators that are drawn; of more, the first ones."""
LEAST_SCALE = 0.72
"""The scale below which a drawing is not made smaller to fit: it scrolls then."""
_MOST_LINES = 6
_LONGEST = 30
_BOLD, _SMALL = 8.0, 6.1
"""Pixels per character of an operator's name (13 px, bold) and of the small lines (10 px, monospaced)."""
_HEAD, _LINE, _PAD = 21.0, 13.0, 7.0

_KINDS = {
    "op-product": ("Conv", "FusedConv", "ConvTranspose", "MatMul", "FusedMatMul", "Gemm", "FusedGemm", "Attention",
                   "MultiHeadAttention", "Einsum"),
    "op-move": ("Transpose", "Reshape", "Concat", "Split", "Slice", "Gather", "Squeeze", "Unsqueeze", "Flatten", "Pad",
                "ReorderInput", "ReorderOutput", "Expand", "Identity", "Cast"),
    "op-point": ("Relu", "LeakyRelu", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Sigmoid", "Tanh", "Add", "Sub",
                 "Mul", "Div", "Sum", "Clip", "Erf", "Sqrt", "Pow", "Softmax", "HardSwish", "Max", "Min"),
}  # fmt: skip


def draw_svg(diagram: Diagram, title: str, most: int = MOST_STEPS) -> str:
    """Return a drawing as an `svg` element with a title for those who cannot see it. Of a diagram with more steps than
    `most` the first ones are drawn, and a note tells how many are left out."""
    drawing = _Drawing(diagram, most)
    lines, width, height = lay_out(drawing.places, drawing.edges)
    note = f"and {drawing.left_out} more operators" if drawing.left_out else ""
    height += 2 * _PAD + (20.0 if note else 0.0)
    width = max(width, len(note) * _SMALL) + 2 * _PAD
    body = [_path(line) for line in lines]
    body += [text for place, make in zip(drawing.places, drawing.contents, strict=True) for text in make(place)]
    if note:
        body.append(_text(width / 2 - _PAD, height - 2 * _PAD - 4, note, "small"))
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="{-_PAD:.0f} {-_PAD:.0f} {width:.0f} {height:.0f}"'
    # A page may make it smaller, as long as its text can be read.
    least = f'style="min-width:{LEAST_SCALE * width:.0f}px"'
    return f'<svg class="graph" role="img" {size} {least}><title>{escaped(title)}</title>{"".join(body)}</svg>'


class _Drawing:
    """The boxes of a diagram with their layers and contents, and the edges between them."""

    def __init__(self, diagram: Diagram, most: int) -> None:
        self.places: list[PlacedBox] = []
        self.contents: list[_Box | _Pill] = []
        self.edges: list[tuple[int, int]] = []
        self._steps = diagram.steps[:most]
        self.left_out = len(diagram.steps) - len(self._steps)
        depth: list[int] = []
        for step in self._steps:
            depth.append(1 + max((depth[o.step] for o in step.inputs if o.step >= 0), default=0))
        boxes = [self._add(_Box(step), layer) for step, layer in zip(self._steps, depth, strict=True)]
        pills: dict[str, int] = {}
        for layer, number in sorted(zip(depth, range(len(boxes)), strict=True)):
            for operand in self._steps[number].inputs:
                self._connect(operand, boxes[number], layer - 1, boxes, pills)
        for i, output in enumerate(diagram.outputs):
            name = diagram.names[i] if i < len(diagram.names) else f"out{i + 1}"
            if output.step >= len(boxes):
                continue
            source = boxes[output.step] if output.step >= 0 else self._pill(output.text, 0, pills)
            self.edges.append((source, self._add(_Pill(name), self.places[source].layer + 1)))

    def _add(self, content: _Box | _Pill, layer: int) -> int:
        self.places.append(PlacedBox(content.width, content.height, layer))
        self.contents.append(content)
        return len(self.places) - 1

    def _connect(
        self, operand: DrawnOperand, reader: int, layer: int, boxes: Sequence[int], pills: dict[str, int],
    ) -> None:  # fmt: skip
        """Add the line to a reader from its operand, and the operand's pill where it comes from outside. Constants
        stand in the boxes."""
        if operand.step >= 0:
            self.edges.append((boxes[operand.step], reader))
        elif not operand.constant:
            self.edges.append((self._pill(operand.text, layer, pills), reader))

    def _pill(self, text: str, layer: int, pills: dict[str, int]) -> int:
        if text not in pills:
            pills[text] = self._add(_Pill(text), layer)
        return pills[text]


class _Box:
    """An operator: its name, and small lines for its own name, attributes and constants."""

    def __init__(self, step: DrawnNode) -> None:
        self._step = step
        constants = [o.text for o in step.inputs if o.constant and o.text != "-"]
        lines = [*([step.label] if step.label else ()), *step.attrs, *constants]
        self._lines = lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], "…"]
        widest = max((len(_shortened(line)) * _SMALL for line in self._lines), default=0.0)
        self.width = max(len(step.op) * _BOLD, widest) + 2 * _PAD
        self.height = _HEAD + _LINE * len(self._lines) + (4.0 if self._lines else 0.0)

    def __call__(self, place: PlacedBox) -> list[str]:
        kind = next((name for name, operators in _KINDS.items() if self._step.op in operators), "op-other")
        left = place.x - place.width / 2
        texts = [
            f'<rect class="op {kind}" x="{left:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
            f'height="{place.height:.1f}" rx="5"/>',
            _text(place.x, place.y + 15, self._step.op, "name", longest=60),
        ]
        for i, line in enumerate(self._lines):
            texts.append(_text(place.x, place.y + _HEAD + _LINE * (i + 1) - 4, line, "small"))
        return texts


class _Pill:
    """A value at the border of the drawing."""

    height = 19.0

    def __init__(self, text: str) -> None:
        self._value = text
        self.width = len(_shortened(text)) * _SMALL + 2 * _PAD

    def __call__(self, place: PlacedBox) -> list[str]:
        left = place.x - place.width / 2
        return [
            f'<rect class="value" x="{left:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
            f'height="{place.height:.1f}" rx="9.5"/>',
            _text(place.x, place.y + 13, self._value, "small"),
        ]


def _text(x: float, y: float, text: str, kind: str, longest: int = _LONGEST) -> str:
    """Return text around x; a long one is cut in the middle and shown whole by a tooltip."""
    shown = _shortened(text, longest)
    tooltip = f"<title>{escaped(text)}</title>" if shown != text else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{tooltip}{escaped(shown)}</text>'


def _shortened(text: str, longest: int = _LONGEST) -> str:
    if len(text) <= longest:
        return text
    return f"{text[: longest // 3]}…{text[len(text) - (longest - longest // 3 - 1) :]}"


def _path(line: Line) -> str:
    """Return a line through its bends, straight down where it leaves, passes and arrives."""
    first = line.places[0]
    x, y = first.x, first.y + first.height
    parts = [f"M{x:.1f} {y:.1f}"]
    for place in line.places[1:]:
        middle = (y + place.y) / 2
        parts.append(f"C{x:.1f} {middle:.1f} {place.x:.1f} {middle:.1f} {place.x:.1f} {place.y:.1f}")
        x, y = place.x, place.y + place.height
    return f'<path class="edge" d="{"".join(parts)}"/>'
