"""Some states of the table of windows that ships."""

from __future__ import annotations

from itertools import islice

import pytest

from agents.effects.samples import StateSample, samples_of
from envs.window import WindowTable
from envs.window.table import SHIPPED


@pytest.fixture(scope="session")
def table() -> WindowTable:
    """The table that ships."""
    return WindowTable.load(SHIPPED)


@pytest.fixture(scope="session")
def samples(table: WindowTable) -> list[StateSample]:
    """Its first states."""
    return list(islice(samples_of(table), 80))
