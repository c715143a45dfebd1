"""Mutants that earlier searches found, by subprogram: a file each in the user's cache folder.

What is read may come from anywhere. Programs are checked as they are read, and a proof comes before each becomes a
rule. A file that cannot be read is moved aside; a folder that cannot be written turns the store off.
"""

from __future__ import annotations

import json
import os
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph_rewrite.errors import UserError
from graph_rewrite.ir.hashing import digest
from graph_rewrite.latency.cache import default_cache_path
from graph_rewrite.mutate.mutant_rules.program_json import checked, program_from_json, program_to_json
from graph_rewrite.mutate.program import Subprogram, TensorProgram
from graph_rewrite.system.atomic_files import replace_file

FORMAT = 3
"""Version of the files, and of the generator: what it found before it could do more is looked for again."""
MOST_ENTRIES = 5000
"""Subprograms that are kept; those that were found first go first."""
_CORRUPT = ".corrupt"


@dataclass(frozen=True, slots=True)
class StoredPrograms:
    """Programs that are equal to a subprogram, each with the rounds in which it was made, and the seconds in which they
    were found; infinite where the search came to its end."""

    programs: tuple[tuple[TensorProgram, tuple[dict[str, Any], ...]], ...]
    seconds: float


class MutantStore:
    """Found programs by subprogram and by what their choice depends on.

    Args:
        context: the machine, the deployment and the limits of the search, as a text.
        folder: of the files; by default in the user's cache folder.
    """

    def __init__(self, context: str, folder: str | os.PathLike[str] | None = None) -> None:
        self.context = context
        self.folder = Path(folder) if folder is not None else default_cache_path().with_name("mutants")
        self._is_off = False

    def get(self, sub: Subprogram) -> StoredPrograms | None:
        """Return what was found for a subprogram; None where nothing was looked for."""
        path = self.path(sub)
        try:
            text = path.read_text("utf-8")
            return checked("entry", lambda: _read(json.loads(text), sub))
        except OSError:
            return None
        except (UserError, UnicodeDecodeError) as error:
            self._move_aside(path, error)
            return None

    def put(self, sub: Subprogram, found: StoredPrograms) -> None:
        """Keep what was found for a subprogram."""
        if self._is_off:
            return
        programs = [{"program": program_to_json(made), "rounds": list(rounds)} for made, rounds in found.programs]
        seconds = found.seconds if found.seconds < float("inf") else None
        entry = {"format": FORMAT, "context": self.context, "seconds": seconds, "programs": programs}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.path(sub), json.dumps(entry))
            self._tidy()
        except OSError as error:
            self._is_off = True
            warnings.warn(f"mutants are not kept: {self.folder}: {error.strerror}", RuntimeWarning, stacklevel=2)

    def path(self, sub: Subprogram) -> Path:
        """Return the file of a subprogram."""
        key = json.dumps([FORMAT, program_to_json(sub.program), sub.shapes, sorted(sub.constants), self.context])
        return self.folder / f"{digest(key)[:32]}.json"

    def _move_aside(self, path: Path, why: Exception) -> None:
        aside = path.with_name(path.name + _CORRUPT)
        with suppress(OSError):
            os.replace(path, aside)
            warnings.warn(f"stored mutants were corrupt ({why}): moved to {aside}", RuntimeWarning, stacklevel=3)

    def _tidy(self) -> None:
        files = sorted(self.folder.glob("*.json*"), key=lambda path: path.stat().st_mtime)
        for path in files[: max(0, len(files) - MOST_ENTRIES)]:
            path.unlink(missing_ok=True)


def _read(values: Any, sub: Subprogram) -> StoredPrograms:
    if values["format"] != FORMAT:
        raise ValueError(f"format {values['format']!r}")
    programs: list[tuple[TensorProgram, tuple[dict[str, Any], ...]]] = []
    for entry in values["programs"]:
        made, rounds = program_from_json(entry["program"]), entry["rounds"]
        if made.count != sub.program.count or len(made.outputs) != len(sub.program.outputs):
            raise ValueError("a program of another subprogram")
        if not isinstance(rounds, list) or not all(isinstance(each, dict) for each in rounds):
            raise ValueError("rounds that are no objects")
        programs.append((made, tuple(rounds)))
    seconds = values["seconds"]
    return StoredPrograms(tuple(programs), float("inf") if seconds is None else float(seconds))
