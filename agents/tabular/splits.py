"""Splits of a table's windows by family of networks: some families are held out of training as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.window.table import WindowTable
from envs.window.table_env import WindowTableEnv
from graph_rewrite.errors import UserError

HELD_OUT = ("branches", "mobilenet", "recurrent", "resnet", "vit")
"""Families that the fixed split holds out of the table that ships: two of convolutions, a mobile one, an encoder and a
recurrent one. They have a fifth of the windows."""
FIXED = "fixed"
"""Name of that split."""


@dataclass(frozen=True, slots=True)
class FamilySplit:
    """Windows to train in, and windows of other families to score in, by their numbers in the table."""

    name: str
    families: tuple[str, ...]
    """Families that are held out."""
    train: tuple[int, ...]
    held_out: tuple[int, ...]


def fixed_split(table: WindowTable, families: Sequence[str] = HELD_OUT) -> FamilySplit:
    """Return the split that holds out some families.

    Raises:
        UserError: an unknown family, or one side has no window in which several chains were timed.
    """
    if not families:
        raise UserError("name at least one family that is held out of training")
    train = WindowTableEnv(table, without=families).windows
    return FamilySplit(FIXED, tuple(families), train, WindowTableEnv(table, families=families).windows)


def rotated_splits(table: WindowTable, folds: int) -> list[FamilySplit]:
    """Return splits that hold out each family once, a part of the families at a time.

    Args:
        folds: parts into which the families are divided; as many as there are families leave out one at a time.

    Raises:
        UserError: there are fewer than two families, or `folds` is below two or above their number.
    """
    chosen = WindowTableEnv(table).windows
    families = sorted({table.windows[number].family for number in chosen})
    if not 2 <= folds <= len(families):
        raise UserError(f"the {len(families)} families can be divided into 2 to {len(families)} folds, not {folds}")
    found = []
    for fold in range(folds):
        split = fixed_split(table, families[fold::folds])
        found.append(FamilySplit(f"fold{fold}", split.families, split.train, split.held_out))
    return found
