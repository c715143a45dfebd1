"""Drawings as SVG: everything of a diagram is there, nothing overlaps, lines lead downwards."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import Rewriter, load
from graph_rewrite.rulebook.drawing import Diagram, DrawnNode, DrawnOperand
from graph_rewrite.rulebook.layered_layout import GAP_X, PlacedBox, lay_out
from graph_rewrite.rulebook.site_diagram import diagrams_of_site
from graph_rewrite.rulebook.svg_drawing import draw_svg
from tests.graph_rewrite import sample_models


@st.composite
def diagrams(draw: st.DrawFn) -> Diagram:
    steps: list[DrawnNode] = []
    for _ in range(draw(st.integers(0, 12))):
        made = [DrawnOperand(step=i) for i in range(len(steps))]
        given_values = [DrawnOperand(name) for name in "xyz"] + [DrawnOperand("w float32[3]", constant=True)]
        inputs = draw(st.lists(st.sampled_from([*made, *given_values]), min_size=1, max_size=3))
        steps.append(DrawnNode(draw(st.sampled_from(["Conv", "Add", "Reshape"])), tuple(inputs), ("axis=1",)))
    ends = [DrawnOperand(step=i) for i in range(len(steps))] + [DrawnOperand("x")]
    outputs = tuple(draw(st.lists(st.sampled_from(ends), min_size=1, max_size=3)))
    return Diagram(tuple(steps), outputs, tuple(f"out_{i}" for i in range(len(outputs))))


def _rectangles(svg: ET.Element) -> list[tuple[float, float, float, float]]:
    found = [{k: float(v) for k, v in e.attrib.items() if k in ("x", "y", "width", "height")} for e in svg.iter("rect")]
    return [(r["x"], r["y"], r["x"] + r["width"], r["y"] + r["height"]) for r in found]


@given(diagrams())
@settings(max_examples=150, deadline=None)
def test_boxes_lie_apart_within_the_drawing_and_lines_lead_down(diagram: Diagram) -> None:
    svg = ET.fromstring(draw_svg(diagram, "a drawing"))
    left, top, width, height = map(float, svg.attrib["viewBox"].split())
    boxes = _rectangles(svg)
    assert sum(e.attrib["class"].startswith("op ") for e in svg.iter("rect")) == len(diagram.steps)
    assert all(left <= x0 < x1 <= left + width and top <= y0 < y1 <= top + height for x0, y0, x1, y1 in boxes)
    for (a0, b0, a1, b1), (c0, d0, c1, d1) in itertools.combinations(boxes, 2):
        assert a1 <= c0 or c1 <= a0 or b1 <= d0 or d1 <= b0
    operands = sum(not operand.constant for step in diagram.steps for operand in step.inputs)
    lines = [e.attrib["d"] for e in svg.iter("path")]
    assert len(lines) == operands + len(diagram.outputs)
    for line in lines:
        numbers = [float(n) for n in re.findall(r"-?\d+\.\d+", line)]
        assert numbers[1::2] == sorted(numbers[1::2])


@given(st.lists(st.floats(10.0, 200.0), min_size=1, max_size=8))
def test_boxes_of_a_layer_keep_their_gaps(widths: list[float]) -> None:
    boxes = [PlacedBox(width, 20.0, 0) for width in widths]
    _, width, height = lay_out(boxes, [])
    ordered = sorted(boxes, key=lambda box: box.x)
    gaps = [b.x - b.width / 2 - (a.x + a.width / 2) for a, b in itertools.pairwise(ordered)]
    assert all(gap >= GAP_X - 1e-6 for gap in gaps)
    assert abs(width - (sum(widths) + GAP_X * (len(widths) - 1))) < 1e-6
    assert height == 20.0


def test_a_chain_stands_in_one_column() -> None:
    boxes = [PlacedBox(50.0 + 10 * i, 20.0, i) for i in range(4)]
    lines, _, _ = lay_out(boxes, [(0, 1), (1, 2), (2, 3)])
    assert len({round(box.x, 6) for box in boxes}) == 1
    assert [len(line.places) for line in lines] == [2, 2, 2]


def test_a_line_that_passes_layers_bends_in_each() -> None:
    boxes = [PlacedBox(50.0, 20.0, i) for i in (0, 1, 2, 3)]
    lines, _, _ = lay_out(boxes, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert [place.layer for place in lines[3].places] == [0, 1, 2, 3]
    # It passes beside the boxes, not through them.
    for bend, box in zip(lines[3].places[1:-1], boxes[1:3], strict=True):
        assert abs(bend.x - box.x) >= box.width / 2


def test_large_diagrams_are_cut_and_say_so() -> None:
    steps = [DrawnNode("Relu", (DrawnOperand("x"),))]
    steps += [DrawnNode("Relu", (DrawnOperand(step=i),)) for i in range(99)]
    svg = draw_svg(Diagram(tuple(steps), (DrawnOperand(step=99),)), "long", most=10)
    assert svg.count(">Relu<") == 10
    assert "and 90 more operators" in svg


def test_hostile_names_are_text_and_long_ones_are_cut() -> None:
    name = "<script>alert('x')</script>&\0" * 3
    node = DrawnNode(name, (DrawnOperand(name), DrawnOperand(name, constant=True)), (name,), label=name)
    svg = ET.fromstring(draw_svg(Diagram((node,), (DrawnOperand(step=0),), (name,)), name))
    assert {e.tag for e in svg.iter()} == {"svg", "title", "path", "rect", "text"}
    full = name.replace("\0", "\ufffd")
    assert [e.text for e in svg.iter("title")].count(full) == 1 + len(list(svg.iter("text")))
    assert all("\N{HORIZONTAL ELLIPSIS}" in (text[0].tail or "") for text in svg.iter("text"))


def test_a_site_is_drawn_with_the_names_of_the_file() -> None:
    model = sample_models.parsed("""
        (float[2,3] x) => (float[3,2] y) {
            a = Relu(x)
            b = Transpose<perm=[1,0]>(a)
            c = Transpose<perm=[1,0]>(b)
            y = Transpose<perm=[1,0]>(c)
        }""")
    for node, name in zip(model.graph.node, ("first", "<one>", "two", "three"), strict=True):
        node.name = name
    graph = load(model)
    sites = Rewriter(granularity="site", deployment=False).sites(graph)
    site = next(s for s in sites if s.rule.name == "ComposeTransposes" or "Transpose" in s.rule.name)
    before, after = diagrams_of_site(graph, site)
    labels = {step.label for step in before.steps}
    assert labels <= {"first", "<one>", "two", "three"}
    assert len(before.steps) >= 2
    assert all("perm" in step.attrs[0] for step in before.steps if step.op == "Transpose")
    assert {o.text for s in (*before.steps, *after.steps) for o in s.inputs if o.step < 0} <= {
        "a float[2,3]", "b float[3,2]", "c float[2,3]",
    }  # fmt: skip
    assert before.names == after.names
