"""Models that fail in a worker."""

import pytest

from tests.graph_rewrite import faulty_models


@pytest.fixture
def contents() -> dict[str, bytes]:
    """Models that must fail, and how."""
    return faulty_models.contents()
