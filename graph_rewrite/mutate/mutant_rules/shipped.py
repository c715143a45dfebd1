"""Mutants that come with RewriteGym."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from graph_rewrite.mutate.mutant_rules.rule import MutantRule, read_mutant_rules

FILE = Path(__file__).with_name("shipped.json")
"""The shipped mutants, as recordings embed them: `{"mutants": [...]}`."""


@cache
def shipped_mutants() -> tuple[MutantRule, ...]:
    """Return the mutants of `FILE`, each proved again; none where there is no such file.

    Raises:
        MalformedMutantError: an entry is no mutant, or its proof fails.
    """
    if not FILE.is_file():
        return ()
    return read_mutant_rules(json.loads(FILE.read_text("utf-8"))["mutants"])
