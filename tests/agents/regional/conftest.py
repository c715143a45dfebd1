"""Fixtures of tests of the agent `regional`."""

import pytest

from tests.agents.toys import RULES


@pytest.fixture(autouse=True)
def families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that go on from each other are of different families, as they are in the library."""
    for rule in RULES:
        monkeypatch.setattr(type(rule), "family", rule.name, raising=False)
