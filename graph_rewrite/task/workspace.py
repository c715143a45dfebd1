"""A folder for candidate models and shared weights, one per tree of processes, gone when its first process ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.util import Finalize
from pathlib import Path

from graph_rewrite.errors import MachineError
from graph_rewrite.latency import LockTimeout, MachineLock
from graph_rewrite.system.scratch import WORKSPACE

VARIABLE = WORKSPACE
WANTED_BYTES = 8 << 30
"""Free space that is enough for the candidates of any model in the zoo; the first place that has it is taken."""

_PREFIX = "rewritegym-work-"
_LOCK = "in-use.lock"


def workspace() -> Path:
    """Return the folder of this process tree, made when first asked for.

    It is removed when the process that made it ends, after Ctrl-C too; one that a killed process left behind, when the
    next one is made. A folder that the user names by REWRITEGYM_WORKSPACE is never removed.
    """
    named = os.environ.get(VARIABLE)
    if named:
        folder = Path(named)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    root = roomiest([Path(tempfile.gettempdir()), Path("/var/tmp"), Path.home() / ".cache", Path.cwd()])
    remove_abandoned(root)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    lock = MachineLock(folder / _LOCK, timeout_s=0.0)
    lock.__enter__()
    os.environ[VARIABLE] = str(folder)
    # Runs at the end of the main process and of multiprocessing's children alike; atexit does not run in the latter.
    Finalize(None, _remove, args=(folder, lock, os.getpid()), exitpriority=0)
    return folder


def roomiest(places: Iterable[Path], wanted: int = WANTED_BYTES) -> Path:
    """Return the first writable folder with `wanted` bytes free, or else the one with the most.

    Raises:
        MachineError: none of them is a writable folder.
    """
    usable = [place for place in places if place.is_dir() and os.access(place, os.W_OK)]
    if not usable:
        raise MachineError(f"no writable folder for temporary models; name one by setting {VARIABLE}")
    free = {place: shutil.disk_usage(place).free for place in usable}
    return next((place for place in usable if free[place] >= wanted), max(usable, key=lambda place: free[place]))


def remove_abandoned(root: Path) -> None:
    """Remove workspaces under `root` whose process has ended without doing so. Those of other users are left."""
    for lock in root.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(LockTimeout, OSError), MachineLock(lock, timeout_s=0.0):
            shutil.rmtree(lock.parent)


def _remove(folder: Path, lock: MachineLock, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
        lock.__exit__(None, None, None)
        if os.environ.get(VARIABLE) == str(folder):
            del os.environ[VARIABLE]
