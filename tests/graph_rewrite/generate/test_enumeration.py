"""The generator's enumeration: every graph once, and pairs of those that compute the same."""

import numpy as np

from graph_rewrite.generate.enumerate import WIDTH, Enumeration, Expressions
from graph_rewrite.generate.expressions import canonical, to_substitution
from graph_rewrite.generate.families import families
from graph_rewrite.generate.fingerprint import concatenate, enumerate_graphs
from graph_rewrite.generate.pairing import pair
from graph_rewrite.terms.semantics import TermType, evaluate, random_arrays
from graph_rewrite.terms.substitution import SIGNATURES
from tests.graph_rewrite.generate.small_expressions import OPS, add, matmul, matrices


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
