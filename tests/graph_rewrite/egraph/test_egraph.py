"""Hash-consing, congruence, forks: against congruence closure by brute force."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.egraph import EGraph
from graph_rewrite.egraph.structure import LIVE
from graph_rewrite.ir.attributes import operator_signature
from graph_rewrite.ir.constants import from_array
from graph_rewrite.ir.tensor_type import TensorType
from tests.graph_rewrite.egraph.algebra import TERM, add_term, find_term, term_egraph

NAMES = ("a", "b", "c")


def consistent(egraph: EGraph) -> None:
    """Assert the invariants after a rebuild, computed anew from the storage."""
    keys: dict[tuple[object, ...], int] = {}
    count = 0
    for cls in egraph.classes():
        for node in egraph.members(cls):
            operator, args = egraph.operator(node), egraph.args(node)
            count += 1
            assert egraph.node_state[node] == LIVE
            assert egraph.find(node) == cls
            assert egraph.node_args[node] == args, "operands are canonical"
            if operator.kind != "constant":
                key = (operator.number, *(sorted(args) if operator.commutative else args))
                assert keys.setdefault(key, node) == node, "no two e-nodes are equal"
                assert egraph.find_equal(node) == node
            for arg in args:
                assert arg < 0 or node in egraph.parents(arg)
    assert count == egraph.size


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_equivalences_are_those_of_congruence_closure(data: st.DataObject) -> None:
    leaves = st.sampled_from(NAMES)
    terms = data.draw(
        st.lists(
            st.recursive(leaves, lambda t: st.tuples(st.just("f"), t) | st.tuples(st.just("g"), t, t), max_leaves=5),
            min_size=3, max_size=6,
        )
    )  # fmt: skip
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(terms), st.sampled_from(terms)), max_size=4))
    egraph = term_egraph(*terms)
    for left, right in pairs:
        egraph.union(add_term(egraph, left), add_term(egraph, right))
    egraph.rebuild()
    consistent(egraph)

    everything = list(dict.fromkeys(sub for term in terms for sub in subterms(term)))
    group = {term: i for i, term in enumerate(everything)}

    def merge(left: object, right: object) -> bool:
        a, b = group[left], group[right]
        group.update({term: a for term, name in group.items() if name == b})
        return a != b

    for left, right in pairs:
        merge(left, right)
    changed = True
    while changed:
        changed = False
        for left, right in itertools.combinations(everything, 2):
            if isinstance(left, tuple) and isinstance(right, tuple) and left[0] == right[0]:
                same = all(group[x] == group[y] for x, y in zip(left[1:], right[1:], strict=True))
                changed = (same and merge(left, right)) or changed
    for left, right in itertools.combinations(everything, 2):
        assert (find_term(egraph, left) == find_term(egraph, right)) == (group[left] == group[right])


def subterms(term: object) -> list[object]:
    return [term, *(sub for operand in term[1:] for sub in subterms(operand))] if isinstance(term, tuple) else [term]


def test_both_orders_of_a_commutative_operator_are_one_node() -> None:
    egraph = term_egraph(("Add", "a", "b"), ("Add", "b", "a"), ("Sub", "a", "b"), ("Sub", "b", "a"))
    assert egraph.roots[0] == egraph.roots[1]
    assert egraph.roots[2] != egraph.roots[3]


def test_forks_do_not_see_each_other() -> None:
    egraph = term_egraph(("f", "a"), ("f", "b"))
    left, right = egraph.fork(), egraph.fork()
    left.union(add_term(left, "a"), add_term(left, "b"))
    left.rebuild()
    add_term(right, ("g", "a", "b"))
    for graph in (egraph, left, right):
        consistent(graph)
    assert find_term(left, ("f", "a")) == find_term(left, ("f", "b"))
    assert find_term(right, ("f", "a")) != find_term(right, ("f", "b"))
    assert find_term(egraph, ("g", "a", "b")) is None
    assert (egraph.size, left.size, right.size) == (4, 3, 5)
    add_term(egraph, ("h", "a"))
    assert find_term(left, ("h", "a")) is None
    assert find_term(right, ("h", "a")) is None


def test_types_that_differ_are_never_made_equal() -> None:
    egraph = EGraph()
    leaves = [egraph.operators.leaf(i, f"x{i}") for i in range(2)]
    (x,) = egraph.add(leaves[0], (), [TensorType(1, (2,))])
    (y,) = egraph.add(leaves[1], (), [TensorType(1, (3,))])
    with pytest.raises(ValueError, match=r"float\[2\] and float\[3\] cannot be equal"):
        egraph.union(x, y)


def test_what_reads_a_class_that_becomes_constant_becomes_constant() -> None:
    egraph = EGraph()
    (x,) = egraph.add(egraph.operators.leaf(0, "x"), (), [TensorType(1, (2,))])
    neg = egraph.operators.application("Neg", "", {}, operator_signature("Neg", "", {}))
    (y,) = egraph.add(neg, (x,), [TensorType(1, (2,))])
    (z,) = egraph.add(neg, (y,), [TensorType(1, (2,))])
    egraph.union(x, egraph.add_constant(from_array(np.array([1, 2], dtype=np.float32))))
    egraph.rebuild()
    constant = egraph.constant_of(y)
    assert constant is not None
    np.testing.assert_array_equal(constant.numpy(), [-1, -2])
    assert egraph.find(z) == egraph.find(x), "Neg(Neg(x)) is the constant that x is"
    consistent(egraph)


def test_an_application_has_one_class_per_output() -> None:
    egraph = EGraph()
    x, y = (egraph.add(egraph.operators.leaf(i, ""), (), [TERM])[0] for i in range(2))
    split = egraph.operators.application("Split", "", {}, "split", 2)
    first, second = egraph.add(split, (x,), [TERM, TERM]), egraph.add(split, (y,), [TERM, TERM])
    assert len({*first, *second}) == 4
    egraph.union(x, y)
    egraph.rebuild()
    assert [egraph.find(c) for c in first] == [egraph.find(c) for c in second]
    consistent(egraph)


def test_forks_are_cheap() -> None:
    egraph = term_egraph("a")
    term: object = "a"
    for i in range(1000):
        term = ("g", term, f"x{i}")
        add_term(egraph, ("f", f"x{i}"))
    cls = egraph.roots[0]
    operator = egraph.operators.application("h", "", {}, "h")
    while egraph.size < 2000:
        (cls,) = egraph.add(operator, (cls,), [TERM])
    taken = []
    for _ in range(20):
        started = time.process_time()
        egraph.fork()
        taken.append(time.process_time() - started)
    assert min(taken) < 0.005
