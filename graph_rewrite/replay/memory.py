"""Remembered results: what searches found, kept by the structure of the model, and tried first the next time.

Each result is a file of its own in the user's cache folder, written as a whole: a process that is killed leaves the old
file or the new one. A memory is a convenience, so no fault of it ends a run: what cannot be read is moved aside, and a
folder that cannot be written turns it off with a warning.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from graph_rewrite.errors import UserError
from graph_rewrite.latency import default_cache_path
from graph_rewrite.replay.recording import MOST_BYTES, Recording
from graph_rewrite.replay.remembered import NewerFormatError, RememberedResult, context_digest
from graph_rewrite.system.atomic_files import remove_unfinished, replace_file

MOST_ENTRIES = 200
"""Results that are kept; those that were not used for longest go first."""
MOST_FAILURES = 3
"""Times in a row that a result may not gain in a context before it is no longer tried there."""
ABANDONED_S = 3600.0
"""Age of an unfinished file from which its writer must have been killed."""

_CORRUPT = ".corrupt"


class ResultMemory:
    """Results by structural fingerprint and context, in a folder of files.

    Args:
        folder: of the files; by default in the user's cache folder.
        most: results that are kept.
        read_only: never change the folder, not even to move a corrupt file aside.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, most: int = MOST_ENTRIES, *, read_only: bool = False
    ) -> None:
        self.folder = Path(folder) if folder is not None else default_cache_path().with_name("results")
        self.most, self.read_only = most, read_only

    def recall(self, fingerprint: str, context: Mapping[str, Any], any_size: str = "") -> list[RememberedResult]:
        """Return what is remembered of models with this fingerprint: first the result of the same context, then those
        of others, then those of other sizes, each the latest used first. What did not gain comes after what did, and is
        left out where it failed `MOST_FAILURES` times in a row.

        Args:
            any_size: the fingerprint without sizes, to find results of the same architecture at other sizes too.
        """
        if not self.read_only:
            remove_unfinished(self.folder)
        found: list[tuple[tuple[bool, ...], RememberedResult]] = []
        for path in self._files():
            if not (path.name.startswith(f"{any_size[:16]}-") if any_size else f"-{fingerprint}-" in path.name):
                continue
            with suppress(OSError):  # another process may just have removed it
                result = self._read(path)
                if result is None or (failures := result.failures_in(context)) >= MOST_FAILURES:
                    continue
                is_same_size = result.recording.fingerprint == fingerprint
                if is_same_size or (any_size and result.recording.fingerprint_any_size == any_size):
                    same = is_same_size and dict(result.context) == dict(context)
                    order = (failures > 0, not same, not is_same_size)
                    found.append((order, replace(result, same_context=same)))
        return [result for _, result in sorted(found, key=lambda pair: pair[0])]

    def remember(self, result: RememberedResult) -> bool:
        """Keep a result. Of two in the same context the faster is kept, by what was measured when it was found; the
        same rewrites count as they were measured last, and one that has failed since gives way. Return False where the
        folder does not allow it, or a later version of RewriteGym has kept a result of the same context there.

        An earlier result that stays counts as found in the longer time of the two searches: the later one found nothing
        better.
        """
        path = self.path_of(result)
        known: RememberedResult | None = None
        try:
            known = self._known(path)
        except NewerFormatError:
            return False
        except OSError:
            pass
        stays = (
            known is not None
            and known.recording.fingerprint == result.recording.fingerprint
            and known.speedup > result.speedup
            and not known.has_rewrites_of(result)
            and not known.failures_in(result.context)
        )
        if known is not None and stays:
            result = replace(known, seconds=max(known.seconds, result.seconds))
        return self._write(path, result)

    def used(self, result: RememberedResult, context: Mapping[str, Any]) -> None:
        """Note that a result gained in a context, so that it is kept longer, and earlier failures there are
        forgotten."""
        path = self.path_of(result)
        if result.failures_in(context):
            here = context_digest(context)
            failures = {name: count for name, count in result.failures.items() if name != here}
            self._write(path, replace(result, failures=failures))
        with suppress(OSError):
            if not self.read_only:
                os.utime(path)

    def corrected(self, result: RememberedResult, speedup: float) -> None:
        """Note what a result gains now, measured in its own context as carefully as when it was found."""
        self._write(self.path_of(result), replace(result, speedup=speedup, path=()))

    def failed(self, result: RememberedResult, context: Mapping[str, Any]) -> None:
        """Note that a result did not gain when it was tried in a context."""
        failures = {**result.failures, context_digest(context): result.failures_in(context) + 1}
        path = self.path_of(result)
        if path.exists():  # another process may have removed it, and a result of another memory is none of this one
            self._write(path, replace(result, failures=failures))

    def _write(self, path: Path, result: RememberedResult) -> bool:
        if self.read_only:
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps(result.to_json()))
            self._tidy()
        except OSError as error:
            self._warn(f"the result is not remembered: {self.folder} cannot be written ({error.strerror})")
            return False
        return True

    def path_of(self, result: RememberedResult) -> Path:
        """Return the file of a result."""
        return self.folder / file_name(result.recording, result.context)

    def _files(self) -> list[Path]:
        """Return the files of results, the latest used first."""
        return [path for _, path in sorted(self._dated("*.json"), key=lambda entry: -entry[0])]

    def _dated(self, pattern: str) -> Iterator[tuple[float, Path]]:
        with suppress(OSError):
            for path in self.folder.glob(pattern):
                with suppress(OSError):
                    yield path.stat().st_mtime, path

    def _read(self, path: Path) -> RememberedResult | None:
        try:
            return self._known(path)
        except NewerFormatError:
            return None

    def _known(self, path: Path) -> RememberedResult | None:
        if path.stat().st_size > MOST_BYTES:
            self._aside(path, "it is too large")
            return None
        try:
            result = RememberedResult.from_json(json.loads(path.read_text(encoding="utf-8")))
        except NewerFormatError:
            raise
        except (UserError, ValueError, RecursionError) as error:
            self._aside(path, str(error))
            return None
        return result

    def _aside(self, path: Path, why: str) -> None:
        if self.read_only:
            return
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


def file_name(recording: Recording, context: Mapping[str, Any]) -> str:
    """Return the name of the file of a result: the architecture, its sizes, the context."""
    return f"{recording.fingerprint_any_size[:16]}-{recording.fingerprint}-{context_digest(context)}.json"
