"""Compare candidates, keys, hashes and observations of all zoo models with the recorded ones."""

from __future__ import annotations

import pytest

from graph_rewrite import zoo
from graph_rewrite.operators.nchwc import block_size
from tests.golden.states import BLOCK, STATES, recorded, states_of
from tests.small_models import SMALL


def test_every_model_of_the_zoo_is_recorded() -> None:
    assert set(recorded()) == set(SMALL) == set(zoo.names())
    assert all(len(states) == STATES for states in recorded().values())


@pytest.mark.skipif(block_size() != BLOCK, reason=f"recorded where a block has {BLOCK} channels")
@pytest.mark.parametrize("name", sorted(SMALL))
def test_states_are_as_recorded(name: str) -> None:
    found, known = states_of(name, SMALL[name]), recorded()[name]
    for number, (state, wanted) in enumerate(zip(found, known, strict=True)):
        assert state["rules"] == wanted["rules"], f"state {number} offers other candidates"
        assert state == wanted, f"state {number}"
