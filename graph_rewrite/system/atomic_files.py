"""Atomic replacement of files and folders."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

ABANDONED_S = 60.0
"""Seconds without a write after which the unfinished file of a process that is gone is removed, where that process may
be one of another machine."""
_UNFINISHED = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.(?P<here>[0-9a-f]{8})?[0-9a-f]{8}")
_HERE, _SWAP = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of Linux."""


def replace_file(path: Path, content: str | bytes | Iterable[bytes | memoryview]) -> None:
    """Write `content` (text as UTF-8) to `path` in one step: a reader finds the old file or the new one. What a killed
    process left of an earlier attempt is removed.

    Raises:
        OSError: the folder is missing, not writable or full; the old file is still there then.
    """
    chunks = [content.encode()] if isinstance(content, str) else [content] if isinstance(content, bytes) else content
    temporary = unfinished_name(path)
    try:
        with temporary.open("xb") as stream:
            stream.writelines(chunks)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    remove_unfinished(path.parent, path.name)


def replace_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Make the folder `path` in one step, with what `fill` writes into a folder beside it: a reader finds the old
    folder or the new one, as a whole. What a killed process left of an earlier attempt is removed.

    Where the file system cannot exchange two folders, an old one is moved away first. A process that is killed between
    these two steps leaves it beside `path`, as `.<name>.<process>.<digits>`.

    Raises:
        OSError: the folder around it is missing, not writable or full; the old folder is still there then.
    """
    staged, aside = (unfinished_name(path) for _ in range(2))
    staged.mkdir()
    try:
        fill(staged)
        if not os.path.lexists(path):
            os.rename(staged, path)
        elif not _exchange(staged, path):
            os.rename(path, aside)
            try:
                os.rename(staged, path)
            except BaseException:  # Ctrl-C too
                os.rename(aside, path)
                raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)
        if os.path.lexists(path):
            shutil.rmtree(aside, ignore_errors=True)
    remove_unfinished(path.parent, path.name)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; return whether this system can."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # no Linux, or one from before 2018
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP) == 0)


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path, ignore_errors=True)
    else:
        os.unlink(entry.path)


def unfinished_name(path: Path) -> Path:
    """Return a name for a file that is to become `path`: hidden, unique, and telling which process writes it."""
    return path.with_name(f".{path.name}.{os.getpid()}.{_here()}{secrets.token_hex(4)}")


def remove_unfinished(folder: Path, name: str | None = None) -> None:
    """Remove unfinished files and folders, of `name` or of any, whose process is gone. A process of another machine or
    container, which may share the folder, is told by the age of what it writes."""
    begins = "." if name is None else f".{name}."  # many files lie beside those that every candidate shares
    with suppress(OSError):
        for entry in os.scandir(folder):
            if not entry.name.startswith(begins):
                continue
            match = _UNFINISHED.fullmatch(entry.name)
            if match is None or name not in (None, match["name"]) or _is_alive(int(match["process"])):
                continue
            if match["here"] == _here() or time.time() - entry.stat().st_mtime > ABANDONED_S:
                _remove(entry)


@cache
def _here() -> str:
    """Return 8 hexadecimal digits that stand for what process numbers hold in: this start of this machine, and the
    container."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:8]


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
