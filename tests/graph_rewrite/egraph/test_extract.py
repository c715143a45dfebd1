"""Extraction against brute force, the published failure of the published cost function, and e-graphs in files."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.__main__ import main
from graph_rewrite.egraph.extract import METHODS, CostedEGraph, NoExtraction, extract
from graph_rewrite.egraph.extract.tree import tree_costs
from graph_rewrite.egraph.serialization import EGraphFileError, load_costed, save
from tests.graph_rewrite.egraph.algebra import term_egraph

FIGURE_9 = CostedEGraph([1.0] * 7, [(), (0,), (1,), (1,), (2, 3), (2, 3), (4, 5)], [[i] for i in range(7)], (6,))
"""Hartmann et al., PACT'24, appendix B: classes 1, 2(1), 3(2), 4(2), 5(3, 4), 6(3, 4), 7 = Concat(5, 6)."""


def random_egraph(rng: random.Random, nodes: int, classes: int, window: int, zero: bool = True) -> CostedEGraph:
    """A first member per class reads earlier classes near it; the others read any near it, so there are cycles."""
    members: list[list[int]] = [[] for _ in range(classes)]
    costs, children = list[float](), list[tuple[int, ...]]()
    for node in range(nodes):
        cls = node if node < classes else rng.randrange(classes)
        members[cls].append(node)
        costs.append(float(rng.randrange(0 if zero else 1, 6)))
        low, high = max(0, cls - window), cls if node < classes else min(classes, cls + window // 2 + 1)
        children.append(tuple(rng.randrange(low, high) for _ in range(rng.randrange(0, 4))) if high > low else ())
    return CostedEGraph(costs, children, members, (classes - 1, *((0,) if rng.random() < 0.2 else ())))


def best_by_brute_force(graph: CostedEGraph) -> float:
    choices = (dict(enumerate(members)) for members in itertools.product(*graph.classes))
    return min(graph.dag_cost(choice) for choice in choices if graph.cycle(choice) is None)


@given(st.randoms(use_true_random=False), st.integers(1, 6), st.integers(0, 7))
@settings(max_examples=120, deadline=None)
def test_the_order_of_the_methods_holds_and_the_best_is_optimal(rng: random.Random, classes: int, more: int) -> None:
    graph = random_egraph(rng, classes + more, classes, classes)
    found = {method: extract(graph, method) for method in METHODS}
    for method, extraction in found.items():
        assert extraction.acyclic, method
        assert graph.cycle(extraction.choice) is None
        assert set(extraction.choice) == set(graph.reachable(extraction.choice))
        assert all(node in graph.classes[cls] for cls, node in extraction.choice.items())
        assert extraction.cost == pytest.approx(graph.dag_cost(extraction.choice))
    assert found["ilp"].gap == 0
    assert found["ilp"].cost == pytest.approx(best_by_brute_force(graph))
    assert found["ilp"].cost <= found["dag"].cost <= min(found["shared"].cost, found["tree"].cost)


@pytest.mark.parametrize("seed", range(6))
def test_the_order_holds_on_larger_ones(seed: int) -> None:
    graph = random_egraph(random.Random(seed), 400, 150, 12, zero=seed % 2 == 0)
    found = {method: extract(graph, method, time_limit=5) for method in METHODS}
    assert all(extraction.acyclic for extraction in found.values())
    assert found["ilp"].cost <= found["dag"].cost <= min(found["shared"].cost, found["tree"].cost)
    assert found["ilp"].gap is not None
    assert found["dag"].cost <= 1.25 * found["ilp"].cost


@pytest.mark.parametrize("seed", range(5))
def test_a_gap_is_true_when_time_runs_out(seed: int) -> None:
    graph = random_egraph(random.Random(seed), 200, 80, 10, zero=False)
    best, hasty = extract(graph, "ilp"), extract(graph, "ilp", time_limit=1e-6)
    assert (best.gap, hasty.acyclic) == (0, True)
    assert hasty.gap is not None
    assert (hasty.cost - best.cost) / hasty.cost <= hasty.gap + 1e-9


def test_the_published_cost_function_overestimates_figure_9() -> None:
    found = {method: extract(FIGURE_9, method) for method in METHODS}
    assert {extraction.cost for extraction in found.values()} == {7}
    assert found["tree"].estimate == 15
    assert found["shared"].estimate == 8
    assert found["dag"].estimate == 7


def test_each_case_of_the_published_cost_function() -> None:
    """A skip connection: Add(conv2(conv1), conv1), in both orders of its operands."""
    for operands in ((2, 1), (1, 2)):
        graph = CostedEGraph([0.0, 3.0, 5.0, 1.0], [(), (0,), (1,), operands], [[0], [1], [2], [3]], (3,))
        assert extract(graph, "shared").estimate == 9
        assert extract(graph, "tree").estimate == 12


def test_sharing_that_pays_only_for_two_is_found() -> None:
    # Alone each of two operators is cheaper by its own operand (3 < 4); together they should share the dear one.
    costs = [4.0, 3.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    children = [(), (), (), (0,), (1,), (0,), (2,), (3, 4)]
    graph = CostedEGraph(costs, children, [[0], [1], [2], [3, 4], [5, 6], [7]], (5,))
    assert extract(graph, "tree").cost == 6
    assert extract(graph, "dag").cost == extract(graph, "ilp").cost == 4


def test_tree_costs_are_the_least_of_all_choices() -> None:
    for seed in range(30):
        graph = random_egraph(random.Random(seed), 9, 4, 4)
        least = [float("inf")] * len(graph.classes)
        for members in itertools.product(*graph.classes):
            choice = dict(enumerate(members))
            for cls in choice:
                whole = CostedEGraph(graph.costs, graph.children, graph.classes, (cls,))
                if whole.cycle(choice) is None:
                    least[cls] = min(least[cls], tree_cost(graph, choice, cls))
        assert tree_costs(graph).costs == least


def tree_cost(graph: CostedEGraph, choice: dict[int, int], cls: int) -> float:
    return graph.costs[choice[cls]] + sum(tree_cost(graph, choice, c) for c in graph.children[choice[cls]])


def test_a_deep_egraph_needs_no_recursion() -> None:
    depth = 1500
    graph = CostedEGraph(
        [1.0] * depth, [((i - 1), (i - 1)) if i else () for i in range(depth)], [[i] for i in range(depth)],
        (depth - 1,),
    )  # fmt: skip
    for method in ("tree", "dag", "ilp"):
        assert extract(graph, method, time_limit=5).cost == depth


def test_what_cannot_be_extracted_is_said() -> None:
    looping = CostedEGraph([1.0, 1.0], [(1,), (0,)], [[0], [1]], (0,))
    for method in METHODS:
        with pytest.raises(NoExtraction, match="root class 0 cannot be computed"):
            extract(looping, method)
    with pytest.raises(ValueError, match="must be finite and not negative"):
        CostedEGraph([-1.0], [()], [[0]], (0,))
    with pytest.raises(ValueError, match="there is no class 3"):
        CostedEGraph([1.0], [(3,)], [[0]], (0,))
    with pytest.raises(ValueError, match="no extraction method 'best'"):
        extract(FIGURE_9, "best")  # type: ignore[arg-type]


def test_files_come_back(tmp_path: Path) -> None:
    egraph = term_egraph(("Over", ("Times", "a", "two"), "two"))
    egraph.union(egraph.roots[0], egraph.members(egraph.roots[0])[0])
    path = save(egraph, tmp_path / "e.json")
    graph = load_costed(path)
    assert len(graph.costs) == egraph.size
    assert extract(graph, "tree").estimate == 5
    document = json.loads(path.read_text())
    entry = next(iter(document["nodes"].values()))
    assert set(entry) == {"op", "children", "eclass", "cost", "subsumed"}


def document() -> dict[str, Any]:
    return {
        "nodes": {
            "x": {"op": "x", "eclass": "1"},
            "f": {"op": "f", "children": ["x", "x"], "eclass": "2", "cost": 5},
            "g": {"op": "g", "children": ["x"], "eclass": "2", "cost": 3.5, "subsumed": False},
            "h": {"op": "h", "children": [], "eclass": "2", "cost": 0.5, "subsumed": True},
        },
        "root_eclasses": ["2"],
        "class_data": {"1": {"type": "int"}},
    }


@pytest.mark.parametrize("method", METHODS)
def test_the_command_extracts(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "e.json"
    path.write_text(json.dumps(document()))
    assert main(["egraph", "extract", str(path), "--method", method, "--time-limit", "5", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"cost", "acyclic", "gap", "seconds"}
    assert (printed["cost"], printed["acyclic"]) == (4.5, True)
    assert printed["gap"] == (0 if method == "ilp" else None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("nodes"), 'there is no object "nodes"'),
        (lambda d: d["nodes"].update(x=3), "e-node 'x' is not an object"),
        (lambda d: d["nodes"]["x"].pop("op"), "e-node 'x' has no \"op\""),
        (lambda d: d["nodes"]["x"].pop("eclass"), "e-node 'x' has no \"eclass\""),
        (lambda d: d["nodes"]["f"].update(children=["q"]), "has the child 'q', and there is no such e-node"),
        (lambda d: d["nodes"]["f"].update(children=3), "is not a list"),
        (lambda d: d["nodes"]["f"].update(cost="1"), "is not a number: '1'"),
        (lambda d: d["nodes"]["f"].update(cost=-1), "e-node f costs -1.0: costs must be finite and not negative"),
        (lambda d: d["nodes"]["f"].update(cost=float("nan")), "must be finite"),
        (lambda d: d.update(root_eclasses=[]), '"root_eclasses" names no class'),
        (lambda d: d.update(root_eclasses=["7"]), "names '7', and no e-node lies in such a class"),
        (lambda d: d["nodes"]["x"].update(children=["f"]), "cannot be computed"),
    ],
)
def test_a_broken_file_is_refused_with_a_reason(
    change: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, path = document(), tmp_path / "e.json"
    change(broken)
    path.write_text(json.dumps(broken))
    assert main(["egraph", "extract", str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_file_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EGraphFileError, match="cannot be read"):
        load_costed(tmp_path / "missing.json")
    (tmp_path / "half.json").write_text('{"nodes": {')
    with pytest.raises(EGraphFileError, match="is not JSON"):
        load_costed(tmp_path / "half.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    assert main(["egraph", "extract", str(tmp_path / "binary.json")]) == 2
    assert main(["egraph", "extract", str(tmp_path / "half.json"), "--time-limit", "0"]) == 2
    assert main(["egraph"]) == 2
    assert main(["egraph", "--help"]) == 0
    capsys.readouterr()
