"""Rewrites inside the bodies of If, Loop and Scan: equal results, names, listing, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from graph_rewrite import Candidate, Graph, Rewriter, load
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.onnx_files import body_writing
from graph_rewrite.onnx_files.body_views import body_views
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.onnx_files.subgraphs import attribute_graphs, inner_nodes
from graph_rewrite.rewriting.body_sites import BodySite
from graph_rewrite.rules.registry import all_rules
from tests.graph_rewrite.body_models import TEXTS, body_model
from tests.graph_rewrite.sample_models import conditional, loop, parsed, weights

FIXED = sorted(name for name in TEXTS if "symbolic" not in name)


def opened(model: onnx.ModelProto) -> Graph:
    return normalise(load(model))[0]


def outputs(model: onnx.ModelProto, c: bool = True) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {
        entry.name: np.array(c) if entry.type == "tensor(bool)" else rng.standard_normal(entry.shape, np.float32)
        for entry in session.get_inputs()
    }
    return list(session.run(None, feeds))


def assert_equal(graph: Graph, model: onnx.ModelProto, where: str = "") -> None:
    for c in (True, False):
        for found, wanted in zip(outputs(to_proto(graph), c), outputs(model, c), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=where)


def inside(graph: Graph, *rules: str, granularity: str = "site") -> list[Candidate]:
    rewriter = Rewriter(granularity=granularity, deployment=False)  # type: ignore[arg-type]
    found = [c for c in rewriter.candidates(graph) if isinstance(c.site, BodySite)]
    return [c for c in found if c.rule in rules] if rules else found


def inner_operators(graph: Graph) -> list[str]:
    protos = [node.proto for node in graph.nodes.values() if node.opaque and node.proto is not None]
    return sorted(n.op_type for proto in protos for body in attribute_graphs(proto) for n in inner_nodes(body))


def scopes(graph: onnx.GraphProto, outer: frozenset[str] = frozenset()) -> Iterator[tuple[set[str], frozenset[str]]]:
    """The names that each graph defines, with those of the graphs around it."""
    given = {*(info.name for info in graph.input), *(t.name for t in graph.initializer)}
    given |= {name for node in graph.node for name in node.output if name}
    yield given, outer
    for node in graph.node:
        for inner in attribute_graphs(node):
            yield from scopes(inner, outer | given)


def assert_no_name_is_taken_twice(model: onnx.ModelProto) -> None:
    for given, outer in scopes(model.graph):
        assert given.isdisjoint(outer)


class TestEveryRewrite:
    @pytest.mark.parametrize("name", FIXED)
    def test_computes_the_same(self, name: str) -> None:
        model = body_model(name)
        graph = opened(model)
        found = inside(graph)
        assert found
        for candidate in found:
            after = candidate.apply()
            assert after.hash != graph.hash
            assert_equal(after, model, candidate.description)
            onnx.checker.check_model(to_proto(after))
            assert_no_name_is_taken_twice(to_proto(after))
            assert load(to_proto(after)).hash == after.hash

    @pytest.mark.parametrize("make", [loop, conditional])
    def test_of_the_samples(self, make: object) -> None:
        model = make()  # type: ignore[operator]
        for candidate in inside(opened(model)):
            assert_equal(candidate.apply(), model, candidate.description)

    @pytest.mark.parametrize("name", FIXED)
    def test_one_after_another(self, name: str) -> None:
        model = body_model(name)
        rewriter, rng = Rewriter(deployment=False), np.random.default_rng(len(name))
        for _ in range(3):
            graph, taken = opened(model), list[str]()
            for _ in range(5):
                offered = [c for c in rewriter.candidates(graph) if isinstance(c.site, BodySite)]
                if not offered:
                    break
                candidate = offered[int(rng.integers(len(offered)))]
                taken.append(candidate.description)
                graph = candidate.apply()
                fresh = Rewriter(deployment=False).candidates(load_again(graph))
                assert sorted(c.rule for c in rewriter.candidates(graph)) == sorted(c.rule for c in fresh)
            assert_equal(graph, model, "; ".join(taken))
            assert_no_name_is_taken_twice(to_proto(graph))


def load_again(graph: Graph) -> Graph:
    return opened(to_proto(graph))


class TestBodies:
    def test_weights_of_the_outer_graph_are_folded(self) -> None:
        model = body_model("a chain within Loop")
        graph = opened(model)
        [candidate] = inside(graph, "FoldScaleAfterMatMul")
        after = candidate.apply()
        assert "Mul" in inner_operators(graph)
        assert "Mul" not in inner_operators(after)
        # What was only read there is gone, and its place is in the body.
        assert len(after.constants) == len(graph.constants) - 2
        [node] = [node for node in after.nodes.values() if node.opaque]
        assert node.captures == ()
        assert_equal(after, model)

    def test_weights_that_others_read_stay(self) -> None:
        model = body_model("chains within If")
        model.graph.node.append(onnx.helper.make_node("MatMul", ["x", "a"], ["z"]))
        model.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [4, 4]))
        [candidate] = inside(opened(model), "FoldScaleAfterMatMul")
        assert_equal(candidate.apply(), model)

    def test_of_all_levels_are_offered(self) -> None:
        graph = opened(body_model("a chain within Loop within Loop"))
        names = [candidate.site.name for candidate in inside(graph)]
        assert any(name.count("/body/") == 2 for name in names)
        assert any(name.count("/body/") == 1 for name in names)

    def test_classes_within_a_body(self) -> None:
        model = parsed(
            """(bool c, float[4] x) => (float[4] y) { y = If(c) <
                then_branch = p () => (float[4] u) {
                    j = Relu(x)  k = Relu(j)  l = Exp(k)  m = Relu(l)  n = Relu(m)  u = Exp(n) },
                else_branch = q () => (float[4] v) { v = Exp(x) }> }"""
        )
        graph = opened(model)
        whole = [c for c in inside(graph, "DropRepeated") if "all 2 sites" in c.description]
        assert len(whole) == 1
        assert inner_operators(whole[0].apply()) == ["Exp", "Exp", "Exp", "Relu", "Relu"]
        assert_equal(whole[0].apply(), model)

    def test_equal_loops_are_a_class(self) -> None:
        text = TEXTS["a chain within Loop"]
        turn = text[text.index("last, every") : text.rindex("}")]
        twice = turn.replace("last, every = Loop(n, go, x)", "last2, every2 = Loop(n, go, z)")
        model = parsed(
            text.replace(turn, turn + twice).replace("(float[4,4] x)", "(float[4,4] x, float[4,4] z)", 1)
            .replace("float[3,4,4] every)", "float[3,4,4] every, float[4,4] last2, float[3,4,4] every2)", 1),
            weights("a", 4, 4),
        )  # fmt: skip
        found = [c for c in inside(opened(model), granularity="class") if c.count == 2]
        assert {"FoldScaleAfterMatMul", "ComposeTransposes"} <= {c.rule for c in found}
        for candidate in found:
            assert_equal(candidate.apply(), model, candidate.description)

    def test_what_the_body_gives_back_of_its_inputs_keeps_a_name(self) -> None:
        """The condition goes through an Identity, which no rewrite may take away."""
        graph = opened(body_model("a chain within Loop"))
        assert not inside(graph, "DropIdentity")

    def test_operator_sets_that_rewrites_bring_in_are_imported(self) -> None:
        model = parsed(
            """(bool c, float[4,4] x) => (float[4,4] y) <float[4] bias = {1.0, 2.0, 3.0, 4.0}> { y = If(c) <
                then_branch = p () => (float[4,4] u) { t = Add(x, bias)  u = Gelu(t) },
                else_branch = q () => (float[4,4] v) { v = Abs(x) }> }"""
        )
        del model.opset_import[1:]
        candidates = inside(opened(model), "FuseBiasGelu")
        assert candidates
        saved = to_proto(candidates[0].apply())
        assert "com.microsoft" in {entry.domain for entry in saved.opset_import}
        assert_equal(candidates[0].apply(), model)
        plain = Rewriter(deployment=False, domains=frozenset({""})).candidates(opened(model))
        assert not any(c.rule == "FuseBiasGelu" for c in plain)

    def test_a_constant_result_is_computed_in_the_body(self) -> None:
        model = parsed(
            """(bool c, float[4] x) => (float[4] y, float[4] z) <float[4] k = {1.0, 2.0, 3.0, 4.0}> { y, z = If(c) <
                then_branch = p () => (float[4] u, float[4] w) { s = Relu(x)  u = Relu(s)  w = Neg(k) },
                else_branch = q () => (float[4] v, float[4] m) { v = Abs(x)  m = Exp(x) }> }"""
        )
        for candidate in inside(opened(model)):
            assert_equal(candidate.apply(), model, candidate.description)


class TestRefusals:
    def test_a_body_that_would_become_too_large(self) -> None:
        graph = opened(body_model("a chain within Loop"))
        [candidate] = inside(graph, "FoldScaleAfterMatMul")
        with mock.patch.object(body_writing, "MOST_GROWTH", 1), pytest.raises(InvalidRewriteError, match="grow"):
            candidate.apply()

    def test_its_replacement_is_what_is_there(self) -> None:
        graph = opened(body_model("a chain within Loop"))
        [candidate] = inside(graph, "FoldScaleAfterMatMul")
        with mock.patch.object(body_writing, "MOST_GROWTH", 1):
            [node] = candidate.site.replacement.nodes
        assert node.signature == candidate.site.removed[0].signature

    def test_near_misses_inside_are_explained(self) -> None:
        graph = opened(body_model("a chain within Loop within Loop"))
        rewriter = Rewriter(deployment=False)
        inner = [refusal for refusal in rewriter.explain(graph) if "/body/" in refusal.site]
        assert inner
        assert all(refusal.reason for refusal in inner)


class TestListing:
    def test_models_without_bodies_are_listed_as_ever(self) -> None:
        graph = opened(parsed("(float[4] x) => (float[4] y) { t = Relu(x)  y = Relu(t) }"))
        with mock.patch("graph_rewrite.rewriting.enumerator.sites_inside", side_effect=AssertionError):
            assert len(Rewriter(deployment=False).candidates(graph))

    def test_by_rule(self) -> None:
        graph = opened(body_model("chains within If"))
        rewriter = Rewriter(deployment=False)
        listed = rewriter.candidates(graph)
        for rule in {candidate.rule for candidate in listed}:
            keys = [c.key for c in rewriter.candidates_by(graph, (rule,))]
            assert keys == [c.key for c in listed if c.rule == rule]

    def test_keys_are_those_of_another_process(self) -> None:
        keys = [[c.key for c in inside(opened(body_model("chains within If")))] for _ in range(2)]
        assert keys[0] == keys[1]
        assert len(set(keys[0])) == len(keys[0])

    def test_the_outer_rewrite_of_an_operand_is_seen(self) -> None:
        """A view holds for the operands that it was made for."""
        model = body_model("chains within If")
        model.graph.node.insert(0, onnx.helper.make_node("Relu", ["x"], ["x0"]))
        model.graph.node.insert(1, onnx.helper.make_node("Relu", ["x0"], ["x1"]))
        for attribute in model.graph.node[2].attribute:
            for node in attribute.g.node:
                node.input[:] = ["x1" if name == "x" else name for name in node.input]
        graph = opened(model)
        rewriter = Rewriter(deployment=False)
        before = [c for c in rewriter.candidates(graph) if not isinstance(c.site, BodySite)]
        for candidate in before:
            after = candidate.apply()
            assert_equal(after, model, candidate.description)
            for further in rewriter.candidates(after):
                assert_equal(further.apply(), model, further.description)

    def test_all_rules_are_those_of_the_rewriter(self) -> None:
        graph = opened(body_model("chains within If"))
        names = [rule.name for rule in all_rules()]
        for candidate in inside(graph):
            assert names[candidate.site.rule_index] == candidate.rule


def test_large_bodies_count_as_weights() -> None:
    model = body_model("chains within If")
    model.graph.node[0].attribute[0].g.initializer.append(weights("own", 256, 256))
    model.graph.node[0].attribute[0].g.node[2].input[1] = "own"
    small, large = (weight_bytes(load(one)) for one in (body_model("chains within If"), model))
    assert large > small + 250_000


def test_views_come_along_with_rewrites() -> None:
    graph = opened(body_model("a chain within Loop"))
    after = inside(graph, "FoldScaleAfterMatMul")[0].apply()
    [node] = [node for node in after.nodes.values() if node.opaque]
    view = body_views(after, node)["body"]
    assert view.edit is not None
    assert view.edit.before is not view
