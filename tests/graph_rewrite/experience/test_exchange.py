"""Exports: the same bytes for the same rows; merging: the same store whatever comes first, and again."""

import lzma
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph_rewrite.errors import UserError
from graph_rewrite.experience import ExperienceStore
from graph_rewrite.experience.exchange import MergedRows, export, exported, labels_of, merge, needed, rows_of
from graph_rewrite.experience.statistics import statistics_of
from tests.graph_rewrite.experience.rows import made_up


def store_with(path: Path, numbers: list[int], **row: int) -> ExperienceStore:
    store = ExperienceStore(path)
    for number in numbers:
        label, parts = made_up(number, rules=("A", "B")[: 1 + number % 2], family="fg"[number % 2], **row)  # type: ignore[arg-type]
        store.append([label], parts)
    store.close()
    return store


def test_an_export_holds_all_and_is_the_same_whatever_the_order(tmp_path: Path) -> None:
    one = store_with(tmp_path / "1.sqlite3", [0, 1, 2, 3])
    other = store_with(tmp_path / "2.sqlite3", [3, 1, 0, 2])
    export(one.path, tmp_path / "1.xz")
    export(other.path, tmp_path / "2.xz")
    assert (tmp_path / "1.xz").read_bytes() == (tmp_path / "2.xz").read_bytes()
    assert list(labels_of(tmp_path / "1.xz")) == list(one.labels())
    export(tmp_path / "1.xz", tmp_path / "3.xz")
    assert (tmp_path / "3.xz").read_bytes() == (tmp_path / "1.xz").read_bytes()


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=2, max_size=3), order=st.randoms())
def test_merging_is_idempotent_and_knows_no_order(tmp_path: Path, parts: list[list[int]], order: object) -> None:
    files = []
    for number, numbers in enumerate(parts):
        files.append(tmp_path / f"{number}.xz")
        rows = [made_up(n, taken=100 + 7 * number) for n in numbers]
        files[-1].write_bytes(
            exported(needed([row for row, _ in rows], [part for _, shared in rows for part in shared]))
        )
    merged = []
    for name in ("one", "other"):
        store = ExperienceStore(tmp_path / f"{name}.sqlite3")
        store.path.unlink(missing_ok=True)
        order.shuffle(files)  # type: ignore[attr-defined]
        assert merge(files, store) == MergedRows(len({n for numbers in parts for n in numbers}), 0)
        assert merge(files, store) == MergedRows(0, 0)
        export(store.path, tmp_path / f"{name}.xz")
        merged.append((tmp_path / f"{name}.xz").read_bytes())
        store.close()
        for file in tmp_path.glob(f"{name}.sqlite3*"):
            file.unlink()
    assert merged[0] == merged[1]


def test_a_label_without_a_part_is_left_out_and_counted(tmp_path: Path) -> None:
    store = store_with(tmp_path / "x.sqlite3", [0, 1])
    label, parts = made_up(2)
    store.append([label], parts[1:3])  # as a crash between two tables would leave it, were they not one transaction
    lost, shared = made_up(3)
    store.append([lost], [part for part in shared if part.kind != "place"])
    rows = rows_of(store.path)
    assert (len(rows.labels), rows.left_out) == (3, 1)
    export(store.path, tmp_path / "x.xz")
    assert len(list(labels_of(tmp_path / "x.xz"))) == 3


@pytest.mark.parametrize("where", [10, 200, -40])
def test_a_damaged_export_is_refused_and_nothing_is_merged(tmp_path: Path, where: int) -> None:
    export(store_with(tmp_path / "x.sqlite3", [0, 1]).path, tmp_path / "x.xz")
    content = bytearray((tmp_path / "x.xz").read_bytes())
    content[where] ^= 0xFF
    (tmp_path / "x.xz").write_bytes(content)
    target = ExperienceStore(tmp_path / "y.sqlite3")
    with pytest.raises(UserError, match=r"x\.xz"):
        merge([tmp_path / "x.xz"], target)
    assert not target.path.exists()


def _other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")


def _damaged_database(path: Path) -> None:
    content = bytearray(store_with(path, [0, 1, 2]).path.read_bytes())
    content[100:4096] = b"\xff" * 3996
    path.write_bytes(content)


@pytest.mark.parametrize("write", [_other_database, _damaged_database])
def test_a_database_that_is_no_sound_store_is_refused_and_stays_as_it_is(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path / "x.sqlite3")
    before = (tmp_path / "x.sqlite3").read_bytes()
    sound = store_with(tmp_path / "sound.sqlite3", [0])
    with pytest.raises(UserError, match=r"x\.sqlite3: this is no store of experience, or it is damaged"):
        rows_of(tmp_path / "x.sqlite3")
    with pytest.raises(UserError, match="name another file"):
        merge([sound.path], ExperienceStore(tmp_path / "x.sqlite3"))
    assert (tmp_path / "x.sqlite3").read_bytes() == before
    assert not list(tmp_path.glob("*.corrupt-*"))


def test_a_store_of_a_later_version_is_not_added_to(tmp_path: Path) -> None:
    later = store_with(tmp_path / "x.sqlite3", [0])
    with closing(sqlite3.connect(later.path)) as connection, connection:
        connection.execute("UPDATE about SET value = 99")
    with pytest.raises(UserError, match="update RewriteGym"):
        merge([store_with(tmp_path / "y.sqlite3", [1]).path], later)


def test_damaged_rows_of_what_is_merged_are_counted(tmp_path: Path) -> None:
    store = store_with(tmp_path / "x.sqlite3", [0, 1, 2])
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE label SET checksum = 'x' WHERE id = (SELECT min(id) FROM label)")
    assert merge([store.path], ExperienceStore(tmp_path / "y.sqlite3")) == MergedRows(2, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format":"rewritegym.experience","schema":99}\n{}\n', "version 99 of the schema"),
        ('{"format":"other"}\n{}\n', "no export of experience"),
        ('{"format":"rewritegym.experience","schema":1}\n{"digest":"0"}\n', "its digest differs"),
        ("[]\n[]\n", "no export of experience"),
        ("", "no export of experience"),
    ],
)
def test_files_of_other_kinds_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.xz").write_bytes(lzma.compress(text.encode()))
    with pytest.raises(UserError, match=message):
        rows_of(tmp_path / "x.xz")
    (tmp_path / "y").write_text("hello")
    with pytest.raises(UserError, match="neither a store"):
        rows_of(tmp_path / "y")


def test_statistics_count(tmp_path: Path) -> None:
    found = statistics_of(store_with(tmp_path / "x.sqlite3", list(range(5))).path)
    assert (found.labels, found.failed, found.surely_faster, found.surely_slower) == (5, 0, 5, 0)
    assert found.families == {"f": 3, "g": 2}
    assert found.rules == {"A": 3, "B": 2}
    assert found.depths == {"1": 3, "2": 2}
    assert found.efforts == {"scan": 5}
    assert found.cost_s == pytest.approx(1.5)
    assert found.half_of_model == pytest.approx(0.01)
