"""Instances of rules: graphs at which a rule applies, of every registered rule, spread over shapes and attributes."""

import itertools

import numpy as np
import pytest

from graph_rewrite import Refusal, Rule, TensorType
from graph_rewrite.onnx_files.assembly import Assembly, model
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.operators.standard_types import TypeInferenceError
from graph_rewrite.rewriting.patterns import Const, Values
from graph_rewrite.rules import find_rule, registered_rules
from graph_rewrite.soundness.instances import enumeration as module
from graph_rewrite.soundness.instances.__main__ import main
from graph_rewrite.soundness.instances.chooser import Chooser
from graph_rewrite.soundness.instances.enumeration import FAST_INSTANCES, FEWEST, Tally, covering, instances
from graph_rewrite.soundness.instances.well_formed import is_valid
from tests.graph_rewrite.rules.checking import random_feeds

FLOAT = 1


class SmallNot(Rule):
    """Not(Not(x)) = x, for x of up to two axes"""

    def source(self, op, x):
        return op.Not(op.Not(x))

    def check(self, m, x):
        return None if x.rank <= 2 else Refusal("too many axes")

    def target(self, op, m, x):
        return x


class NeverApplies(Rule):
    """Relu(x) = Relu(x), never"""

    def source(self, op, x):
        return op.Relu(x)

    def check(self, m, x):
        return Refusal("never")


class WithCases(NeverApplies):
    """Relu(x) = Max(x, 0) for x of 7 elements, which no proposal has"""

    def cases(self):
        return [model("(float[7] x) => (y) { y = Relu(x) }"), model("(float[6] x) => (y) { y = Relu(x) }")]

    def check(self, m, x):
        return None if x.shape == (7,) else Refusal("not 7 elements")

    def target(self, op, m, x):
        return op.Max(x, op.constant(np.float32(0)))


def graphs(name, full=False):
    return [instance.graph for instance in instances(find_rule(name), full=full)]


def attributes(found, op, name):
    return {node.attrs.get(name) for graph in found for node in graph.nodes.values() if node.op == op}


@pytest.mark.parametrize("rule", registered_rules(), ids=lambda rule: rule.name)
def test_every_rule_has_an_instance(rule):
    instance = next(instances(rule.at_any_size, full=True))
    graph, after = instance.graph, instance.candidate.apply()
    assert instance.candidate.rule == rule.name
    assert after.hash != graph.hash
    assert [after.types[v] for v in after.outputs] == [graph.types[v] for v in graph.outputs]


@pytest.mark.parametrize("name", ["AddZero", "TransposeBeforeConcat", "MergeTwoConvs", "ExpandAttention"])
def test_fast_instances_are_few_and_different(name):
    found = graphs(name)
    assert FEWEST <= len(found) <= 2 * FAST_INSTANCES
    assert len({graph.hash for graph in found}) >= len(found) - 1
    assert len({graph.types[graph.inputs[0]].shape for graph in found}) >= FEWEST


def test_fast_instances_differ_in_rank_and_operator():
    found = graphs("TransposeAfterUnary")
    assert len({graph.types[graph.inputs[0]].rank for graph in found}) >= 3
    assert len({graph.order()[1].op for graph in found}) >= 4


def test_full_instances_cover_attributes():
    found = graphs("FuseConvRelu", full=True)
    assert len(found) > 200
    ranks = {graph.types[graph.inputs[0]].rank for graph in found}
    assert ranks == {3, 4, 5}
    assert {None, 1, 2} <= attributes(found, "Conv", "group")
    assert {None, "SAME_UPPER", "SAME_LOWER", "VALID"} == attributes(found, "Conv", "auto_pad")
    assert {(1, 2), (2, 2), None} <= attributes(found, "Conv", "strides")
    assert {len(node.inputs) for graph in found for node in graph.nodes.values() if node.op == "Conv"} == {2, 3}


def test_operands_come_in_both_orders_and_broadcast():
    found = graphs("AddZero", full=True)
    sides = {graph.order()[0].inputs[0] in graph.constants for graph in found}
    shapes = {
        graph.constants[v].type.rank - graph.types[graph.inputs[0]].rank for graph in found for v in graph.constants
    }
    assert sides == {True, False}
    assert {0, -1} <= shapes
    assert max(shapes) == 0


def test_interior_values_are_shared_where_the_rule_allows_it():
    shared = [
        graph
        for graph in graphs("ComposeTransposes", full=True)
        if graph.order()[0].op == "Transpose" and graph.order()[0].outputs[0] in graph.outputs
    ]
    assert shared
    assert not any(graph.order()[0].outputs[0] in graph.outputs for graph in graphs("DropRepeated"))


def test_surroundings_are_built_where_the_condition_looks_at_them():
    assert all([node.op for node in graph.order()].count("Conv") == 2 for graph in graphs("EnlargeKernel"))
    assert all("LayerNormalization" in {n.op for n in g.nodes.values()} for g in graphs("ResidualAsSum"))


def test_same_seed_same_instances():
    for name in ("Distribute", "ConcatOfSplit2", "FoldScaleAfterConv"):
        first, second = ([i.graph.hash for i in instances(find_rule(name), full=False, seed=3)] for _ in range(2))
        other = [i.graph.hash for i in instances(find_rule(name), full=False, seed=4)]
        assert first == second != other


