"""Experience of several searches in one export: models without names get those of their like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.core.paths import known_results
from benchmarks.learning.merge_experience import main, merged, names_of_known_results
from graph_rewrite.experience import ExperienceStore
from graph_rewrite.experience.exchange import StoredRows, labels_of
from graph_rewrite.experience.records import Label, complete
from tests.graph_rewrite.experience.rows import made_up


def rows(*made: Any) -> StoredRows:
    parts = {part.id: part for _, found in made for part in found}
    return StoredRows(tuple(label for label, _ in made), tuple(parts.values()))


def labels(found: StoredRows) -> list[Label]:
    return list(complete(iter(found.labels), {part.id: json.loads(part.text) for part in found.parts}))


def test_a_file_gets_the_name_of_the_model_that_it_is() -> None:
    """The fingerprints of made-up models are all the same."""
    known = rows(made_up(0, family="bert", model="zoo://bert"))
    nameless = rows(made_up(1, family="", saved=2e-3), made_up(2, family="", saved=3e-3))
    found = merged([known, nameless], {})
    assert {(label.model["uri"], label.family) for label in labels(found)} == {("zoo://bert", "bert")}
    assert len(found.labels) == 3
    assert sorted(label.body["saved_s"] for label in labels(found)) == [1e-3, 2e-3, 3e-3]
    assert len([part for part in found.parts if part.kind == "model"]) == 1


def test_names_that_are_there_stay() -> None:
    one, other = rows(made_up(0, family="a", model="A")), rows(made_up(1, family="b", model="B"))
    assert {label.family for label in labels(merged([one, other], {"1": ("C", "c")}))} == {"a", "b"}
    alone = rows(made_up(1, family=""))
    assert {label.family for label in labels(merged([alone], {"1": ("zoo://vit", "vit")}))} == {"vit"}
    assert {label.family for label in labels(merged([alone], {"other": ("zoo://vit", "vit")}))} == {"2"}


def test_equal_labels_are_one() -> None:
    later = rows(made_up(0, taken=2000))
    found = merged([later, rows(made_up(0, taken=1000))], {})
    assert [label.taken for label in found.labels] == [1000]


def test_models_with_known_results_are_known() -> None:
    found = names_of_known_results(known_results())
    assert "vgg" in {family for _, family in found.values()}
    assert all(uri.startswith("zoo://") for uri, _ in found.values())


def test_the_command_adds_stores_and_tells_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, number in (("one", 0), ("two", 1)):
        store = ExperienceStore(tmp_path / f"{name}.sqlite3")
        label, parts = made_up(number, family="f", saved=(number + 1) * 1e-3)
        store.append([label], parts)
        store.close()
    out = tmp_path / "out" / "all.jsonl.xz"
    assert main([str(tmp_path / "one.sqlite3"), str(tmp_path / "two.sqlite3"), "--out", str(out)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["before"][""]["labels"] == 1
    assert told["after"]["f"] == {"labels": 2, "windows": 1, "half": pytest.approx(0.025)}
    assert len(list(labels_of(out))) == 2
    assert main([]) == 2
