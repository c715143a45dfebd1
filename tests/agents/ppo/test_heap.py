"""Freed memory stays with the process once a policy was made."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agents.ppo.heap import keep_freed_memory

TAKE_AND_FREE = """
import resource, sys
from agents.ppo.heap import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit("not glibc")
for turn in range(20):
    if turn == 5:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [b"x" * (size << 20) for size in (5, 6, 7, 8)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Page faults of taking and freeing 26 MB 15 times."""
    found = subprocess.run([sys.executable, "-c", TAKE_AND_FREE, how], capture_output=True, text=True, check=True)
    return int(found.stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_memory_that_is_taken_again_costs_no_page_faults() -> None:
    pages = 26 << 20 >> 12
    assert faults("keep") < pages
    assert faults("give back") > 5 * pages
