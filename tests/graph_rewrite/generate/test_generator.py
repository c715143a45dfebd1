"""The generator: every graph once, equations that hold, and pruning that loses nothing."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph_rewrite.generate import pipeline
from graph_rewrite.generate.cli import Generate, generate_rules
from graph_rewrite.generate.enumerate import WIDTH, Enumeration, Expressions
from graph_rewrite.generate.expressions import canonical, from_substitution, to_side, to_substitution
from graph_rewrite.generate.families import families
from graph_rewrite.generate.fingerprint import concatenate, enumerate_graphs
from graph_rewrite.generate.pairing import pair
from graph_rewrite.generate.prune import (
    Implication,
    is_rearrangement,
    is_renaming,
    renaming_groups,
    smaller,
    without_renamings,
)
from graph_rewrite.generate.work import GenerationSettings
from graph_rewrite.rules.substitutions.rule_files import read_rules
from graph_rewrite.terms.conditions import derive
from graph_rewrite.terms.json_form import from_json, to_json
from graph_rewrite.terms.semantics import TermType, evaluate, output_types, random_arrays
from graph_rewrite.terms.substitution import INPUT, SIGNATURES, Operand, Side, Substitution, term

SHIPPED = Path(pipeline.__file__).parents[1] / "rules" / "substitutions" / "generated.json"
OPS = ("ewadd", "matmul", "relu", "transpose")


def matrices(*ops, inputs=2):
    (family, *_) = families(ops)
    assert family.name == "matrices"
    return replace(family, inputs=family.inputs[:inputs], test_inputs=family.test_inputs[:inputs])


def relu(a):
    return ("relu", (), (a,), 0)


def add(a, b):
    return ("ewadd", (), tuple(sorted((a, b), key=str)), 0)


def matmul(a, b, activation="none"):
    return ("matmul", (("activation", activation),), (a, b), 0)


def concat(a, b, axis=0):
    return ("concat", (("axis", axis), ("rank", 2)), (a, b), 0)


def split(a, index, axis=0):
    return ("split", (("axis", axis),), (a,), index)


def nodes_of(code, leaves, instances):
    """The set of expressions that a code stands for: two codes of the same graph have the same set."""
    tensors = [f"x{i}" for i in range(leaves)]
    found = set()
    for start in range(0, len(code), WIDTH):
        instance = instances[code[start]]
        operands = [tensors[i] for i in code[start + 1 : start + 1 + instance.inputs]]
        text = f"{instance.op}{instance.params}({','.join(sorted(operands) if instance.commutes else operands)})"
        found.add(text)
        tensors += [f"{text}.{i}" for i in range(SIGNATURES[instance.op].outputs)]
    return frozenset(found)


def test_no_graph_is_built_twice_and_each_is_built():
    """Against all graphs by brute force: every sequence of operators, as sets of expressions."""
    family = matrices("ewadd", "relu", "transpose")
    built = [nodes_of(code, 2, family.operators) for code, _ in _graphs(family, 3)]
    assert len(built) == len(set(built))

    def grow(graph, tensors, left):
        if left == 0:
            return
        for instance in family.operators:
            for a in tensors:
                for b in tensors if instance.inputs == 2 else [None]:
                    if a == b:
                        continue
                    operands = [a] if b is None else sorted((a, b))
                    node = f"{instance.op}{instance.params}({','.join(operands)})"
                    if node not in graph and frozenset((*graph, node)) not in every:
                        every.add(frozenset((*graph, node)))
                        grow((*graph, node), [*tensors, f"{node}.0"], left - 1)

    every = set()
    # Two levels: with the third, graphs with more than two outputs and those that go on from x = x'' are left out.
    grow((), ["x0", "x1"], 2)
    assert {graph for graph in built if len(graph) <= 2} == every


def _graphs(family, max_ops):
    return Enumeration(Expressions(family, family.inputs, 1, max_ops)).graphs()


def test_graphs_go_on_from_nothing_redundant():
    family = matrices("transpose", "relu")
    texts = {max(graph, key=len) for graph in (nodes_of(c, 2, family.operators) for c, _ in _graphs(family, 3))}
    assert any(text.count("transpose") == 2 for text in texts)
    assert not any("transpose" in text and text.count("transpose") > 2 for text in texts)


def test_shards_are_all_graphs():
    family = matrices(*OPS)
    whole = sum(1 for _ in _graphs(family, 2)) + 3  # and the two inputs, one by one and as a pair
    assert sum(len(enumerate_graphs(family, first, 2, 1)) for first in range(len(family.operators))) == whole


def test_paired_graphs_compute_the_same_and_well_known_equations_are_among_them():
    family = matrices("ewadd", "matmul", "transpose", "imatmul", inputs=3)
    graphs = concatenate([enumerate_graphs(family, i, 3, 5) for i in range(len(family.operators))])
    paired = pair(family, graphs, 5)
    transposed = ("transpose", (("perm", (1, 0)),), (matmul(1, 0),), 0)
    perm = lambda a: ("transpose", (("perm", (1, 0)),), (a,), 0)  # noqa: E731
    for known in (
        ((matmul(matmul(0, 1), 2),), (matmul(0, matmul(1, 2)),)),
        ((matmul(add(0, 1), 2),), (add(matmul(0, 2), matmul(1, 2)),)),
        ((matmul(perm(0), perm(1)),), (transposed,)),
        ((perm(perm(0)),), (0,)),
        ((matmul(0, ("imatmul", (), (), 0)),), (0,)),
    ):
        assert canonical(known) in paired.equations
    types = {i: TermType((4, 4)) for i in range(3)}
    arrays = random_arrays(types, np.random.default_rng(9))
    for equation in paired.equations[::7]:
        substitution = to_substitution(equation)
        before, after = evaluate(substitution.source, arrays, types), evaluate(substitution.target, arrays, types)
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)


def test_canonical_form_is_the_same_for_names_direction_and_order():
    equation = ((split(relu(concat(0, 1)), 0), split(relu(concat(0, 1)), 1)), (relu(0), relu(1)))
    renamed = ((split(relu(concat(5, 3)), 1), split(relu(concat(5, 3)), 0)), (relu(3), relu(5)))
    assert canonical(equation) == canonical(renamed) == canonical(equation[::-1])
    sums = ((add(add(7, 8), 9),), (add(7, add(8, 9)),))
    assert canonical(sums) == canonical(((add(2, add(0, 1)),), (add(1, add(0, 2)),)))
    assert canonical(((matmul(0, 1),), (matmul(1, 0),))) != canonical(((matmul(0, 1),), (matmul(0, 0),)))


def test_renamings_are_left_out_and_others_kept():
    general = canonical(((matmul(matmul(0, 1), 2),), (matmul(0, matmul(1, 2)),)))
    special = canonical(((matmul(matmul(0, 1), 0),), (matmul(0, matmul(1, 0)),)))
    other = canonical(((relu(matmul(0, 1)),), (matmul(0, 1, "relu"),)))
    assert is_renaming(general, special)
    assert not is_renaming(special, general)

    def kept(known):
        groups = renaming_groups([special, other, general])
        return {e for group in groups for e in without_renamings((group, known))}

    assert kept({}) == {general, other}
    # One that needs a condition leaves out only what holds nowhere else.
    needs = {general: (("one group",), frozenset({"one group"}))}
    assert kept(needs) == {general, other, special}
    assert kept({**needs, special: ((), frozenset({"one group"}))}) == {general, other}


def test_common_subgraphs_become_inputs_and_common_roots_are_taken_off():
    associative = canonical(((matmul(matmul(0, 1), 2),), (matmul(0, matmul(1, 2)),)))
    under_relu = ((relu(associative[0][0]),), (relu(associative[1][0]),))
    assert associative in smaller(under_relu)
    with_product = ((matmul(matmul(relu(0), 1), 2),), (matmul(relu(0), matmul(1, 2)),))
    assert associative in smaller(with_product)
    # What is left without the common root, x0 x1 = x0 and x2 = x1 x2, does not hold.
    assert [derive(to_substitution(found), 2).holds for found in smaller(associative)] == [False]


def test_two_steps_imply_and_a_third_does_not():
    implication = Implication()
    implication.add(canonical(((matmul(matmul(0, 1), 2),), (matmul(0, matmul(1, 2)),))))
    left = matmul(matmul(matmul(0, 1), 2), 3)
    right = matmul(0, matmul(1, matmul(2, 3)))
    allowed = lambda before, after: True  # noqa: E731
    assert implication.implies(((left,), (right,)), (), allowed)
    assert not implication.implies(((left,), (right,)), (), lambda before, after: False)
    assert not implication.implies(((matmul(left, 4),), (matmul(0, matmul(1, matmul(2, matmul(3, 4)))),)), (), allowed)
    assert not implication.implies(((add(0, 1),), (matmul(0, 1),)), (), allowed)


def test_an_equation_under_conditions_implies_nothing_that_is_under_none():
    implication = Implication()
    implication.add(((relu(relu(0)),), (relu(0),)), ("one group",))
    inner = ((matmul(relu(relu(0)), 1),), (matmul(relu(0), 1),))
    assert not implication.implies(inner, (), lambda before, after: True)
    assert implication.implies(inner, ("one group",), lambda before, after: True)


def test_merging_is_not_implied_by_splitting():
    """No rule joins any two tensors there are: from (relu(x0), relu(x1)) no step leads towards the merge."""
    implication = Implication()
    implication.add(((split(concat(0, 1), 0), split(concat(0, 1), 1)), (0, 1)))
    implication.add(((relu(concat(0, 1)),), (concat(relu(0), relu(1)),)))
    halves = split(relu(concat(0, 1)), 0), split(relu(concat(0, 1)), 1)
    assert not implication.implies((halves, (relu(0), relu(1))), (), lambda before, after: True)
    assert implication.implies(((halves[0],), (relu(0),)), (), lambda before, after: True)


def test_longer_paths_leave_out_rearrangements_only():
    implication = Implication()
    implication.add(canonical(((relu(concat(0, 1)),), (concat(relu(0), relu(1)),))))
    allowed = lambda before, after: True  # noqa: E731
    three = ((concat(relu(concat(relu(0), relu(1))), relu(2)),), (relu(relu(concat(0, 1))),))
    assert not implication.reaches(three, (), allowed)
    deep = ((relu(concat(concat(0, 1), concat(2, 3))),), (concat(*(concat(relu(a), relu(a + 1)) for a in (0, 2))),))
    assert not implication.implies(deep, (), allowed)
    assert implication.reaches(deep, (), allowed)
    assert is_rearrangement(deep)
    assert is_rearrangement(((add(0, 0),), (relu(0),)))
    assert not is_rearrangement(((add(matmul(0, 1), 1),), (matmul(relu(0), 1),)))
    assert not is_rearrangement(((matmul(matmul(0, 1), 2),), (matmul(0, matmul(1, 2)),)))


def test_images_and_weights_keep_their_places():
    family = next(f for f in families(("conv", "ewadd", "enlarge", "iconv")) if f.weights)
    weights = {*family.weights, len(family.inputs)}
    expressions = Expressions(family, family.inputs, 1, 2)
    found = 0
    for code, _ in Enumeration(expressions).graphs():
        instance = family.operators[code[0]]
        operands = code[1 : 1 + instance.inputs]
        if instance.op == "conv":
            image, weight = operands
            assert image not in weights
            assert weight in weights or weight == image
            found += 1
        elif instance.op == "enlarge":
            assert operands[0] in weights
        elif max(map(expressions.tensors.__getitem__, operands), key=lambda t: t.type.size).type.size > 1:
            assert len({operand in weights for operand in operands}) == 1
    assert found > 10


def test_json_round_trip_and_refusals():
    equation = ((split(relu(concat(0, 1)), 1),), (relu(1),))
    substitution = to_substitution(equation, ("one group",))
    assert from_json(json.loads(json.dumps(to_json(substitution)))) == substitution
    assert from_substitution(substitution) == equation
    data = to_json(substitution)
    for broken in ({}, {**data, "source": 3}, {**data, "target": {"terms": [["relu", [[4, 0]], {}]], "outputs": []}}):
        with pytest.raises(ValueError, match=r"substitution|operand"):
            from_json(broken)


def test_rules_are_the_directions_in_which_an_equation_applies():
    identity = Side((term("transpose", Operand(INPUT, 0), perm=(1, 0)),), (Operand(0),))
    assert len(pipeline.directions(Substitution(identity, Side((), (Operand(INPUT, 0),))))) == 1
    associative = to_substitution(((matmul(matmul(0, 1), 2),), (matmul(0, matmul(1, 2)),)))
    assert pipeline.directions(associative) == [associative, associative.reversed]
    sums = to_substitution(((add(add(0, 1), 2),), (add(0, add(1, 2)),)))
    assert pipeline.directions(sums) == [sums]


def test_generation_does_not_depend_on_processes_and_goes_on_after_an_interruption(tmp_path):
    plan = GenerationSettings(OPS, 2, 3)
    alone = pipeline.to_text(pipeline.generate(plan, tmp_path / "alone"))
    state = tmp_path / "interrupted"

    def stop(step, done, of):
        if step != "families of operators":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline.generate(plan, state, progress=stop)
    finished = {path: path.stat().st_mtime_ns for path in state.rglob("family-*")}
    assert finished
    assert pipeline.to_text(pipeline.generate(plan, state, processes=2)) == alone
    assert {path: path.stat().st_mtime_ns for path in state.rglob("family-*")} == finished


def test_the_command_writes_rules_that_hold(tmp_path, capsys):
    out = tmp_path / "rules.json"
    assert generate_rules(Generate(out=out, ops=",".join(OPS), max_ops=2, processes=1)) == 0
    assert "equal fingerprints" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [out]
    texts = {str(rule.substitution) for rule in read_rules(out)}
    assert "matmul(matmul(x0, x1), x2) = matmul(x0, matmul(x1, x2))" in texts
    assert "transpose(transpose(x0, perm=1x0), perm=1x0) = x0" in texts


@pytest.mark.parametrize(("change", "message"), [({"ops": "ewadd,nothing"}, "nothing"), ({"max_ops": 9}, "max-ops")])
def test_wrong_arguments_are_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        generate_rules(replace(Generate(out=tmp_path / "rules.json"), **change))
    assert list(tmp_path.iterdir()) == []


def test_shipped_rules_hold_at_shapes_that_were_not_used_to_find_them():
    rules = json.loads(SHIPPED.read_text())
    assert rules["table"]["rules, one per direction"] == len(rules["rules"]) > 100
    rng = np.random.default_rng(11)
    tried = 0
    for rule in rules["rules"][::17]:
        substitution = from_json(rule)
        numbers = sorted({*substitution.source.inputs, *substitution.target.inputs})
        for shape in ((5, 5), (6, 5, 5), (4, 4, 7, 7)):
            types = {i: TermType(shape) for i in numbers}
            if output_types(substitution.source, types) and output_types(substitution.target, types):
                arrays = random_arrays(types, rng)
                before = evaluate(substitution.source, arrays, types, seed=2)
                after = evaluate(substitution.target, arrays, types, seed=2)
                assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True)), rule["name"]
                tried += 1
    assert tried > 10


def test_expressions_and_sides_are_the_same_data():
    side = to_side((split(relu(concat(0, 1)), 0), split(relu(concat(0, 1)), 1)))
    assert [node.op for node in side.terms] == ["concat", "relu", "split"]
    assert side.outputs == (Operand(2, 0), Operand(2, 1))
