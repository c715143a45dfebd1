"""Contestants that are the same model, run in the same way: one judgement holds for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from benchmarks.protocol.contestants import Contestant
from graph_rewrite.delivery.bundles.manifest import digest_of


def judged_as(contestants: Sequence[Contestant]) -> dict[str, str]:
    """Return, for the name of each contestant, that of the first one with the same files, options and environment: its
    own where it is the first. Those without a file are like no other.

    Raises:
        OSError: a file cannot be read.
    """
    first: dict[str, str] = {}
    return {one.name: first.setdefault(_content(one), one.name) for one in contestants}


def _content(contestant: Contestant) -> str:
    """Return a text that is the same where models are, and how they run."""
    path = contestant.path
    if path is None or not path.is_file():
        return contestant.name
    values = {**contestant.to_json(), "name": "", "path": ""}
    files = sorted(path.parent.glob(f"{path.name}*"))
    return json.dumps([values, [[file.name, digest_of(file)] for file in files]], sort_keys=True)
