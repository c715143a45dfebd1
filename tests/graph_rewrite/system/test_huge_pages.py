"""Huge pages: what children are told, and memory that is moved to them."""

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite.system import huge_pages
from graph_rewrite.system.huge_pages import HUGE_BYTES, TUNABLES, huge_bytes, new_memory_in_huge_pages, with_huge_pages


def set_mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    file = tmp_path / "enabled"
    file.write_text(text)
    monkeypatch.setattr(huge_pages, "_MODES", file)


@pytest.mark.parametrize(("text", "mode"), [
    ("always [madvise] never\n", "madvise"), ("[always] madvise never\n", "always"), ("nonsense", "unknown"),
])  # fmt: skip
def test_the_mode_is_the_one_in_brackets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, mode: str) -> None:
    set_mode(monkeypatch, tmp_path, text)
    assert huge_pages.mode() == mode


def test_a_system_without_huge_pages_has_no_mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huge_pages, "_MODES", tmp_path / "nowhere")
    assert huge_pages.mode() == "unknown"
    assert huge_pages.pages_of_children() == "unknown"
    assert with_huge_pages({"A": "b"}) == {"A": "b"}


def test_children_ask_for_huge_pages_where_they_must(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_mode(monkeypatch, tmp_path, "always [madvise] never")
    assert with_huge_pages({"A": "b"}) == {"A": "b", TUNABLES: "glibc.malloc.hugetlb=1"}
    other = "glibc.malloc.check=0"
    assert with_huge_pages({TUNABLES: other}) == {TUNABLES: f"{other}:glibc.malloc.hugetlb=1"}
    set_mode(monkeypatch, tmp_path, "[always] madvise never")
    assert with_huge_pages({"A": "b"}) == {"A": "b"}


def test_the_user_may_refuse_huge_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_mode(monkeypatch, tmp_path, "always [madvise] never")
    refused = {TUNABLES: "glibc.malloc.hugetlb=0"}
    assert with_huge_pages(refused) == refused
    monkeypatch.delenv(TUNABLES, raising=False)
    assert huge_pages.pages_of_children() == "huge"
    assert huge_pages.are_asked_for()
    monkeypatch.setenv(TUNABLES, refused[TUNABLES])
    assert huge_pages.pages_of_children() == "small"
    assert not huge_pages.are_asked_for()


@pytest.mark.skipif(huge_pages.mode() != "madvise", reason="the system grants huge pages always, or never")
def test_a_child_that_asks_gets_them() -> None:
    program = (
        "block = bytearray(64 << 20)\n"
        "print(next(l for l in open('/proc/self/smaps_rollup') if 'AnonHuge' in l).split()[1])"
    )
    asked = with_huge_pages({})
    found = [
        int(subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True).stdout)
        for env in (asked, {TUNABLES: "glibc.malloc.hugetlb=0"})
    ]
    if found[0] == 0:
        pytest.skip("this C library has no huge pages for malloc")
    assert found[0] >= 60 << 10
    assert found[1] == 0


@pytest.mark.skipif(huge_pages.mode() != "madvise", reason="the system grants huge pages always, or never")
def test_new_memory_is_moved_and_older_memory_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TUNABLES, raising=False)
    older = mmap.mmap(-1, 8 * HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    older.write(b"x" * len(older))
    before = huge_bytes()
    with new_memory_in_huge_pages():
        newer = mmap.mmap(-1, 16 * HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # In place, since a string of that length would be new memory as well.
        place = ctypes.c_char.from_buffer(newer)
        ctypes.memset(ctypes.addressof(place), ord("y"), len(newer))
    moved = huge_bytes() - before
    if moved == 0:
        pytest.skip("this kernel moves no memory at once")
    assert moved >= 14 * HUGE_BYTES  # both ends need not be aligned
    assert moved < 24 * HUGE_BYTES  # so the older memory is where it was
    assert newer[:] == b"y" * len(newer)
    assert older[:] == b"x" * len(older)


def test_an_exception_passes_and_nothing_is_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_mode(monkeypatch, tmp_path, "always [madvise] never")
    with pytest.raises(KeyError), new_memory_in_huge_pages():
        raise KeyError


@st.composite
def disjoint_ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Draw ranges in ascending order that do not overlap."""
    ends = sorted(draw(st.sets(st.integers(0, 40), max_size=10)))
    return list(zip(ends[::2], ends[1::2], strict=False))


@given(disjoint_ranges(), disjoint_ranges())
def test_a_difference_of_ranges_holds_what_is_only_in_the_first(
    ranges: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    def places(listed: list[tuple[int, int]]) -> list[int]:
        return [place for begin, end in listed for place in range(begin, end)]

    found = places(huge_pages._without(ranges, others))
    assert found == sorted(set(places(ranges)) - set(places(others)))
