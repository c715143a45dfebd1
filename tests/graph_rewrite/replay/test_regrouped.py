"""Classes of sites that are cut otherwise than when a step was recorded: what is applied are candidates of today."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx.parser
import pytest

from graph_rewrite import load
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.replay import RecordedStep, Recording, record, replay
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.session_choices import session_candidate
from tests.graph_rewrite.replay.models import network, rewriter

TWO_CLASSES = """
<ir_version: 10, opset_import: ["" : 18]>
two (float[2, 4] x) => (float[8] y) {
    a0 = Relu(x)
    t0 = Tanh(a0)
    a1 = Relu(t0)
    t1 = Tanh(a1)
    a2 = Relu(t1)
    t2 = Tanh(a2)
    flat = Constant<value = int64[1] {8}>()
    f = Reshape(t2, flat)
    b0 = Relu(f)
    s0 = Tanh(b0)
    b1 = Relu(s0)
    y = Tanh(b1)
}
"""


def by_keys(*steps: tuple[str, int]) -> Recording:
    """Steps of one rule that were recorded by keys of earlier code."""
    rule = "ReluAsThresholded"
    return Recording(
        tuple(RecordedStep(rule, "class", sites, f"{rule} at {name}: Relu -> ...", "gone") for name, sites in steps)
    )


def relus(graph: Graph) -> list[str]:
    return sorted(graph.names.get(node.outputs[0], "") for node in graph.nodes.values() if node.op == "Relu")


@pytest.fixture
def two_classes(tmp_path: Path) -> Graph:
    """Three sites of a rule on matrices, and two on vectors."""
    onnx.save(onnx.parser.parse_model(TWO_CLASSES), tmp_path / "two.onnx")
    return normalise(load(tmp_path / "two.onnx"))[0]


class TestRecordedByKeys:
    @pytest.mark.parametrize("sizes", [(4, 1), (2, 3)])
    def test_steps_that_rewrite_as_much_together(self, two_classes: Graph, sizes: tuple[int, int]) -> None:
        found = replay(by_keys(("a1", sizes[0]), ("b0", sizes[1])), two_classes, rewriter())
        assert found.complete
        assert found.steps == 2
        assert relus(found.graph) == []

    def test_as_many_sites_are_left_as_were_recorded(self, two_classes: Graph) -> None:
        found = replay(by_keys(("a0", 2), ("a2", 1)), two_classes, rewriter())
        assert found.complete
        assert relus(found.graph) == ["b0", "b1"]

    @pytest.mark.parametrize("steps", [[("a0", 2)], [("a0", 4), ("a1", 1)], [("a0", 4), ("b0", 2)], [("nowhere", 2)]])
    def test_what_cannot_be_told_is_not_guessed(self, two_classes: Graph, steps: Sequence[tuple[str, int]]) -> None:
        found = replay(by_keys(*steps), two_classes, rewriter())
        assert not found.complete
        assert found.graph.hash == two_classes.hash


class TestRecordedSites:
    def test_a_class_with_more_sites_now_is_applied_by_candidates_that_it_has(self, tmp_path: Path) -> None:
        graph, rules = network(tmp_path), rewriter()
        relu = next(c for c in rules.candidates(graph) if c.rule == "ReluAsThresholded" and c.kind == "class")
        deeper = network(tmp_path, layers=4)
        found = replay(record(graph, rules, [relu]), deeper, rules)
        assert found.complete
        assert found.steps == 1
        assert sum(step.count for step in found.applied) == relu.count == 6
        again = record(deeper, rules, found.applied, end=found.graph)
        assert replay(again, deeper, rules).graph.hash == found.graph.hash

    def test_settings_that_were_recorded_together_are_made_one_by_one(self, tmp_path: Path) -> None:
        graph, rules = network(tmp_path), rewriter()
        relu = next(c for c in rules.candidates(graph) if c.rule == "ReluAsThresholded")
        choices, end = list[Candidate](), relu.apply()
        for label in ("set enable_mem_pattern=false", "set enable_cpu_mem_arena=false"):
            choice = session_candidate(end, label)
            assert choice is not None
            choices.append(choice)
            end = choice.apply()
        recording = record(graph, rules, [relu, *choices], end=end)
        assert len(recording.steps) == 2
        found = replay(recording, graph, rules)
        assert [step.key for step in found.applied] == [relu.key, *(choice.key for choice in choices)]
        assert found.graph.hash == end.hash
