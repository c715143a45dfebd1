"""Mutants that come with RewriteGym: `python -m benchmarks.papers.shipped_mutants` chooses them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from graph_rewrite.mutate.mutant_rules.rule import MutantRule
from graph_rewrite.system.atomic_files import replace_file

FILE = Path(__file__).with_name("shipped.json")
"""The shipped mutants, as recordings embed them: `{"mutants": [...]}`."""


@cache
def shipped_mutants() -> tuple[MutantRule, ...]:
    """Return the mutants of `FILE`; none where there is no such file. They are not proved again: their digests tell
    that they are those that were.

    Raises:
        MalformedMutantError: an entry is no mutant, or not the one that its certificate is for.
    """
    return read_shipped(FILE)


def read_shipped(path: Path) -> tuple[MutantRule, ...]:
    """Return the mutants of a file that `write_shipped` wrote; none where there is no such file.

    Raises:
        MalformedMutantError: as `shipped_mutants`.
    """
    if not path.is_file():
        return ()
    return tuple(map(MutantRule.certified, json.loads(path.read_text("utf-8"))["mutants"]))


def write_shipped(path: Path, rules: Sequence[MutantRule]) -> None:
    """Write mutants into a file, a line each, in the order of their names."""
    entries = (
        {**rule.embedded, "certificate": {**rule.certificate, "digest": rule.digest}}
        for rule in sorted(rules, key=lambda rule: rule.name)
    )
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
    replace_file(path, f'{{"mutants": [\n{lines}\n]}}\n')
