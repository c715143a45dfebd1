"""The search core on a toy: from 1, add 1 or double, up to 12; 11 is worth most and no greedy step leads there."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.mcts.tree import (
    Edge,
    Score,
    Tree,
    TreeNode,
    backup,
    close,
    discard,
    expand,
    plant,
    puct,
    select,
    uct,
    widen,
)

GOLDEN = Path(__file__).parent / "golden_trees.json"
LIMIT = 12
PRIORS = {0: 0.25, 1: 0.75}


def value(state: int) -> float:
    return 10.0 if state == 11 else (state * 7 % 10) / 2


def successors(state: int) -> dict[int, int]:
    return {action: after for action, after in ((0, state + 1), (1, 2 * state)) if after <= LIMIT}


def node_of(state: int) -> TreeNode:
    actions = successors(state)
    return TreeNode(value(state), tuple(actions), {action: PRIORS[action] for action in actions})


def simulate(tree: Tree, *, score: Score, allowed: Callable[[int], int], depth: int = 20) -> Tree:
    path, key, action = select(tree=tree, score=score, allowed=allowed, depth=depth)
    if action is None:
        return backup(tree=tree, path=path, value=tree.nodes[key].known_value)
    after = successors(int(key))[action]
    tree = expand(tree=tree, parent=key, action=action, key=str(after), node=node_of(after))
    return backup(tree=tree, path=(*path, (key, action)), value=tree.nodes[str(after)].known_value)


def grow(simulations: int, score: Score, width: float = 1.0, depth: int = 20) -> Tree:
    tree = plant(key="1", node=node_of(1))
    for _ in range(simulations):
        tree = simulate(tree, score=score, allowed=lambda n: widen(visits=n, width=width, exponent=0.5), depth=depth)
    return tree


def as_json(tree: Tree) -> dict[str, Any]:
    """Nodes with value, visits and edges: [action, child, visits, total, best]."""
    return {
        "range": [tree.low, tree.high],
        "nodes": {
            key: {
                "value": node.value,
                "visits": node.visits,
                "edges": [[a, e.child, e.visits, round(e.total, 9), e.best] for a, e in node.edges.items()],
            }
            for key, node in tree.nodes.items()
        },
    }


SCORES = {"uct": uct(exploration=0.5, best_share=0.5), "puct": puct(exploration=1.25, best_share=0.0)}


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("simulations", [4, 16])
def test_golden_trees(name: str, simulations: int) -> None:
    """Recorded once, read by a person, and kept: `python -m tests.agents.mcts.test_tree` prints them anew."""
    golden = json.loads(GOLDEN.read_text())
    assert as_json(grow(simulations, SCORES[name])) == golden[f"{name}-{simulations}"]


def test_the_first_simulations_by_hand() -> None:
    """Values: 1 -> 3.5, 2 -> 2.0, 3 -> 0.5, 4 -> 4.0. Adding and doubling both lead from 1 to 2: a transposition."""
    score = uct(exploration=1.0, best_share=0.0)

    def all_at_once(visits: int) -> int:
        return 2

    tree = plant(key="1", node=node_of(1))
    tree = simulate(tree, score=score, allowed=all_at_once)
    assert tree.nodes["1"].edges == {0: Edge("2", 1, 2.0, 2.0)}
    tree = simulate(tree, score=score, allowed=all_at_once)
    assert tree.nodes["1"].edges == {0: Edge("2", 1, 2.0, 2.0), 1: Edge("2", 1, 2.0, 2.0)}
    assert len(tree.nodes) == 2
    tree = simulate(tree, score=score, allowed=all_at_once)  # a tie: the first edge, then the first action of 2
    assert tree.nodes["2"].edges == {0: Edge("3", 1, 0.5, 0.5)}
    assert tree.nodes["1"].edges[0] == Edge("2", 2, 4.0, 2.0)  # 2 itself is better than what lies behind it
    assert (tree.low, tree.high) == (0.5, 3.5)
    tree = simulate(tree, score=score, allowed=all_at_once)
    # ln(4)/2 < ln(4)/1: the less visited edge of 1; then the action of 2 that was not tried.
    assert tree.nodes["1"].edges[1] == Edge("2", 2, 6.0, 4.0)
    assert tree.nodes["2"].edges[1] == Edge("4", 1, 4.0, 4.0)


def test_scores_by_hand() -> None:
    node = TreeNode(1.0, (0, 1), {0: 0.2, 1: 0.8}, {0: Edge("a", 2, 3.0, 2.0), 1: Edge("b", 1, 1.0, 1.0)})
    tree = Tree("r", {"r": node}, 0.0, 2.0)
    upper = uct(exploration=0.7, best_share=0.0)(tree=tree, node=node, action=0)
    assert upper == pytest.approx(1.5 / 2 + 0.7 * math.sqrt(math.log(4) / 2))
    best = uct(exploration=0.0, best_share=1.0)(tree=tree, node=node, action=0)
    assert best == 1.0
    prior = puct(exploration=1.25, best_share=0.0)(tree=tree, node=node, action=1)
    assert prior == pytest.approx(0.5 + 1.25 * 0.8 * 2 / 2)


@pytest.mark.parametrize("score", SCORES.values(), ids=list(SCORES))
@pytest.mark.parametrize("width", [0.6, 1.0, 5.0])
def test_with_enough_simulations_every_state_is_found_and_the_root_closes(score: Score, width: float) -> None:
    tree = plant(key="1", node=node_of(1))
    for _ in range(300):
        known = len(tree.nodes)
        tree = simulate(tree, score=score, allowed=lambda n: widen(visits=n, width=width, exponent=0.5))
        tree = tree if len(tree.nodes) > known else close(tree=tree)
        if tree.root in tree.closed:
            break
    assert {int(key) for key in tree.nodes} == set(range(1, LIMIT + 1))
    assert tree.nodes["1"].known_value == 10.0
    assert not any(node.is_open for node in tree.nodes.values())


@settings(max_examples=40, deadline=None)
@given(
    simulations=st.integers(0, 60), exploration=st.floats(0.0, 3.0), share=st.floats(0.0, 1.0),
    width=st.floats(0.3, 3.0), depth=st.integers(1, 8), prior=st.booleans(),
)  # fmt: skip
def test_statistics_hold_together(
    simulations: int, exploration: float, share: float, width: float, depth: int, prior: bool
) -> None:
    score = (puct if prior else uct)(exploration=exploration, best_share=share)
    tree = grow(simulations, score, width, depth)
    assert tree.nodes["1"].visits <= 1 + simulations
    for key, node in tree.nodes.items():
        assert tuple(node.edges) == node.actions[: len(node.edges)]
        for action, edge in node.edges.items():
            assert edge.child == str(successors(int(key))[action])
            assert edge.visits >= 1
            assert value(int(edge.child)) <= edge.best <= 10.0
            assert edge.total / edge.visits <= edge.best + 1e-9
            assert tree.low <= edge.best <= tree.high
            assert edge.best in {value(state) for state in range(1, LIMIT + 1)}


def test_functions_leave_their_tree_as_it_was() -> None:
    tree = grow(10, SCORES["uct"])
    before = as_json(tree)
    simulate(tree, score=SCORES["uct"], allowed=lambda n: 2)
    close(tree=tree)
    open_key = next(key for key, node in tree.nodes.items() if node.is_open)
    discard(tree=tree, parent=open_key, action=tree.nodes[open_key].actions[-1])
    assert as_json(tree) == before


def test_a_path_never_enters_a_node_twice() -> None:
    """a <-> b, with a way out from b that is tried only once the widening allows it."""
    tree = plant(key="a", node=TreeNode(1.0, (0,)))
    tree = expand(tree=tree, parent="a", action=0, key="b", node=TreeNode(1.0, (0, 1)))
    tree = backup(tree=tree, path=(("a", 0),), value=1.0)
    tree = expand(tree=tree, parent="b", action=0, key="a", node=TreeNode(9.0))
    tree = backup(tree=tree, path=(("a", 0), ("b", 0)), value=1.0)
    assert tree.nodes["a"].value == 1.0
    found = select(tree=tree, score=SCORES["uct"], allowed=lambda n: 1, depth=9)
    assert found == ((("a", 0),), "b", 1)
    tree = discard(tree=tree, parent="b", action=1)
    assert select(tree=tree, score=SCORES["uct"], allowed=lambda n: 1, depth=9) == ((("a", 0),), "b", None)
    assert close(tree=tree).closed == {"a", "b"}


def test_the_depth_limit_ends_a_descent() -> None:
    tree = grow(30, SCORES["uct"], depth=2)
    assert {int(key) for key in tree.nodes} == {1, 2, 3, 4}


def test_only_the_next_action_can_be_opened() -> None:
    tree = plant(key="1", node=node_of(1))
    with pytest.raises(ValueError, match="action 1 is not the next one"):
        expand(tree=tree, parent="1", action=1, key="2", node=node_of(2))


@pytest.mark.parametrize(("visits", "allowed"), [(1, 2), (2, 3), (4, 4), (100, 20)])
def test_widening_opens_actions_little_by_little(visits: int, allowed: int) -> None:
    assert widen(visits=visits, width=2.0, exponent=0.5) == allowed


if __name__ == "__main__":
    print(json.dumps({f"{name}-{n}": as_json(grow(n, score)) for name, score in SCORES.items() for n in (4, 16)}))
