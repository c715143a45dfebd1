"""Atomic replacement of files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def replace_file(path: Path, content: str | bytes | Iterable[bytes | memoryview]) -> None:
    """Write `content` (text as UTF-8) to `path` in one step: a reader finds the old file or the new one.

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
