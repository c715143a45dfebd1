"""Recorded rewrites, found again in other files of the same architecture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.replay import Recording, UnrecordableError, fingerprint, record, replay
from graph_rewrite.replay.recorder import KeyedAction
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.enumerator import Granularity
from tests.graph_rewrite.replay.models import network, rewriter


def walked(graph: Graph, rules: Rewriter, steps: int, seed: int = 0) -> tuple[Graph, list[Candidate]]:
    """The graph after some random candidates, and these."""
    rng, taken = np.random.default_rng(seed), []
    for _ in range(steps):
        offered = rules.candidates(graph)
        taken.append(offered[int(rng.integers(len(offered)))])
        graph = taken[-1].apply()
    return graph, taken


def recorded(graph: Graph, rules: Rewriter, actions: list[Candidate]) -> Recording:
    """The recording as it comes back out of a file."""
    return Recording.from_json(json.loads(json.dumps(record(graph, rules, actions).to_json())))


@pytest.fixture(params=range(4))
def walk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Graph, Recording]:
    """The end of a random walk, and its recording."""
    graph, rules = network(tmp_path), rewriter()
    after, taken = walked(graph, rules, 12, request.param)
    return after, recorded(graph, rules, taken)


class TestReplay:
    def test_same_graph(self, walk: tuple[Graph, Recording], tmp_path: Path) -> None:
        found = replay(walk[1], network(tmp_path), rewriter())
        assert found.complete
        assert found.first_difference is None
        assert found.graph.hash == walk[0].hash
        assert all(step.exact for step in found.applied)

    @pytest.mark.parametrize("granularity", ["site", "class"])
    def test_at_another_granularity(
        self, walk: tuple[Graph, Recording], tmp_path: Path, granularity: Granularity
    ) -> None:
        assert replay(walk[1], network(tmp_path), rewriter(granularity)).graph.hash == walk[0].hash

    def test_other_weights(self, walk: tuple[Graph, Recording], tmp_path: Path) -> None:
        retrained = network(tmp_path, seed=1, factor=3.0)
        found = replay(walk[1], retrained, rewriter())
        assert found.complete
        assert found.first_difference is None
        assert fingerprint(found.graph) == fingerprint(walk[0])
        assert found.graph.disabled_optimizers == walk[0].disabled_optimizers
        assert found.graph.hash != walk[0].hash

    def test_other_names(self, walk: tuple[Graph, Recording], tmp_path: Path) -> None:
        found = replay(walk[1], network(tmp_path, seed=1, prefix="/model/"), rewriter())
        assert found.complete
        assert found.first_difference is None
        assert fingerprint(found.graph) == fingerprint(walk[0])

    def test_other_batch_and_other_head(self, walk: tuple[Graph, Recording], tmp_path: Path) -> None:
        other = network(tmp_path, batch=7, classes=5)
        found = replay(walk[1], other, rewriter())
        assert found.complete
        assert found.same_architecture
        assert fingerprint(found.graph, any_size=True) == fingerprint(walk[0], any_size=True)

    def test_other_names_and_another_layer(self, walk: tuple[Graph, Recording], tmp_path: Path) -> None:
        """The first three layers are still there under other names; a fourth follows."""
        found = replay(walk[1], network(tmp_path, layers=4, prefix="n_"), rewriter(), partial=True)
        assert not found.same_architecture
        assert len(found.applied) >= len(walk[1].steps) // 2


class TestDifferences:
    def test_weights_that_the_rule_refuses(self, tmp_path: Path) -> None:
        graph, rules = network(tmp_path), rewriter()
        scale = next(c for c in rules.candidates(graph) if c.rule == "ScaleIntoMatMul" and c.kind == "class")
        relu = next(c for c in rules.candidates(scale.apply()) if c.rule == "ReluAsThresholded" and c.kind == "class")
        actions = recorded(graph, rules, [scale, relu])
        negative = network(tmp_path, factor=-1.0)
        stopped = replay(actions, negative, rewriter())
        assert not stopped.complete
        assert stopped.applied == ()
        assert "the factor is not positive" in str(stopped.first_difference)
        assert "step 1, ScaleIntoMatMul at Mul_s0" in str(stopped.first_difference)
        partly = replay(actions, negative, rewriter(), partial=True)
        assert [step.rule for step in partly.applied] == ["ReluAsThresholded"]
        assert {node.op for node in partly.graph.nodes.values()} >= {"ThresholdedRelu", "Mul"}

    def test_sites_that_are_gone(self, tmp_path: Path) -> None:
        graph, rules = network(tmp_path), rewriter()
        relu = next(c for c in rules.candidates(graph) if c.rule == "ReluAsThresholded" and c.kind == "class")
        actions = recorded(graph, rules, [relu])
        shorter = network(tmp_path, layers=2)
        difference = replay(actions, shorter, rewriter()).first_difference
        assert difference is not None
        assert "only 4 of its 6 sites are there; missing: Relu_r2p, Relu_r2q" in difference.reason
        assert "ReluAsThresholded at Relu_r0p" in difference.nearest
        partly = replay(actions, shorter, rewriter(), partial=True)
        assert [step.count for step in partly.applied] == [4]
        assert not partly.complete

    def test_rule_that_does_not_match_or_exist(self, tmp_path: Path) -> None:
        graph, rules = network(tmp_path), rewriter()
        relu = next(c for c in rules.candidates(graph) if c.rule == "ReluAsThresholded")
        actions = recorded(graph, rules, [relu])
        tanh = network(tmp_path, activation="Tanh")
        assert "matches nowhere" in str(replay(actions, tanh, rewriter()).first_difference)
        fewer = Rewriter([rule for rule in rewriter().rules if rule.name != "ReluAsThresholded"])
        difference = replay(actions, graph, fewer).first_difference
        assert difference is not None
        assert "there is no rule ReluAsThresholded" in difference.reason
        assert "ThresholdedAsRelu" in difference.nearest

    def test_structure_that_differs_is_told(self, tmp_path: Path) -> None:
        """As where the code of a rule has changed since: the step is applied, and the first difference named."""
        graph, rules = network(tmp_path), rewriter()
        _, taken = walked(graph, rules, 4)
        values = record(graph, rules, taken).to_json()
        values["steps"][2]["after"] = values["steps"][2]["after_any_size"] = "something else"
        found = replay(Recording.from_json(values), graph, rules)
        assert found.complete
        assert found.first_difference is not None
        assert found.first_difference.step == 3
        assert [step.exact for step in found.applied] == [True, True, False, True]

    def test_settings_that_are_no_candidates(self, tmp_path: Path) -> None:
        """A search may end with settings of the session that no candidate offers."""
        graph, rules = network(tmp_path), rewriter()
        after, taken = walked(graph, rules, 3)
        end = after.with_session_settings({"allow_spinning": False}).with_disabled_optimizers({"NchwcTransformer"})

        class Settings:
            key, rule = "anything", "no spinning"

        action: KeyedAction = Settings()
        actions = Recording.from_json(record(graph, rules, [*taken, action], end=end).to_json())
        assert actions.steps[-1].rule == "no spinning"
        found = replay(actions, network(tmp_path), rewriter())
        assert found.complete
        assert found.graph.hash == end.hash
        with pytest.raises(UnrecordableError, match="do not lead to the result"):
            record(graph, rules, [], end=after.with_session_settings({"allow_spinning": False}))

    def test_an_order_of_nodes_that_there_is_not(self, tmp_path: Path) -> None:
        graph = network(tmp_path)
        end = graph.with_session_settings({"node_order": "last_input_first"})
        values = record(graph, rewriter(), [], end=end).to_json()
        assert replay(Recording.from_json(values), graph, rewriter()).graph.hash == end.hash
        values["steps"][-1]["settings"]["node_order"] = "backwards"
        with pytest.raises(UserError, match="no node_order is named 'backwards'; there are last_input_first"):
            Recording.from_json(values)

    def test_extraction_is_not_recorded(self, tmp_path: Path) -> None:
        graph, rules = network(tmp_path), rewriter()

        class Extraction:
            key, rule = "extract 0", "Extraction"

        action: KeyedAction = Extraction()
        with pytest.raises(UnrecordableError, match=r"step 1 .Extraction. is no candidate"):
            record(graph, rules, [action])


class TestOlderResults:
    def test_by_key_alone(self, tmp_path: Path) -> None:
        graph, rules = network(tmp_path), rewriter("class")
        after, taken = walked(graph, rules, 6)
        result = {"rewrites": [{"rule": c.rule, "sites": c.count, "key": c.key} for c in taken]}
        assert replay(Recording.from_json(result), graph, rewriter("site")).graph.hash == after.hash

    def test_by_description_where_keys_changed(self, tmp_path: Path) -> None:
        graph, rules = network(tmp_path), rewriter("class")
        after, taken = walked(graph, rules, 6)
        rows = [{"rule": c.rule, "sites": c.count, "key": "old", "description": c.description} for c in taken]
        found = replay(Recording.from_json({"rewrites": rows}), network(tmp_path, seed=3), rewriter("class"))
        assert found.complete
        assert fingerprint(found.graph) == fingerprint(after)
