"""Remembered results: what searches found, kept by the structure of the model, and tried first the next time.

Each result is a file of its own in the user's cache folder, written as a whole: a process that is killed leaves the old
file or the new one. A memory is a convenience, so no fault of it ends a run: what cannot be read is moved aside, and a
folder that cannot be written turns it off with a warning.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph_rewrite.errors import UserError
from graph_rewrite.ir.hashing import digest
from graph_rewrite.latency import default_cache_path
from graph_rewrite.replay.recording import MOST_BYTES, Recording
from graph_rewrite.system.atomic_files import replace_file

FORMAT = "rewritegym.result"
VERSION = 1
MOST_ENTRIES = 200
"""Results that are kept; those that were not used for longest go first."""
ABANDONED_S = 3600.0
"""Age of an unfinished file from which its writer must have been killed."""

_CORRUPT = ".corrupt"


@dataclass(frozen=True, slots=True)
class RememberedResult:
    """A result of an earlier search for a model of the same structure."""

    recording: Recording
    speedup: float
    seconds: float
    """Time limit of the search."""
    context: Mapping[str, Any]
    """What its latency and its choice depended on: machine, runtime, deployment, limits."""
    same_context: bool = True
    """Whether that is the same now; if not, it may or may not gain here."""
    path: tuple[tuple[int, float], ...] = ()
    """(steps applied, speed-up) of the graphs that were measured on the way to it."""

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {
            "format": FORMAT, "format_version": VERSION, "speedup": self.speedup, "seconds": self.seconds,
            "context": dict(self.context), "path": [list(point) for point in self.path],
            "actions": self.recording.to_json(),
        }  # fmt: skip


class ResultMemory:
    """Results by structural fingerprint and context, in a folder of files."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, most: int = MOST_ENTRIES) -> None:
        self.folder = Path(folder) if folder is not None else default_cache_path().with_name("results")
        self.most = most

    def recall(self, fingerprint: str, context: Mapping[str, Any]) -> list[RememberedResult]:
        """Return what is remembered of models with this fingerprint: first the result of the same context, then those
        of others, the latest used first."""
        files = [path for path in self._files() if path.name.startswith(f"{fingerprint}-")]
        found: list[RememberedResult] = []
        for path in files:
            with suppress(OSError):  # another process may just have removed it
                result = self._read(path, context)
                if result is not None and result.recording.fingerprint == fingerprint:
                    found.append(result)
        return sorted(found, key=lambda result: not result.same_context)

    def remember(self, result: RememberedResult) -> bool:
        """Keep a result, in the place of an earlier one of the same context. Return False where the folder does not
        allow it."""
        path = self._path(result.recording.fingerprint, result.context)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps(result.to_json()))
            self._tidy()
        except OSError as error:
            self._warn(f"the result is not remembered: {self.folder} cannot be written ({error.strerror})")
            return False
        return True

    def used(self, result: RememberedResult) -> None:
        """Note that a result was of use, so that it is kept longer."""
        with suppress(OSError):
            os.utime(self._path(result.recording.fingerprint, result.context))

    def _path(self, fingerprint: str, context: Mapping[str, Any]) -> Path:
        return self.folder / f"{fingerprint}-{digest(json.dumps(context, sort_keys=True))[:16]}.json"

    def _files(self) -> list[Path]:
        """Return the files of results, the latest used first."""
        return [path for _, path in sorted(self._dated("*.json"), key=lambda entry: -entry[0])]

    def _dated(self, pattern: str) -> Iterator[tuple[float, Path]]:
        with suppress(OSError):
            for path in self.folder.glob(pattern):
                with suppress(OSError):
                    yield path.stat().st_mtime, path

    def _read(self, path: Path, context: Mapping[str, Any]) -> RememberedResult | None:
        if path.stat().st_size > MOST_BYTES:
            self._aside(path, "it is too large")
            return None
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["format"] != FORMAT or values["format_version"] > VERSION:
                return None  # a newer version's
            speedup, seconds, known = float(values["speedup"]), float(values["seconds"]), dict(values["context"])
            if not (math.isfinite(speedup) and seconds >= 0.0):
                raise ValueError("its numbers make no sense")
            path_here = tuple((int(count), float(gain)) for count, gain in values.get("path", []))
            recording = Recording.from_json(values["actions"])
        except (UserError, ValueError, TypeError, KeyError, RecursionError) as error:
            self._aside(path, str(error))
            return None
        return RememberedResult(recording, speedup, seconds, known, known == dict(context), path_here)

    def _aside(self, path: Path, why: str) -> None:
        aside = path.with_name(path.name + _CORRUPT)
        with suppress(OSError):
            os.replace(path, aside)
            self._warn(f"a remembered result was corrupt ({why}): moved to {aside}")

    def _tidy(self) -> None:
        """Remove results that were not used for longest, and what killed processes left behind."""
        for path in [*self._files(), *(path for _, path in self._dated(f"*{_CORRUPT}"))][self.most :]:
            path.unlink(missing_ok=True)
        for changed, path in self._dated(".*.json.*"):
            if time.time() - changed > ABANDONED_S:
                path.unlink(missing_ok=True)

    def _warn(self, text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
