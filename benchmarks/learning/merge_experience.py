"""Merge stores and exports of experience into one export for the repository, and say what it holds.

    python -m benchmarks.learning.merge_experience OLD.jsonl.xz store.sqlite3 --model zoo://resnext50 --out new.jsonl.xz

Searches of files know no architecture. Here a model without a name gets that of a model with the same fingerprint: one
of the other sources, one that has a known result, or one of `--model`, which is opened. So families of networks stay
together in cross validation. Sources are only read.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import tyro

from agents.core.paths import known_results
from graph_rewrite import zoo
from graph_rewrite.errors import UserError
from graph_rewrite.experience.exchange import StoredRows, exported, needed, rows_of
from graph_rewrite.experience.records import Label, LabelRow, SharedPart, canonical, complete
from graph_rewrite.replay.fingerprint import fingerprint
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.commands import run_command
from graph_rewrite.task.models import open_model


@dataclass(frozen=True)
class Arguments:
    """Merge stores and exports of experience into one export."""

    sources: tyro.conf.Positional[tuple[Path, ...]]
    """Stores and exports; the first is what the others are added to."""
    out: Path = Path("build/experience.jsonl.xz")
    """The export."""
    model: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A model of the zoo that a source searched as a file; may be repeated."""


def names_in(rows: StoredRows) -> dict[str, tuple[str, str]]:
    """Return URI and family of the named models of some rows, by their fingerprints."""
    bodies = [json.loads(part.text) for part in rows.parts if part.kind == "model"]
    return {body["fingerprint"]: (body["uri"], body["family"]) for body in bodies if body["family"]}


def names_of_known_results(folder: Path) -> dict[str, tuple[str, str]]:
    """Return URI and family of the models of the zoo that have a known result, by their fingerprints."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        recorded = json.loads(path.read_text("utf-8"))["actions"]
        if family := zoo.family_of(recorded["model"]):
            found[recorded["fingerprint"]] = (recorded["model"], family)
    return found


def named(rows: StoredRows, names: Mapping[str, tuple[str, str]]) -> StoredRows:
    """Return rows whose models have the names of those with the same fingerprint, where they have none."""
    renamed: dict[str, str] = {}
    parts = {part.id: part for part in rows.parts}

    def replaced(part: SharedPart, changes: Mapping[str, Any]) -> SharedPart:
        new = SharedPart(part.kind, canonical({**json.loads(part.text), **changes}))
        renamed[part.id] = new.id
        return parts.setdefault(new.id, new)

    for part in rows.parts:
        if part.kind == "model":
            body = json.loads(part.text)
            if not body["family"] and body["fingerprint"] in names:
                uri, family = names[body["fingerprint"]]
                replaced(part, {"uri": uri, "family": family})
    models = dict(renamed)
    for part in rows.parts:
        if part.kind == "place" and (model := models.get(json.loads(part.text)["model"])):
            replaced(part, {"model": model})
    labels = []
    for row in rows.labels:
        body = json.loads(row.text)
        place = renamed.get(body["place"])
        labels.append(LabelRow(canonical({**body, "place": place}), row.taken) if place else row)
    return needed(labels, parts.values(), rows.left_out)


def merged(all_rows: Sequence[StoredRows], names: Mapping[str, tuple[str, str]]) -> StoredRows:
    """Return the rows of several sources together, named; equal ones once."""
    known = {name: value for rows in all_rows for name, value in names_in(rows).items()}
    found = [named(rows, {**names, **known}) for rows in all_rows]
    labels: dict[str, LabelRow] = {}
    for row in (row for rows in found for row in rows.labels):
        first = labels.get(row.id)
        if first is None or row.taken < first.taken:
            labels[row.id] = row
    parts = {part.id: part for rows in found for part in rows.parts}
    return StoredRows(tuple(labels.values()), tuple(parts.values()), sum(rows.left_out for rows in found))


def description(labels: Iterable[Label]) -> dict[str, dict[str, Any]]:
    """Return the numbers of labels and of windows, and the median of half the 95% interval in shares of the window's
    time, by family; under `""` for all."""
    found: dict[str, list[Label]] = defaultdict(list)
    for label in labels:
        found[label.family].append(label)
        found[""].append(label)
    return {
        family: {
            "labels": len(group), "windows": len({label.window["fingerprint"] for label in group}),
            "half": round(median([label.half_of_window for label in group if label.ok] or [0.0]), 4),
        }
        for family, group in sorted(found.items())
    }  # fmt: skip


def labels_in(rows: StoredRows) -> list[Label]:
    """Return the labels of some rows with their parts."""
    return list(complete(iter(rows.labels), {part.id: json.loads(part.text) for part in rows.parts}))


def _run(arguments: Arguments) -> int:
    if not arguments.sources:
        raise UserError("name the stores or exports to merge")
    names = names_of_known_results(known_results())
    for uri in arguments.model:
        names[fingerprint(open_model(uri).graph)] = (uri, zoo.family_of(uri))
    sources = [rows_of(path) for path in arguments.sources]
    rows = merged(sources, names)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(arguments.out, exported(rows))
    report = {
        "file": str(arguments.out), "bytes": arguments.out.stat().st_size, "left_out": rows.left_out,
        "before": description(labels_in(sources[0])), "after": description(labels_in(rows)),
    }  # fmt: skip
    print(json.dumps(report, indent=1))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.merge_experience")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
