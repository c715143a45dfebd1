"""Atomic replacement of files."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ABANDONED_S = 60.0
"""Seconds without a write after which the unfinished file of a process that is gone is removed."""


def replace_file(path: Path, content: str | bytes | Iterable[bytes | memoryview]) -> None:
    """Write `content` (text as UTF-8) to `path` in one step: a reader finds the old file or the new one. What a killed
    process left of an earlier attempt is removed.

    Raises:
        OSError: the folder is missing, not writable or full; the old file is still there then.
    """
    chunks = [content.encode()] if isinstance(content, str) else [content] if isinstance(content, bytes) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as stream:
            stream.writelines(chunks)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _remove_abandoned(path)


def _remove_abandoned(path: Path) -> None:
    """Remove unfinished files for `path` whose process is gone. A process of another machine, which may share the
    folder, is told by the age of what it writes."""
    named = re.compile(re.escape(f".{path.name}.") + r"(\d+)\.[0-9a-f]{8}")
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            match = named.fullmatch(entry.name)
            if match and not _is_alive(int(match[1])) and time.time() - entry.stat().st_mtime > ABANDONED_S:
                os.unlink(entry.path)


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # there, asking by a signal would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
