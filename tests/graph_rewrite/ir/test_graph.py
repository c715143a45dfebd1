"""The graph: its hash, and edits that keep everything consistent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite import Graph, Rewriter, load
from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.ordering import topological_ranks
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.saving import to_proto
from tests.graph_rewrite import sample_models
from tests.graph_rewrite.sample_models import parsed, weights
from tests.invariants import assert_well_formed, forgotten
from tests.strategies import models, renamed, reordered

FLOAT = TensorProto.FLOAT


class TestHash:
    @settings(max_examples=60)
    @given(model=models(), data=st.data())
    def test_is_independent_of_names_and_orders(self, model: onnx.ModelProto, data: st.DataObject) -> None:
        expected = load(model).hash
        assert load(renamed(model)).hash == expected
        assert load(data.draw(reordered(model))).hash == expected
        assert load(to_proto(load(model))).hash == expected

    BASE = "(float[2,4] x) => (float[2,2] y) { t = Transpose<perm = [0, 1]>(x)  y, z = Split<axis = 1>(t, s) }"

    @pytest.mark.parametrize(
        "other",
        [
            BASE.replace("[2,4]", "[3,4]").replace("[2,2]", "[3,2]"),
            BASE.replace("axis = 1", "axis = -1"),
            BASE.replace("Transpose<perm = [0, 1]>", "Identity"),
            BASE.replace("y, z = Split", "z, y = Split"),
            BASE.replace("=> (float[2,2] y)", "=> (float[2,2] y, float[2,2] z)"),
            BASE.replace("y, z = Split", "w = Neg(x)  y, z = Split"),
        ],
    )
    def test_tells_structures_apart(self, other: str) -> None:
        sizes = numpy_helper.from_array(np.array([2, 2]), "s")
        assert load(parsed(other, sizes)).hash != load(parsed(self.BASE, sizes)).hash

    def test_tells_weights_types_and_versions_apart(self) -> None:
        text = "(float[3] x) => (float[3] y) { t = Add(x, w)  y = com.microsoft.QuickGelu(t) }"

        def version(model: onnx.ModelProto) -> onnx.ModelProto:
            model.opset_import[1].version = 2
            return model

        variants = [
            parsed(text, weights("w", 3)),
            parsed(text, weights("w", 3, seed=1)),
            parsed(text, weights("w", 1)),
            parsed(text.replace("float", "double"), weights("w", 3, dtype=np.float64)),
            parsed(text, weights("w", 3), opset=22),
            version(parsed(text, weights("w", 3))),
            parsed(text.replace("(float[3] x)", "(float[3] x, float[3] w)"), weights("w", 3)),
            parsed(text.replace("(float[3] x)", "(float[3] x, float[3] w)"), weights("w", 3, seed=1)),
        ]
        hashes = [load(model).hash for model in variants]
        assert len(set(hashes)) == len(hashes)

    def test_counts_what_is_computed_twice(self) -> None:
        once = "(float[3] x) => (float[3] y) { t = Exp(x)  y = Add(t, t) }"
        twice = "(float[3] x) => (float[3] y) { t = Exp(x)  s = Exp(x)  y = Add(t, s) }"
        assert load(parsed(once)).hash != load(parsed(twice)).hash

    def test_sees_into_functions_but_not_into_names_of_captured_values(self) -> None:
        changed = sample_models.functions()
        changed.functions[0].node[0].op_type = "Mul"
        assert load(changed).hash != load(sample_models.functions()).hash
        model = sample_models.conditional()
        text = onnx.printer.to_text(model)
        assert load(onnx.parser.parse_model(text.replace("t =", "outer =").replace("(t", "(outer")
                                            .replace("t)", "outer)").replace(" t,", " outer,")
                                            .replace("[2] t", "[2] outer"))).hash == load(model).hash  # fmt: skip
        other = sample_models.conditional()
        other.graph.node[1].attribute[0].g.node[0].op_type = "Abs"
        assert load(other).hash != load(model).hash

    def test_sees_sparse_initializers_and_refused_optimisers(self) -> None:
        model = sample_models.sparse()
        graph = load(model)
        model.graph.sparse_initializer[0].values.float_data[0] = 3.0
        assert load(model).hash != graph.hash
        refused = graph.with_disabled_optimizers({"MatMulAddFusion"})
        assert refused.hash != graph.hash
        assert refused.with_disabled_optimizers(()).hash == graph.hash

    @pytest.mark.parametrize(
        "text",
        [
            "(float[3] x) => (float[3] x, float[3] y) { y = Identity(x) }",
            "(float[3] x) => (float[3] y, float[3] z) { y = Neg(x)  z = Identity(y) }",
        ],
    )
    def test_a_second_name_of_a_value_counts_as_the_identity_that_the_file_needs(self, text: str) -> None:
        graph = load(parsed(text))
        editor = GraphEditor(graph)
        node = next(node for node in graph.nodes.values() if node.op == "Identity")
        assert node.inputs[0] is not None
        editor.remove(node)
        editor.replace_value(node.outputs[0], node.inputs[0])
        after, _ = editor.finish()
        assert after.output_aliases() == [1]
        assert after.hash == graph.hash
        assert load(to_proto(after)).hash == graph.hash
        assert not Rewriter(deployment=False).candidates(graph), "dropping it would gain nothing"


def chain() -> Graph:
    return load(parsed("(float[3] x) => (float[3] y) { a = Neg(x)  b = Abs(a)  c = Add(b, b)  y = Mul(c, a) }"))


def value(graph: Graph, name: str) -> int:
    return next(value for value, known in graph.names.items() if known == name)


class TestEditor:
    def test_the_source_is_not_changed(self) -> None:
        graph = chain()
        before = (dict(graph.nodes), dict(graph.consumers), dict(graph.producer), graph.outputs)
        editor = GraphEditor(graph)
        editor.remove(graph.nodes[graph.producer[value(graph, "b")]])
        editor.replace_value(value(graph, "b"), value(graph, "a"))
        after, _ = editor.finish()
        assert before == (graph.nodes, graph.consumers, graph.producer, graph.outputs)
        assert_well_formed(graph)
        assert len(after.nodes) == 3

    def test_replacing_a_value_rewires_every_use(self) -> None:
        graph = chain()
        editor = GraphEditor(graph)
        b, c = value(graph, "b"), value(graph, "c")
        editor.replace_value(b, value(graph, "a"))
        editor.remove_dead([b])
        editor.forget([b])
        after, delta = editor.finish()
        assert_well_formed(after)
        add = after.nodes[after.producer[c]]
        assert add.inputs == (value(graph, "a"),) * 2
        assert delta.rewired == {add.id}
        assert delta.removed == {graph.producer[b]}
        assert {b, c, value(graph, "a")} <= delta.touched
        assert b not in after.types

    def test_inserting_keeps_order_however_narrow_the_gap(self) -> None:
        graph = chain()
        for _ in range(80):  # ranks are halved until they run out, then numbered afresh
            node = graph.node_of(graph.outputs[0])
            assert node is not None
            editor = GraphEditor(graph)
            source = node.inputs[0]
            assert source is not None
            new = editor.new_value(TensorType(FLOAT, (3,)))
            low = graph.ranks[graph.producer[source]]
            editor.remove(node)
            editor.insert("Neg", "", {}, [source], [new], (low + graph.ranks[node.id]) / 2)
            editor.insert(node.op, "", node.attrs, [new, node.inputs[1]], node.outputs, graph.ranks[node.id])
            graph, _ = editor.finish()
            assert_well_formed(graph)
        assert len(graph.nodes) == 84

    def test_a_wrong_rank_is_mended_and_a_cycle_refused(self) -> None:
        graph = chain()
        editor = GraphEditor(graph)
        new = editor.new_value(TensorType(FLOAT, (3,)))
        editor.insert("Exp", "", {}, [value(graph, "c")], [new], -1.0)
        after, _ = editor.finish()
        assert after.ranks[after.producer[new]] > after.ranks[after.producer[value(graph, "c")]]
        editor = GraphEditor(graph)
        editor.replace_value(value(graph, "a"), value(graph, "y"))
        with pytest.raises(ValueError, match=r"cycle through nodes .*'Abs'"):
            editor.finish()

    def test_dead_nodes_go_with_all_that_only_they_needed(self) -> None:
        graph = load(parsed("(float[3] x) => (float[3] y) { a = Neg(x)  b = Abs(a)  c = Mul(b, w)  y = Exp(a) }",
                            weights("w", 3)))  # fmt: skip
        editor = GraphEditor(graph)
        editor.remove_dead([value(graph, "c"), value(graph, "y")])
        after, _ = editor.finish()
        assert_well_formed(after)
        assert sorted(node.op for node in after.nodes.values()) == ["Exp", "Neg"]
        assert not after.constants

    def test_opaque_nodes_are_never_dead(self) -> None:
        graph = load(sample_models.conditional())
        editor = GraphEditor(graph)
        branch = next(node for node in graph.nodes.values() if node.op == "If")
        editor.replace_value(branch.outputs[0], value(graph, "x"))
        editor.remove_dead(branch.outputs)
        after, _ = editor.finish()
        assert branch.id in after.nodes


class TestOrder:
    def test_a_subgraph_comes_after_what_it_reads(self) -> None:
        """Also where the producer was made by a rewrite."""
        graph = load(sample_models.conditional())
        editor = GraphEditor(graph)
        relu = graph.nodes[graph.producer[value(graph, "t")]]
        editor.remove(relu)
        middle = editor.new_value(TensorType(FLOAT, (2,)))
        editor.insert("Abs", "", {}, [middle], relu.outputs, 100.0)
        editor.insert("Neg", "", {}, relu.inputs, [middle], 99.0)
        after, _ = editor.finish()
        assert [node.op for node in after.order()] == ["Neg", "Abs", "If", "Add"]
        onnx.checker.check_model(to_proto(after), full_check=True)

    @given(model=models())
    @settings(max_examples=30)
    def test_ranks_are_stable(self, model: onnx.ModelProto) -> None:
        graph = load(model)
        assert_well_formed(graph)
        assert topological_ranks(graph) == graph.ranks
        assert [node.op for node in graph.order()] == [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("build", [sample_models.several_outputs, sample_models.loop], ids=lambda build: build.__name__)
def test_a_copy_without_memo_says_the_same(build: Callable[[], onnx.ModelProto]) -> None:
    graph = load(build())
    assert forgotten(graph).hash == graph.hash
    assert replace(graph, memo=GraphMemo(), edit=None) == graph


def test_types_print_as_people_write_them() -> None:
    assert str(TensorType(FLOAT, (1, 128))) == "float[1,128]"
    assert str(TensorType(TensorProto.INT64, ())) == "int64[]"
    assert TensorType(FLOAT, (2, 3, 0)).size == 0
    assert helper.tensor_dtype_to_np_dtype(FLOAT) == np.float32
