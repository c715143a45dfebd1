"""The layout that brings a value to the place of an output: solved for, and equal to trying all."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.generation.finish import Destinations, Target, solve
from graph_rewrite.mutate.generation.vocabulary import chains
from graph_rewrite.mutate.moves import Move, layout_of

SHAPE: Shape = (2, 3, 5, 8)
CHAINS = list(chains(SHAPE, (2, 3)))


def test_there_are_many_chains_and_one_is_found_among_them() -> None:
    assert len(CHAINS) > 50
    value = np.arange(1, 241).reshape(SHAPE)
    wanted = (Move(0, "outer", 3, "outer", 2),)
    target = Target(layout_of(wanted, SHAPE).numpy(value))
    found = solve(target, value, [()], 0.25, partial(Destinations, SHAPE, CHAINS))
    assert found is not None
    assert (found[0], found[2]) == (wanted, 1.0)


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_likely_chains_are_as_good_as_all(seed: int) -> None:
    """A window of a moved value, part of it spoilt: the best chain is the same, or one that is as good."""
    rng = np.random.default_rng(seed)
    value = rng.permutation(240).reshape(SHAPE) + 1
    moved = layout_of(CHAINS[int(rng.integers(0, len(CHAINS)))], SHAPE).numpy(value)
    cut = tuple(slice(int(rng.integers(0, 2)), None) for _ in moved.shape)
    output = np.where(rng.random(moved.shape) < 0.3, 1000, moved)[cut]
    target = Target(output if output.size else moved)
    every = solve(target, value, CHAINS, 0.3)
    likely = solve(target, value, (), 0.3, lambda: Destinations(SHAPE, CHAINS))
    assert (every is None) == (likely is None)
    if every is not None and likely is not None:
        assert likely[2] == every[2]


def test_chains_are_not_asked_for_where_no_layout_will_do() -> None:
    def never() -> Destinations:
        raise AssertionError("asked for chains")

    target = Target(np.arange(1, 241).reshape(SHAPE))
    assert solve(target, np.arange(1000, 1240).reshape(SHAPE), [()], 0.25, never) is None
    exact = solve(target, np.arange(1, 241).reshape(SHAPE), [()], 0.25, never)
    assert exact == ((), (), 1.0)
