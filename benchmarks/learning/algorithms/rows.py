"""The results file of the tabular benchmark: a row for each training, written as soon as it has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from agents.tabular.game import Floats
from graph_rewrite.errors import UserError
from graph_rewrite.system.atomic_files import replace_file

FORMAT, VERSION = "rewritegym.learning", 1
RowKey = tuple[str, str, int]
"""Algorithm, split and seed."""


@dataclass(frozen=True)
class ScoredWindows:
    """The windows that a split holds out, and the largest share of each that can be saved."""

    name: str
    windows: tuple[int, ...]
    families: tuple[str, ...]
    """The family of each window."""
    optimum: tuple[float, ...]


@dataclass(frozen=True)
class TrainingRow:
    """One training, and what its policy saves in each held-out window of its split."""

    algorithm: str
    split: str
    seed: int
    steps: int
    """Steps of training; 0 for baselines."""
    seconds: float
    """CPU seconds of training, without scoring."""
    train_score: float
    """Mean normalised score in the windows of training."""
    returns: tuple[float, ...]
    curve: tuple[tuple[int, float, tuple[float, ...]], ...]
    """Steps, seconds and returns, from before training to its end; empty for baselines."""
    commit: str = ""

    @property
    def key(self) -> RowKey:
        """Algorithm, split and seed: one training of a results file."""
        return self.algorithm, self.split, self.seed


@dataclass
class LearningResults:
    """All that a results file holds."""

    head: dict[str, Any]
    """Settings, table, machine and versions."""
    splits: tuple[ScoredWindows, ...]
    rows: list[TrainingRow] = field(default_factory=list)

    def of(self, algorithm: str, split: str | None = None) -> list[TrainingRow]:
        """Return the rows of an algorithm by split and seed, of one split or of all."""
        found = [row for row in self.rows if row.algorithm == algorithm and split in (None, row.split)]
        return sorted(found, key=lambda row: row.key)

    @property
    def algorithms(self) -> list[str]:
        """The algorithms that have a row, in the order of the file."""
        return list(dict.fromkeys(row.algorithm for row in self.rows))

    @property
    def done(self) -> set[RowKey]:
        """The trainings that are done."""
        return {row.key for row in self.rows}

    def write(self, path: Path) -> None:
        """Write the file, as a whole.

        Raises:
            OSError: it cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = ",\n".join(json.dumps(asdict(row), separators=(",", ":")) for row in self.rows)
        head = {"format": FORMAT, "version": VERSION, **self.head, "splits": [asdict(split) for split in self.splits]}
        text = json.dumps(head, indent=1)
        replace_file(path, f'{text[:-2]},\n "rows": [\n{rows}\n]\n}}\n')

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a results file.

        Raises:
            UserError: there is none, or it is no results file of this benchmark.
        """
        try:
            values = json.loads(path.read_text("utf-8"))
            known = values.pop("format") == FORMAT and values.pop("version") <= VERSION
            splits = tuple(ScoredWindows(**_tuples(split)) for split in values.pop("splits"))
            rows = [_row(row) for row in values.pop("rows")]
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}: this is no results file of the tabular benchmark: {error!r}") from error
        if not known:
            raise UserError(f"{path}: this is no results file of the tabular benchmark, or one of a later version")
        return cls(values, splits, rows)

    def check(self, head: Mapping[str, Any], splits: Sequence[ScoredWindows], path: Path) -> None:
        """Refuse to go on with a file of other settings.

        Args:
            head: `settings` and `table` of the trainings that are to be added.

        Raises:
            UserError: the file was made with other settings, another table or other splits.
        """
        same = [name for name in ("settings", "table") if self.head.get(name) != head[name]]
        wrong = same or ([] if self.splits == tuple(splits) else ["splits"])
        if wrong:
            raise UserError(
                f"{path} was made with other {' and '.join(wrong)}: name another file with --out, or remove this one"
            )


def rounded(returns: Floats) -> tuple[float, ...]:
    """Return shares as the file holds them."""
    return tuple(np.round(returns, 4).tolist())


def _row(values: Mapping[str, Any]) -> TrainingRow:
    curve = tuple((int(steps), float(seconds), tuple(returns)) for steps, seconds, returns in values["curve"])
    return TrainingRow(**{**_tuples(values), "curve": curve})


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_pairs(values))


def _pairs(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        yield name, tuple(value) if isinstance(value, list) else value
