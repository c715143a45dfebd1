"""Deployment choices: each refuses what exists and does something."""

import pytest

from graph_rewrite.rewriting.deployment_choices import (
    _CHOICES,
    LOCAL_CHOICES,
    deployment_candidates,
    deployment_choices,
    local_refusals,
)
from graph_rewrite.runtime import OPTIMIZERS
from tests.graph_rewrite.optimized import optimized_ops
from tests.graph_rewrite.rules.checking import model, weights

MATRIX = "(float[1,8,16] x) => (y) "
IMAGE = "(float[1,16,8,8] x) => (y) "
W = weights(16, 16)
MODELS = {
    "SkipLayerNormFusion": model(
        MATRIX + "{ a = MatMul(x, w) s = Add(a, x) y = LayerNormalization(s, g, b) }", w=W, g=W[0], b=W[1]
    ),
    "MatMulAddFusion": model(MATRIX + "{ a = MatMul(x, w) y = Add(a, b) }", w=W, b=W[0]),
    "MatmulTransposeFusion": model(MATRIX + "{ t = Transpose<perm=[0,2,1]>(x) y = MatMul(x, t) }"),
    "BiasGeluFusion": model(MATRIX + "{ a = MatMul(x, w) s = Add(a, b) y = Gelu(s) }", w=W, b=W[0]),
    "TransposeOptimizer": model(
        IMAGE + """{ t = Transpose<perm=[0,2,3,1]>(x) s = Add(t, b) u = Sigmoid(s) q = Transpose<perm=[0,3,1,2]>(u)
        y = Conv(q, w) }""",
        b=W[0], w=weights(16, 16, 3, 3),
    ),
    "ConvActivationFusion": model("(float[1,8,16] x) => (y) { c = Conv(x, w) y = Relu(c) }", w=weights(4, 8, 3)),
    "NchwcTransformer": model(IMAGE + "{ c = Conv(x, w) y = Relu(c) }", w=weights(16, 16, 3, 3)),
}  # fmt: skip


@pytest.mark.parametrize("choice", _CHOICES, ids=lambda choice: choice.name)
def test_each_refusal_changes_what_runs(choice):
    graph = MODELS[choice.name].with_disabled_optimizers(choice.after)
    offered = dict(deployment_choices(graph))
    refused = offered[f"refuse {choice.name}"]
    assert refused == choice.optimizers | choice.after
    assert refused <= set(OPTIMIZERS)
    assert optimized_ops(graph, graph.disabled_optimizers) != optimized_ops(graph, refused)


def test_a_refused_optimizer_can_be_kept_again():
    graph = MODELS["SkipLayerNormFusion"]
    refused = dict(deployment_choices(graph))["refuse SkipLayerNormFusion"]
    again = dict(deployment_choices(graph.with_disabled_optimizers(refused)))
    assert again["keep SkipLayerNormFusion"] == frozenset()
    assert again["refuse MatMulAddFusion"] == {"MatMulAddFusion", "SkipLayerNormFusion"}


def test_only_what_concerns_the_model_is_offered_in_a_fixed_order():
    labels = [label for label, _ in deployment_choices(MODELS["SkipLayerNormFusion"])]
    assert labels == ["refuse SkipLayerNormFusion", "refuse MatMulAddFusion"]
    assert deployment_choices(model("(float[2] x) => (y) { y = Relu(x) }")) == []
    assert [label for label, _ in deployment_choices(MODELS["NchwcTransformer"])] == [
        "refuse ConvActivationFusion", "refuse NchwcTransformer",
    ]  # fmt: skip


def test_fusion_that_another_one_forestalls_is_offered_after_it():
    graph = MODELS["BiasGeluFusion"]
    assert "refuse BiasGeluFusion" not in dict(deployment_choices(graph))
    freed = graph.with_disabled_optimizers({"MatMulAddFusion"})
    assert "refuse BiasGeluFusion" in dict(deployment_choices(freed))
    assert "BiasGelu" in optimized_ops(freed, freed.disabled_optimizers)


def test_a_choice_is_part_of_the_identity_of_a_graph():
    graph = MODELS["MatMulAddFusion"]
    hashes = {graph.with_disabled_optimizers(refused).hash for _, refused in deployment_choices(graph)}
    assert len(hashes) == len(deployment_choices(graph))
    assert graph.hash not in hashes


def test_the_places_of_a_refusal_are_where_there_is_something_to_fuse():
    """The first normalisation reads no Add; the third has two sums to choose from, of which one ends elsewhere."""
    graph = model(
        """(float[1,8,16] x) => (y, z) { n = LayerNormalization(x, g, b) s = Add(n, x)
        m = LayerNormalization(s, g, b) t = Add(m, s) y = LayerNormalization(t, g, b) z = Add(t, x) }""",
        g=W[0], b=W[1],
    )  # fmt: skip
    ((candidate, places),) = local_refusals(graph)
    assert candidate.label == "refuse SkipLayerNormFusion"
    assert [[graph.nodes[node].op for node in sorted(nodes)] for nodes in places] == [["Add", "LayerNormalization"]] * 2
    assert len(places[0] & places[1]) == 0
    assert local_refusals(candidate.apply()) == []
    kept = {one.label for one in deployment_candidates(candidate.apply())} - {
        one.label for one in deployment_candidates(graph)
    }
    assert {candidate.label, *kept} == LOCAL_CHOICES