def test_small_space_is_enumerated_in_full():
    tally = Tally()
    found = list(instances(SmallNot(), full=True, tally=tally))
    assert tally.exhausted
    shapes = {instance.graph.types[instance.graph.inputs[0]].shape for instance in found}
    assert shapes == {s for rank in range(3) for s in itertools.product(range(1, 5), repeat=rank)}
    assert tally.applied == len(found)
    assert tally.refused == tally.tried - tally.applied - tally.impossible > 0


def test_refusals_are_counted_and_yield_nothing(monkeypatch):
    monkeypatch.setattr(module, "FULL_TRIALS", 50)
    tally = Tally()
    assert list(instances(NeverApplies(), full=True, tally=tally)) == []
    assert (tally.tried, tally.applied, tally.refused) == (50, 0, 50)


def test_cases_of_the_rule_are_instances(monkeypatch):
    monkeypatch.setattr(module, "FULL_TRIALS", 50)
    tally = Tally()
    (instance,) = instances(WithCases(), full=True, tally=tally)
    assert instance.graph.types[instance.graph.inputs[0]].shape == (7,)
    assert tally.tried == 52


def test_instances_are_valid_models():
    for name in ("ConvOfConcat", "PackAttention", "SplitSkipLayerNormalization", "GatherAsSlice"):
        for graph in graphs(name):
            results = run_graph(graph, random_feeds(graph))
            assert [r.shape for r in results] == [graph.types[v].shape for v in graph.outputs]


def test_label_names_types_attributes_and_constants():
    labels = [instance.label for instance in instances(find_rule("DropPad"), full=False)]
    assert any(label.startswith("(x float[") and "Pad(x, pads=[0," in label for label in labels)


def test_chooser_draws_every_combination_once():
    chooser, seen = Chooser(0), []
    while not chooser.exhausted:
        first = chooser.pick("first", "abc")
        # What can be chosen depends on what was chosen.
        seen.append((first, chooser.pick("second", range(3)) if first != "a" else None))
        chooser.finish(success=first == "b")
    assert sorted(seen, key=str) == sorted([("a", None), *itertools.product("bc", range(3))], key=str)


def test_chooser_prefers_what_succeeds():
    chooser, successes = Chooser(0), 0
    for _ in range(300):
        numbers = [chooser.pick(f"number {i}", range(20)) for i in range(4)]
        success = numbers[0] in (3, 4)
        successes += success
        chooser.finish(success)
    assert successes > 60  # 30 without learning


def test_chooser_needs_options():
    with pytest.raises(ValueError, match="nothing to choose from for color"):
        Chooser(0).pick("color", ())


def test_cover_has_all_pairs_that_there_are():
    rows = [dict(zip("abc", values, strict=True)) for values in itertools.product(range(3), range(3), range(2))]
    chosen = covering(rows, 18)
    pairs = {pair for row in rows for pair in itertools.combinations(sorted(row.items()), 2)}
    assert {pair for k in chosen for pair in itertools.combinations(sorted(rows[k].items()), 2)} == pairs
    assert 9 <= len(chosen) <= 11
    assert covering(rows, 4) == chosen[:4]


def test_validity_beyond_type_inference():
    def holds(op, attrs, *shapes, out=(1,)):
        return is_valid(
            op, attrs, [None if s is None else TensorType(FLOAT, s) for s in shapes], [TensorType(FLOAT, out)]
        )

    image, filters = (1, 4, 5, 5), (6, 2, 3, 3)
    assert holds("Conv", {"group": 2}, image, filters, (6,))
    assert not holds("Conv", {}, image, filters)
    assert not holds("Conv", {"group": 2}, image, filters, (2,))
    assert not holds("Conv", {"group": 2, "kernel_shape": (1, 1)}, image, filters)
    assert not holds("Conv", {"group": 2}, image, filters, out=(1, 6, 0, 3))
    assert not holds("Conv", {"group": 2, "dilations": (3, 1)}, image, filters)
    heads = (2, 3, 4, 5)
    assert holds("Attention", {}, heads, heads, heads, (4, 4))
    assert not holds("Attention", {}, heads, heads, (2, 3, 6, 5))
    assert not holds("Attention", {"q_num_heads": 2, "kv_num_heads": 2}, (1, 2, 6), (1, 2, 6), (1, 2, 5))
    assert not holds("LayerNormalization", {"axis": -1}, (2, 3), (2, 3))
    assert not holds("MaxPool", {"kernel_shape": (2, 2), "pads": (2, 0, 0, 0)}, image)


def test_assembly_refuses_what_has_no_types():
    assembly = Assembly()
    x = assembly.input("x", TensorType(FLOAT, (2, 3)))
    with pytest.raises(TypeInferenceError):
        assembly.apply("MatMul", "", {}, [x, x])


def test_variables_for_all_inputs_get_several():
    class Summed(Rule):
        """Sum(xs) = Sum(xs, 0), c not read"""

        def source(self, op, xs: Values, c: Const):
            return op.Add(op.Sum(xs), c)

        def target(self, op, m, xs, c):
            return op.Sum(*xs, c)

    counts = {len(graph.order()[0].inputs) for graph in (i.graph for i in instances(Summed(), full=False))}
    assert {2, 3} <= counts


def test_command_prints_a_table_and_instances(capsys):
    assert main(["--summary", "DropCast", "DropIdentity"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table] == ["rule", "DropIdentity", "DropCast"]
    assert int(table[1].split()[1]) >= FEWEST
    assert main(["DropIdentity"]) == 0
    assert "Identity(x)" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["NoSuchRule"])
    assert "there is no rule NoSuchRule" in capsys.readouterr().err
