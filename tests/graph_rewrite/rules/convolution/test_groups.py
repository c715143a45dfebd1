"""Groups merge by blocks of zeros in the filters, up to 16 channels per group."""

import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rules.convolution import groups as G
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights


def grouped(group, channels, filters, attrs="pads=[1,1,1,1]"):
    """A grouped convolution with so many input channels and filters per group."""
    text = f"(float[1,{group * channels},4,5] x) => (y) {{ y = Conv<group={group}, {attrs}>(x, w, b) }}"
    return model(text, w=weights(group * filters, channels, 3, 3), b=weights(group * filters))


def only(graph):
    """Groups and shape of the filters of the graph's one node."""
    (node,) = graph.nodes.values()
    return node.attrs["group"], graph.types[node.inputs[1]].shape[:2]


@pytest.mark.parametrize(("group", "channels", "filters"), [(2, 3, 1), (4, 2, 3), (6, 1, 2)])
def test_pairs(group, channels, filters):
    (after,) = check_rule(G.MergeGroupPairs, grouped(group, channels, filters), becomes=["Conv"])
    assert only(after) == (group // 2, (group * filters, 2 * channels))


@pytest.mark.parametrize(("group", "channels", "merged"), [(8, 4, 2), (4, 5, 1), (32, 1, 2), (4, 8, 2)])
def test_blocks(group, channels, merged):
    (after,) = check_rule(G.MergeGroupsToBlock, grouped(group, channels, 2, "strides=[2,2]"), becomes=["Conv"])
    assert only(after)[0] == merged


def test_pairs_end_at_the_block():
    graph, rewriter = grouped(16, 4, 1), Rewriter([G.MergeGroupPairs()], "site", deployment=False)
    steps = 0
    while candidates := rewriter.candidates(graph):
        graph, steps = candidates[0].apply(), steps + 1
    assert steps == 2
    assert only(graph) == (4, (16, 16))


def test_both_rules_give_one_candidate_where_they_agree():
    rewriter = Rewriter([G.MergeGroupPairs(), G.MergeGroupsToBlock()], "site", deployment=False)
    assert len(rewriter.candidates(grouped(4, 8, 2))) == 1


def test_groups_that_stay():
    for rule in (G.MergeGroupPairs, G.MergeGroupsToBlock):
        refuses(rule, grouped(1, 4, 2), "has no groups")
        refuses(rule, grouped(2, 16, 1), "fill a block")
        refuses(rule, grouped(3, 8, 1), "can't be merged")
