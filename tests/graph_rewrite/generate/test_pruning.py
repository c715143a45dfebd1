"""The generator's expressions and pruning, which loses nothing."""

from graph_rewrite.generate.expressions import canonical, to_side, to_substitution
from graph_rewrite.generate.prune import (
    Implication,
    is_rearrangement,
    is_renaming,
    renaming_groups,
    smaller,
    without_renamings,
)
from graph_rewrite.terms.conditions import derive
from graph_rewrite.terms.substitution import Operand
from tests.graph_rewrite.generate.small_expressions import add, concat, matmul, relu, split


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


def test_expressions_and_sides_are_the_same_data():
    side = to_side((split(relu(concat(0, 1)), 0), split(relu(concat(0, 1)), 1)))
    assert [node.op for node in side.terms] == ["concat", "relu", "split"]
    assert side.outputs == (Operand(2, 0), Operand(2, 1))
