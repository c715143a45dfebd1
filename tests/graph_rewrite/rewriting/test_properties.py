"""With all registered rules, on random graphs: rewrites keep results, listings are complete, replay is exact."""

from __future__ import annotations

import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import Candidate, Graph, Rewriter, load
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rewriting.building import build_site
from graph_rewrite.rewriting.matching import Matcher
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.rules import all_rules
from tests.invariants import (
    assert_enumeration_is_fresh,
    assert_nothing_dead,
    assert_same_outputs,
    assert_well_formed,
    forgotten,
    keys,
    snapshot,
)
from tests.strategies import feeds_for, models, varied_models


def tolerance(graph: Graph) -> float:
    """Weights are folded in their own type, and epsilons are float32 attributes, whatever the type of the values."""
    first = graph.types[graph.inputs[0]]
    return 1e-6 if first is not None and first.dtype == onnx.TensorProto.DOUBLE else 1e-4


REWRITER = Rewriter()


class TestEveryRule:
    """With all registered rules, on random graphs."""

    @settings(max_examples=120)
    @given(model=varied_models())
    def test_every_candidate_is_valid(self, model: onnx.ModelProto) -> None:
        graph, _ = normalise(load(model))
        feeds = feeds_for(model)
        expected = run_graph(graph, feeds)
        before = snapshot(graph)
        graph.value_hashes()
        for candidate in REWRITER.candidates(graph):
            after = candidate.apply()
            assert after.value_hashes() == forgotten(after).value_hashes()
            assert_well_formed(after)
            assert_nothing_dead(after)
            assert_same_outputs(expected, after, feeds, tolerance(graph), candidate.description)
            if candidate.kind == "site":
                gone = {node.id for node in candidate.site.removed}
                assert gone == graph.nodes.keys() - after.nodes.keys(), candidate.description
        assert snapshot(graph) == before

    @settings(max_examples=60)
    @given(model=models(), data=st.data())
    def test_sequences_of_candidates_in_small_models(self, model: onnx.ModelProto, data: st.DataObject) -> None:
        self.check_sequence(model, data)

    @settings(max_examples=80)
    @given(model=varied_models(), data=st.data())
    def test_sequences_of_candidates_in_larger_models(self, model: onnx.ModelProto, data: st.DataObject) -> None:
        self.check_sequence(model, data)

    def check_sequence(self, model: onnx.ModelProto, data: st.DataObject) -> None:
        """Outputs stay the same, enumeration stays complete, replay and file give the same graph."""
        start, _ = normalise(load(model))
        start.value_hashes()
        feeds = feeds_for(model)
        expected = run_graph(start, feeds)
        graph, taken = start, list[Candidate]()
        late = Rewriter()
        late.candidates(start)
        for _ in range(data.draw(st.integers(1, 6))):
            found = REWRITER.candidates(graph)
            if not found:
                break
            rule = data.draw(st.sampled_from(list(dict.fromkeys(candidate.rule for candidate in found))))
            taken.append(data.draw(st.sampled_from([candidate for candidate in found if candidate.rule == rule])))
            before = snapshot(graph)
            after = taken[-1].apply()
            assert snapshot(graph) == before
            assert after.value_hashes() == forgotten(after).value_hashes()
            assert_well_formed(after)
            assert_nothing_dead(after)
            assert_same_outputs(expected, after, feeds, tolerance(graph), taken[-1].description)
            assert_enumeration_is_fresh(REWRITER, after)
            graph = after
        assert_enumeration_is_fresh(late, graph)
        again, other = forgotten(start), Rewriter()
        for candidate in taken:
            (same,) = [found for found in other.candidates(again) if found.key == candidate.key]
            again = same.apply()
        assert again.hash == graph.hash
        saved = load(to_proto(graph))
        assert_well_formed(saved)
        assert saved.with_disabled_optimizers(graph.disabled_optimizers).hash == graph.hash

    @settings(max_examples=30)
    @given(model=varied_models())
    def test_the_listing_is_complete(self, model: onnx.ModelProto) -> None:
        """Return every match of every pattern at every node that builds a site, without any index or quick test."""
        graph, _ = normalise(load(model))
        found = {site.key for site in REWRITER.sites(graph)}
        for index, rule in enumerate(all_rules()):
            for node in graph.order():
                for match in Matcher(graph, rule.pattern, set(), rule.symmetric).at(node):
                    site = build_site(rule, index, match)
                    if isinstance(site, Site) and site.key not in found:
                        refused = {refusal.reason for refusal in REWRITER.explain(graph) if refusal.rule == rule.name}
                        assert any("cycle" in reason for reason in refused), site.description

    @settings(max_examples=20)
    @given(model=varied_models())
    def test_candidates_by_few_rules_are_those_among_all(self, model: onnx.ModelProto) -> None:
        graph, _ = normalise(load(model))
        found = [candidate for candidate in REWRITER.candidates(graph) if candidate.sites]
        for rule in all_rules():
            alone = REWRITER.candidates_by(graph, (rule.name,))
            assert keys(alone) == keys([c for c in found if c.rule == rule.name]), rule.name
        few = {candidate.rule for candidate in found[::3]}
        assert keys(REWRITER.candidates_by(graph, few)) == keys([c for c in found if c.rule in few])

    @settings(max_examples=50)
    @given(model=models(max_blocks=4))
    def test_keys_are_the_same_for_the_same_model_loaded_again(self, model: onnx.ModelProto) -> None:
        first, second = (normalise(load(model))[0] for _ in range(2))
        assert keys(REWRITER.candidates(first)) == keys(Rewriter().candidates(second))
