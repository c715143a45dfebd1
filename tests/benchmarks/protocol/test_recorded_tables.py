"""The tables in the repository: no two seeds share a measurement, and no result of ours is surely slower."""

import json
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from benchmarks.protocol.summary import slower
from benchmarks.protocol.table import FIELDS, check_no_shared_measurement, own_key, table_files


def tables() -> dict[Path, list[dict[str, Any]]]:
    """Rows by file."""
    return {path: json.loads(path.read_text())["rows"] for path in table_files(RESULTS)}


def test_seeds_of_recorded_tables_share_no_measurement() -> None:
    for rows in tables().values():
        check_no_shared_measurement(rows)


def test_recorded_results_are_not_slower_than_their_originals() -> None:
    for path, rows in tables().items():
        assert all(set(FIELDS) <= set(row) for row in rows), path
    found = {(path.name, *own_key(row)) for path, rows in tables().items() for row in slower(rows)}
    assert found == set(), "each is a defect: mend it"
