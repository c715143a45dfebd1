"""Reports of the commands that score what is learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graph_rewrite.system.atomic_files import replace_file


def tell_report(report: Any, out: Path | None) -> None:
    """Print a report as JSON, and write the same to a file if there is one, with the folders that it needs."""
    text = json.dumps(report, indent=1) + "\n"
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(out, text)
    print(text, end="")
