"""Huge pages (2 MiB) for the weights of models, where the system leaves the choice to programs.

A processor remembers where some thousand pages of memory lie. Weights in pages of 4 KiB exceed that soon, and each
further page costs a walk through the page tables: on a Zen 4 one thread reads 19 GB/s from small pages, 31 GB/s from
huge ones (`python -m benchmarks.latency.huge_pages`). Many Linux distributions hand out huge pages only to programs
that ask for them: mode `madvise` of Transparent Hugepage Support in the kernel's documentation.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

HUGE_BYTES = 2 << 20
"""Size of a huge page on x86-64, and on ARM with base pages of 4 KiB."""
TUNABLES = "GLIBC_TUNABLES"
"""The environment variable that glibc reads when a program starts."""
TUNABLE = "glibc.malloc.hugetlb=1"
"""Its setting that makes `malloc` ask for huge pages; glibc 2.34 and older ignore it."""

_TUNABLE_NAME = TUNABLE.partition("=")[0]
_MODES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAPS = Path("/proc/self/maps")
_SUMS = Path("/proc/self/smaps_rollup")
_COLLAPSE, _HUGEPAGE = 25, 14  # Values of madvise: MADV_COLLAPSE since Linux 6.1, MADV_HUGEPAGE since 2.6.38.


def mode() -> str:
    """Return `always`, `madvise` or `never`, as the system is set; `unknown` where it does not say."""
    try:
        text = _MODES.read_text()
    except OSError:
        return "unknown"
    return text.partition("[")[2].partition("]")[0] or "unknown"


def with_huge_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which programs ask for huge pages, where the mode is `madvise`. What it already says of
    them stays: `GLIBC_TUNABLES=glibc.malloc.hugetlb=0` keeps small pages."""
    known = environment.get(TUNABLES, "")
    if mode() != "madvise" or _TUNABLE_NAME in known:
        return dict(environment)
    return {**environment, TUNABLES: f"{known}:{TUNABLE}" if known else TUNABLE}


def are_asked_for() -> bool:
    """Return whether programs started `with_huge_pages` have to ask for huge pages, and do."""
    return mode() == "madvise" and TUNABLE in with_huge_pages(os.environ)[TUNABLES]


def huge_bytes() -> int:
    """Return the bytes of this process's memory that lie in huge pages; 0 where the system does not say."""
    try:
        lines = _SUMS.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHugePages:"))


def pages_of_children() -> str:
    """Return the pages that programs started `with_huge_pages` get: `huge` or `small`, or `unknown`."""
    if (found := mode()) == "madvise":
        return "huge" if are_asked_for() else "small"
    return {"always": "huge", "never": "small"}.get(found, "unknown")


@contextmanager
def new_memory_in_huge_pages() -> Iterator[None]:
    """Move what this process allocates inside the block, and still holds at its end, to huge pages.

    Nothing happens where the mode is not `madvise`, and a part that the system cannot move stays where it is.
    """
    if sys.platform != "linux" or mode() != "madvise" or _TUNABLE_NAME in os.environ.get(TUNABLES, ""):
        yield
        return
    before = _anonymous_memory()
    yield
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for begin, end in _without(_anonymous_memory(), before):
        begin, end = -(-begin // HUGE_BYTES) * HUGE_BYTES, end // HUGE_BYTES * HUGE_BYTES
        if begin < end and madvise(begin, end - begin, _COLLAPSE) != 0:
            madvise(begin, end - begin, _HUGEPAGE)  # the kernel moves it in time


Ranges = list[tuple[int, int]]


def _anonymous_memory() -> Ranges:
    """Return the ranges of addresses that belong to no file and can be written, in ascending order."""
    found = []
    for line in _MAPS.read_text().splitlines():
        addresses, rights, _offset, _device, inode, *name = line.split(maxsplit=5)
        if rights.startswith("rw") and inode == "0" and name in ([], ["[heap]"]):
            begin, _, end = addresses.partition("-")
            found.append((int(begin, 16), int(end, 16)))
    return found


def _without(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the parts of ranges that lie in none of the others; both are in ascending order and do not overlap."""
    found: Ranges = []
    for begin, end in ranges:
        for other_begin, other_end in others:
            if other_end <= begin or other_begin >= end:
                continue
            if begin < other_begin:
                found.append((begin, other_begin))
            begin = max(begin, other_end)
        if begin < end:
            found.append((begin, end))
    return found
