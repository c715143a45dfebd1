"""Folders of generated files on disk: made once, atomically, by one process at a time, and made again when damaged."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

_MANIFEST = "manifest.json"


def zoo_folder() -> Path:
    """``$REWRITEGYM_CACHE/zoo``, or ``~/.cache/rewritegym/zoo``; it can be deleted at any time.

    Symbolic links are resolved, because readers of external data may refuse to follow them.
    """
    base = os.environ.get("REWRITEGYM_CACHE") or "~/.cache/rewritegym"
    return Path(base).expanduser().resolve() / "zoo"


def cached_folder(key: str, create: Callable[[Path], None], description: Mapping[str, object]) -> Path:
    """The cached folder ``key``; ``create`` fills it when it is missing or a file in it has not the recorded size.

    Processes that want the same missing folder wait for the first of them. A complete folder is returned without any
    lock, so a cache that was filled elsewhere may be read-only.

    Args:
        key: name of the folder; whatever decides its content must have gone into it.
        create: writes the files into the empty folder that it is given.
        description: what the manifest says about the folder, for people.

    Raises:
        OSError: the cache cannot be written.
    """
    root = zoo_folder()
    folder = root / key
    if _is_complete(folder):
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{key}.lock"):
            if not _is_complete(folder):
                _replace_folder(folder, create, description)
    except OSError as error:
        advice = "free space there, or set REWRITEGYM_CACHE to another folder"
        message = f"cannot write the model cache {root}: {error}; {advice}"
        raise OSError(error.errno, message) from error
    return folder


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what the manifest of a cached folder says: its description, and under ``files`` the size of each file.

    Raises:
        OSError: there is none.
        ValueError: it is no JSON.
    """
    manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    return manifest


def _is_complete(folder: Path) -> bool:
    try:
        sizes = read_manifest(folder)["files"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False  # missing, or a manifest that is not what _replace_folder wrote


def _replace_folder(folder: Path, create: Callable[[Path], None], description: Mapping[str, object]) -> None:
    """Fill a temporary folder beside ``folder`` and rename it; the caller holds the lock of ``folder``."""
    prefix = f".{folder.name}-"
    for left_by_killed_process in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(left_by_killed_process, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=prefix) as temporary:
        new, old = Path(temporary) / "new", Path(temporary) / "old"
        new.mkdir()
        create(new)
        manifest = {**description, "files": {path.name: path.stat().st_size for path in sorted(new.iterdir())}}
        (new / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            folder.replace(old)
        new.replace(folder)
