"""Exports of experience: one compressed file with the same bytes for the same rows, and their merging into stores.

The file is text, one JSON object a line, compressed by xz: a header, the parts by kind and id, the labels by place and
id, and a digest of all lines before it.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph_rewrite.errors import UserError
from graph_rewrite.experience.records import (
    PART_KINDS,
    SCHEMA_VERSION,
    Label,
    LabelRow,
    SharedPart,
    canonical,
    complete,
)
from graph_rewrite.experience.store import ExperienceStore, check_store, stored_rows
from graph_rewrite.system.atomic_files import replace_file

FORMAT = "rewritegym.experience"
PRESET = 6
"""Of xz: rows that are alike stand near each other, so that a larger window of the compressor finds little more."""
_XZ = b"\xfd7zXZ\x00"
_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Labels and parts, and the number of rows that were left out because they are damaged or lack a part."""

    labels: tuple[LabelRow, ...]
    parts: tuple[SharedPart, ...]
    left_out: int = 0


def rows_of(path: Path) -> StoredRows:
    """Return the rows of a store or of an export, which is only read.

    Raises:
        UserError: there is no such file, it is neither, it is damaged, or of a later version.
    """
    try:
        with path.open("rb") as stream:
            begin = stream.read(len(_SQLITE))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    if begin.startswith(_XZ):
        return _read_export(path)
    if begin != _SQLITE:
        raise UserError(f"{path}: this is neither a store of experience nor an export of one")
    return needed(*stored_rows(path))


def labels_of(path: Path) -> Iterator[Label]:
    """Yield the labels of a store or of an export with their parts, in the order of their ids.

    Raises:
        UserError: as for `rows_of`.
    """
    rows = rows_of(path)
    labels = sorted(rows.labels, key=lambda row: row.id)
    yield from complete(iter(labels), {part.id: json.loads(part.text) for part in rows.parts})


def needed(labels: Iterable[LabelRow], parts: Iterable[SharedPart], damaged: int = 0) -> StoredRows:
    """Return the labels that have all their parts, and the parts that some label needs."""
    by_id = {part.id: part for part in parts}
    kept, used, left_out = list[LabelRow](), dict[str, SharedPart](), damaged
    for row in labels:
        names = row.parts()
        place = by_id.get(names[0])
        if place is not None:
            body = json.loads(place.text)
            names += [body["window"], body["model"]]
        if all(name in by_id for name in names):
            kept.append(row)
            used.update((name, by_id[name]) for name in names)
        else:
            left_out += 1
    return StoredRows(tuple(kept), tuple(used.values()), left_out)


def export(source: Path, target: Path) -> StoredRows:
    """Write the rows of a store, or of an export, to a compressed file, as a whole or not at all; return them.

    Raises:
        UserError: the source cannot be read.
        OSError: the target cannot be written.
    """
    rows = rows_of(source)
    replace_file(target, exported(rows))
    return rows


def exported(rows: StoredRows) -> bytes:
    """Return the bytes of an export: the same for the same rows, in whatever order they come."""
    parts = sorted((part.kind, part.id, part.text) for part in rows.parts)
    labels = sorted(rows.labels, key=lambda row: (row.parts()[0], row.id))
    header = {"format": FORMAT, "schema": SCHEMA_VERSION, "labels": len(labels), "parts": len(parts)}
    lines = [
        canonical(header),
        *(f'{{"part":"{kind}","body":{text}}}' for kind, _, text in parts),
        *(f'{{"taken":{row.taken},"label":{row.text}}}' for row in labels),
    ]
    text = "".join(f"{line}\n" for line in lines)
    text += canonical({"digest": _digest(text)}) + "\n"
    return lzma.compress(text.encode(), preset=PRESET)


@dataclass(frozen=True, slots=True)
class MergedRows:
    """The outcome of a merge."""

    new_labels: int
    """Labels that were not in the store before."""
    left_out: int
    """Rows of the sources that are damaged or lack a part."""


def merge(sources: Iterable[Path], store: ExperienceStore) -> MergedRows:
    """Add the rows of stores or exports to a store. What is there already stays, so that merging again, or in another
    order, changes nothing.

    Raises:
        UserError: the store's file is something else, or cannot be written; or a source cannot be read: earlier ones
            are merged then.
    """
    check_store(store.path)
    new = left_out = 0
    for source in sources:
        rows = rows_of(source)
        new, left_out = new + store.merge(rows.labels, rows.parts), left_out + rows.left_out
    return MergedRows(new, left_out)


def _read_export(path: Path) -> StoredRows:
    try:
        text = lzma.decompress(path.read_bytes()).decode()
    except (lzma.LZMAError, UnicodeDecodeError, EOFError) as error:
        raise UserError(f"{path}: this export is damaged: {error}") from error
    content, _, last = text.rstrip("\n").rpartition("\n")
    try:
        header = json.loads(content.partition("\n")[0])
        if header.get("format") != FORMAT:
            raise UserError(f"{path}: this is no export of experience")
        if header.get("schema", 0) > SCHEMA_VERSION:
            raise UserError(
                f"{path} has version {header['schema']} of the schema, this RewriteGym reads up to {SCHEMA_VERSION}: "
                "update RewriteGym"
            )
        if json.loads(last).get("digest") != _digest(content + "\n"):
            raise UserError(f"{path}: this export is damaged: its digest differs")
        labels, parts = list[LabelRow](), list[SharedPart]()
        for line in content.split("\n")[1:]:
            _parse(json.loads(line), labels, parts)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: this is no export of experience: {error!r}") from error
    return needed(labels, parts)


def _parse(values: Mapping[str, Any], labels: list[LabelRow], parts: list[SharedPart]) -> None:
    if "label" in values:
        labels.append(LabelRow(canonical(values["label"]), int(values["taken"])))
    elif values["part"] in PART_KINDS:
        parts.append(SharedPart(values["part"], canonical(values["body"])))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
