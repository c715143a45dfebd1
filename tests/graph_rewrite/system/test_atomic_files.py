"""Files are replaced as a whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph_rewrite.system.atomic_files import replace_file


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
