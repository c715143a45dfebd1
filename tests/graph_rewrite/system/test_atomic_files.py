"""Files are replaced as a whole or not at all."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph_rewrite.system.atomic_files import replace_file, unfinished_name


def test_text_bytes_and_chunks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content, held in (("é\n", "é\n".encode()), (b"\x00\r\n", b"\x00\r\n"), (iter([b"a", memoryview(b"b")]), b"ab")):
        replace_file(path, content)
        assert path.read_bytes() == held
        assert [*tmp_path.iterdir()] == [path]


def test_what_fails_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    path = tmp_path / "file"
    replace_file(path, "old")
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, broken())
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        replace_file(tmp_path / "nowhere" / "file", "text")


def test_others_may_read_it_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_what_killed_processes_left_goes_with_the_next_write(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    old = time.time() - 3600
    kept = {
        f".file.{child.pid}.00ff00ff": False,
        f".file.{os.getpid()}.00ff00ff": True,  # its process lives
        f".other.{child.pid}.00ff00ff": True,
        f".file.{child.pid}.notes": True,
    }
    for name in kept:
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (old, old))
    (tmp_path / f".file.{child.pid}.11ff11ff").write_text("written a moment ago, maybe by another machine")
    replace_file(tmp_path / "file", "new")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"file", f".file.{child.pid}.11ff11ff", *(name for name, stays in kept.items() if stays)}


def test_what_a_killed_process_of_this_machine_left_goes_at_once(tmp_path: Path) -> None:
    def killed() -> Iterator[bytes]:
        yield b"half"
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        replace_file(tmp_path / "file", killed())
    os.waitpid(child, 0)
    assert len([*tmp_path.iterdir()]) == 1
    mine = unfinished_name(tmp_path / "file")
    mine.write_text("by another thread of this process")
    replace_file(tmp_path / "file", "new")
    assert {*tmp_path.iterdir()} == {tmp_path / "file", mine}
