"""Fixtures: a planted table, and a policy trained on few windows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.universal.trainer import WindowTrainer, WindowTrainingOptions
from envs.window import WindowTable
from envs.window.table import SHIPPED
from tests.agents.universal.planted_table import CONFIG, FAMILIES, planted


@pytest.fixture(scope="session")
def shipped() -> WindowTable:
    """The table that ships."""
    return WindowTable.load(SHIPPED)


@pytest.fixture(scope="session")
def table(shipped: WindowTable) -> WindowTable:
    """The planted table."""
    return planted(shipped)


@pytest.fixture(scope="session")
def options(table: WindowTable) -> WindowTrainingOptions:
    """A training on few windows of it."""
    families = {window.family for window in table.windows}
    return WindowTrainingOptions(table, "planted", tuple(sorted(families - set(FAMILIES))))


@pytest.fixture(scope="session")
def trained(options: WindowTrainingOptions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of such a training."""
    folder = tmp_path_factory.mktemp("universal")
    trainer = WindowTrainer(options, CONFIG, folder)
    trainer.run()
    trainer.close()
    return folder
