"""The numbers of sites and classes that `inspect` tells are those of the rewriter, though few nodes are matched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from graph_rewrite import Rewriter, all_rules, load
from graph_rewrite.inspection.matches import RuleSites, rule_sites
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.rewriting.sites import Site
from tests.graph_rewrite.inspection.models import layers, model_of, tensor, weight
from tests.strategies import varied_models

WIDTH = 8


class Watched(Rewriter):
    """A rewriter that counts the nodes at which rules are tried."""

    tried = 0

    def sites_at(self, graph: Graph, anchor: Node) -> tuple[tuple[Site, ...], frozenset[int]]:
        self.tried += 1
        return super().sites_at(graph, anchor)


def rewriter() -> Watched:
    return Watched(all_rules(), granularity="class", deployment=False)


def by_enumeration(graph: Graph) -> list[RuleSites]:
    sites, classes = Counter[str](), Counter[str]()
    for candidate in rewriter().candidates(graph):
        sites[candidate.rule] += candidate.count
        classes[candidate.rule] += 1
    return [RuleSites(rule, count, classes[rule]) for rule, count in sites.most_common()]


def agrees(model: onnx.ModelProto, rounds: int = 10) -> tuple[int, int]:
    """Compare with the enumeration of all candidates, and return the nodes tried and all nodes."""
    graph, watched = normalise(load(model))[0], rewriter()
    assert rule_sites(graph, watched, rounds) == by_enumeration(graph)
    return watched.tried, len(graph.nodes)


def chain(
    count: int, node: Callable[[str, str, int], Sequence[onnx.NodeProto]], *weights: onnx.TensorProto
) -> onnx.ModelProto:
    """`count` links from x to y; `node` makes the nodes of one, from one value to another."""
    nodes = [
        made for i in range(count) for made in node(f"h{i}" if i else "x", f"h{i + 1}" if i + 1 < count else "y", i)
    ]
    return model_of(nodes, [tensor("x", 4, WIDTH)], [tensor("y", 4, WIDTH)], weights)


def add(other: Callable[[int], str]) -> Callable[[str, str, int], Sequence[onnx.NodeProto]]:
    return lambda before, after, i: [helper.make_node("Add", [before, other(i)], [after])]


class TestFewNodesAreMatched:
    def test_layers_with_weights_of_their_own(self) -> None:
        tried, nodes = agrees(layers(100))
        assert nodes == 302
        assert tried < 90

    def test_sums_with_biases_of_their_own(self) -> None:
        tried, nodes = agrees(chain(300, add(lambda i: f"b{i}"), *(weight(f"b{i}", WIDTH, seed=i) for i in range(300))))
        assert nodes == 300
        assert tried < 60

    @pytest.mark.parametrize("shared", ["x", "b"])
    def test_sums_that_share_a_value(self, shared: str) -> None:
        tried, nodes = agrees(chain(300, add(lambda _: shared), *([weight("b", WIDTH)] if shared == "b" else [])))
        assert nodes == 300
        assert tried < 180

    @pytest.mark.parametrize("operators", [("Add", "Mul", "Sub"), ("Add", "Mul", "Sub", "Max", "Min", "Div", "Pow")])
    def test_one_value_for_many_operators(self, operators: tuple[str, ...]) -> None:
        """The readers of a hub of very many operators are not looked at: nodes are matched one by one."""

        def mixed(before: str, after: str, i: int) -> Sequence[onnx.NodeProto]:
            return [helper.make_node(operators[i % len(operators)], [before, "x"], [after])]

        tried, nodes = agrees(chain(350, mixed))
        assert (tried < 300) == (len(operators) == 3)
        assert nodes == 350

    def test_numbers_that_all_layers_share(self) -> None:
        def scaled(before: str, after: str, i: int) -> Sequence[onnx.NodeProto]:
            return [helper.make_node("Mul", [before, "half"], [f"s{i}"]), helper.make_node("Tanh", [f"s{i}"], [after])]

        tried, nodes = agrees(chain(100, scaled, numpy_helper.from_array(np.float32(0.5), "half")))
        assert nodes == 200
        assert tried < 90


class TestDifferences:
    """One place among many that are alike otherwise is told apart."""

    @pytest.mark.parametrize("special", [np.zeros(WIDTH), np.ones(WIDTH), np.eye(WIDTH)[0]])
    def test_a_bias_of_other_elements(self, special: np.ndarray) -> None:
        biases = [weight(f"b{i}", WIDTH, seed=i) for i in range(80)]
        biases[40] = numpy_helper.from_array(special.astype(np.float32), "b40")
        agrees(chain(80, add(lambda i: f"b{i}"), *biases))

    @pytest.mark.parametrize("rounds", [2, 10])
    def test_what_differs_further_away_than_the_surroundings_reach(self, rounds: int) -> None:
        def gelu(before: str, after: str, i: int) -> Sequence[onnx.NodeProto]:
            names = [f"{name}{i}" for name in "debam"]
            d, e, b, a, m = names
            return [
                helper.make_node("MatMul", [before, f"w{i}"], [b]), helper.make_node("Div", [b, "root"], [d]),
                helper.make_node("Tanh" if i == 20 else "Erf", [d], [e]), helper.make_node("Add", [e, "one"], [a]),
                helper.make_node("Mul", [b, a], [m]), helper.make_node("Mul", [m, "half"], [after]),
            ]  # fmt: skip

        numbers = {"root": 2.0**0.5, "one": 1.0, "half": 0.5}
        constants = [numpy_helper.from_array(np.float32(value), name) for name, value in numbers.items()]
        agrees(chain(40, gelu, *constants, *(weight(f"w{i}", WIDTH, WIDTH, seed=i) for i in range(40))), rounds)

    def test_an_identity_among_matrices(self) -> None:
        weights = [weight(f"w{i}", WIDTH, WIDTH, seed=i) for i in range(60)]
        weights[30] = numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32), "w30")
        agrees(chain(60, lambda b, a, i: [helper.make_node("MatMul", [b, f"w{i}"], [a])], *weights))

    def test_two_equal_weights_among_others(self) -> None:
        weights = [weight(f"w{i}", WIDTH, WIDTH, seed=min(i, 58)) for i in range(60)]
        agrees(chain(60, lambda b, a, i: [helper.make_node("MatMul", [b, f"w{i}"], [a])], *weights))

    def test_an_output_in_the_middle(self) -> None:
        model = layers(60)
        model.graph.output.append(tensor("m30", 4, WIDTH))
        agrees(model)

    def test_parallel_branches_that_cross(self) -> None:
        """Sum and product of the same two values in every pair but one, where they are of two pairs."""
        nodes, ends = [], []
        for i in range(40):
            other = {20: 21, 21: 20}.get(i, i)
            nodes += [helper.make_node("Exp", ["x"], [f"e{i}"]), helper.make_node("Mul", [f"e{i}", f"b{i}"], [f"p{i}"])]
            ends.append(helper.make_node("Add", [f"e{other}", f"p{i}"], [f"y{i}"]))
        agrees(
            model_of(
                [*nodes, *ends], [tensor("x", WIDTH)], [tensor(f"y{i}", WIDTH) for i in range(40)],
                [weight(f"b{i}", WIDTH, seed=i) for i in range(40)],
            )
        )  # fmt: skip


@pytest.mark.parametrize("rounds", [2, 4, 10])
@settings(max_examples=25)
@given(model=varied_models(), data=st.data())
def test_copies_of_random_models(rounds: int, model: onnx.ModelProto, data: st.DataObject) -> None:
    """Rules look further than two rounds reach: there nodes are matched one by one."""
    agrees(side_by_side(model, data.draw(st.integers(2, 4)), same_weights=data.draw(st.booleans())), rounds)


def side_by_side(model: onnx.ModelProto, copies: int, *, same_weights: bool) -> onnx.ModelProto:
    """Return copies of a model as one, each with inputs of its own, and with weights of its own or the same ones."""
    result, rng = onnx.ModelProto(), np.random.default_rng(0)
    result.CopyFrom(model)
    result.ClearField("graph")
    result.graph.name = "copies"
    for number in range(copies):
        one = onnx.compose.add_prefix(model, f"copy{number}_").graph
        for initializer in one.initializer:
            array = numpy_helper.to_array(initializer)
            if number and not same_weights and array.dtype.kind == "f" and len(np.unique(array)) > 2:
                fresh = rng.standard_normal(array.shape).astype(array.dtype)
                initializer.CopyFrom(numpy_helper.from_array(fresh, initializer.name))
        for field in ("node", "initializer", "input", "output"):
            getattr(result.graph, field).extend(getattr(one, field))
    return result
