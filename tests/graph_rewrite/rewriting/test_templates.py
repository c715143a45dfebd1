"""Replacements from a template: what a rule built at one match, at others of the same structure."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite import Graph, load
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.rewriting import building, templates
from graph_rewrite.rewriting.building import build_site
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.matching import Matcher
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.rewriting.templates import Templates
from graph_rewrite.rules import all_rules

STRUCTURAL = [rule for rule in all_rules() if rule.by_structure]


class ConvAndHalves(Rule):
    """Conv(x, w), and beside it convolutions with the upper and the lower half of w: no equality, but it folds twice"""

    by_structure = True
    built = 0

    def source(self, op: Any, x: Any, w: Any) -> Any:
        return op.Conv(x, w, _label="conv")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref) -> Any:
        type(self).built += 1
        rows = w.shape[2]
        middle, top, end = op.ints(rows // 2), op.ints(0), op.ints(rows)
        halves = [op.Slice(w, *bounds, op.ints(2)) for bounds in ((top, middle), (middle, end))]
        first, second = (op.Conv(x, half, strides=(1, 1)) for half in halves)
        return op.Add(op.Conv(x, w, **m.attrs("conv")), op.Sub(op.ReduceSum(first), op.ReduceSum(second)))


def convolutions(
    *weights: np.ndarray[Any, Any], bias: bool = False, pads: tuple[int, ...] = (1, 1, 1, 1), op: str = "Conv"
) -> Graph:
    """Return convolutions of one input, each with its weights, [filters, channels, rows, columns]."""
    stored, nodes = [], []
    for number, weight in enumerate(weights):
        taps = weight.swapaxes(0, 1) if op == "ConvTranspose" else weight
        stored.append(numpy_helper.from_array(taps.astype(np.float32), f"w{number}"))
        names = ["x", f"w{number}"]
        if bias:
            stored.append(numpy_helper.from_array(np.full(weight.shape[0], number, np.float32), f"b{number}"))
            names.append(f"b{number}")
        nodes.append(helper.make_node(op, names, [f"y{number}"], pads=pads))
    channels = weights[0].shape[1]
    graph = helper.make_graph(
        nodes, "convolutions", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, 9, 8])],
        [helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, None) for number in range(len(weights))],
        stored,
    )  # fmt: skip
    opset = helper.make_opsetid("", 23)
    return load(onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[opset])))


def sites(rule: Rule, graph: Graph) -> list[Site]:
    matches = (m for node in graph.order() for m in Matcher(graph, rule.pattern, set()).at(node))
    return [site for match in matches if isinstance(site := build_site(rule, 0, match), Site)]


def told(found: list[Site]) -> list[Any]:
    """Return all that tells sites apart."""
    return [
        (site.key, site.class_key, [(n.op, n.attrs, n.types, n.input_keys) for n in site.replacement.nodes])
        for site in found
    ]


@pytest.fixture(autouse=True)
def _no_templates_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_TEMPLATES", Templates())
    ConvAndHalves.built = 0


def built_anew(rule: Rule, graph: Graph) -> list[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "_TEMPLATES", None)
        return sites(rule, graph)


def random_weights(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("rule", STRUCTURAL, ids=lambda rule: rule.name)
def test_registered_rules_build_the_same_from_a_template(rule: Rule) -> None:
    op = "ConvTranspose" if rule.name.startswith("ConvTranspose") else "Conv"
    for bias in (False, True):
        weights = [random_weights(16, 16, 3, 3, seed=seed) for seed in range(3)]
        graph = convolutions(*weights, np.zeros((16, 16, 3, 3)), random_weights(32, 16, 3, 3), bias=bias, op=op)
        if "Relu" in rule.name:
            graph = with_relus(graph)
        found = told(sites(rule, graph))
        assert len(found) == 5
        assert found == told(built_anew(rule, graph))


def with_relus(graph: Graph) -> Graph:
    model = to_proto(graph)
    for output in model.graph.output:
        model.graph.node.append(helper.make_node("Relu", [output.name], [f"relu_{output.name}"]))
        output.name = f"relu_{output.name}"
    return load(model)


def test_a_second_match_of_the_same_structure_is_not_built() -> None:
    rule = ConvAndHalves()
    weights = [random_weights(4, 2, 4, 3, seed=seed) for seed in range(4)]
    assert len(sites(rule, convolutions(*weights))) == 4
    assert ConvAndHalves.built == 1
    sites(rule, convolutions(random_weights(5, 2, 4, 3), *weights))
    assert ConvAndHalves.built == 2
    sites(rule, convolutions(*weights, pads=(0, 1, 1, 1)))
    assert ConvAndHalves.built == 3


@pytest.mark.parametrize("equal_first", [False, True])
def test_equal_halves_make_one_operator_whatever_was_built_before(equal_first: bool) -> None:
    """Equal slices of the weights are one constant, and the convolutions with them one operator."""
    rule, different = ConvAndHalves(), random_weights(4, 2, 4, 3)
    equal = np.concatenate([different[:, :, :2]] * 2, axis=2)
    graph = convolutions(*((equal, different) if equal_first else (different, equal)))
    found = sites(rule, graph)
    counts = sorted(len(site.replacement.nodes) for site in found)
    assert counts[0] < counts[1]
    assert told(found) == told(built_anew(rule, graph))


def test_a_constant_that_happens_to_equal_a_literal_is_built_anew() -> None:
    class AddsRow(Rule):
        """Conv(x, w) = Conv(x, w), with a row of w and a row of ones beside it"""

        by_structure = True

        def source(self, op: Any, x: Any, w: Any) -> Any:
            return op.Conv(x, w, _label="conv")

        def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref) -> Any:
            row = op.Slice(w, op.ints(0), op.ints(1), op.ints(0))
            ones = op.constant(np.ones(row.shape, np.float32))
            both = op.Add(op.ReduceSum(op.Conv(x, row)), op.ReduceSum(op.Conv(x, ones)))
            return op.Add(op.Conv(x, w, **m.attrs("conv")), both)

    rule = AddsRow()
    weights = [random_weights(2, 1, 2, 2, seed=1), np.ones((2, 1, 2, 2)), random_weights(2, 1, 2, 2, seed=2)]
    for order in ([0, 1, 2], [1, 0, 2]):
        graph = convolutions(*[weights[number] for number in order])
        assert told(sites(rule, graph)) == told(built_anew(rule, graph))


def test_a_target_that_reads_other_values_has_no_template() -> None:
    class ReadsElsewhere(Rule):
        """Relu(x) = Relu(x + 0 y), where y is another input"""

        by_structure = True

        def source(self, op: Any, x: Any) -> Any:
            return op.Relu(x)

        def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
            other = m.ref(m.graph.inputs[-1])
            return op.Relu(op.Add(x, op.Sub(other, other)))

    nodes = [helper.make_node("Relu", [name], [f"r{name}"]) for name in "xy"]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y", "rx", "ry")]
    model = helper.make_model(helper.make_graph(nodes, "relus", values[:2], values[2:]))
    rule, graph = ReadsElsewhere(), load(model)
    first, second = sites(rule, graph)
    assert first.replacement.externals() == set(graph.inputs)
    assert second.replacement.externals() == {graph.inputs[1]}


def test_only_so_many_templates_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MOST_TEMPLATES", 2)
    rule = ConvAndHalves()
    for rounds in (1, 2):
        for filters in (2, 3, 4):
            sites(rule, convolutions(random_weights(filters, 2, 4, 3)))
        assert ConvAndHalves.built == 3 * rounds
    sites(rule, convolutions(random_weights(4, 2, 4, 3, seed=1)))
    assert ConvAndHalves.built == 6


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([3, 5])), min_size=2, max_size=4), st.booleans())
def test_weights_with_whatever_repeats_build_the_same(kinds: list[tuple[int, int]], bias: bool) -> None:
    """Weights of zeros, of one number, with equal rows, or random ones, in any order."""
    made = {
        0: lambda shape: np.zeros(shape),
        1: lambda shape: np.full(shape, 0.5),
        2: lambda shape: np.broadcast_to(random_weights(*shape[:3], 1), shape),
        3: lambda shape: random_weights(*shape),
    }
    graph = convolutions(*[made[kind]((16, 16, taps, taps)) for kind, taps in kinds], bias=bias)
    for rule in STRUCTURAL:
        assert told(sites(rule, graph)) == told(built_anew(rule, graph))
