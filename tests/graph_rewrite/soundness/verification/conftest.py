"""An empty folder of certificates."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from graph_rewrite.rules import certification as certificate


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(certificate, "FOLDER", tmp_path)
    certificate._index.cache_clear()
    yield tmp_path
    certificate._index.cache_clear()
