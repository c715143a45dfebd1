"""Mutants that are kept from search to search."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graph_rewrite.mutate.mutant_rules.program_json import program_to_json
from graph_rewrite.mutate.optimizing.optimizer import FoundRules, Optimizer
from graph_rewrite.mutate.optimizing.pricing import Prices
from graph_rewrite.mutate.optimizing.store import MutantStore, StoredPrograms
from graph_rewrite.mutate.program import Subprogram
from graph_rewrite.mutate.subprograms import split
from tests.graph_rewrite.mutate.mutant_rules.test_rule import WIDE, convolution
from tests.graph_rewrite.mutate.optimizing.test_optimizer import LIMITS, by_images


def the_subprogram() -> Subprogram:
    return split(convolution()).subprograms[0]


def search(store: MutantStore, mutants: Callable[..., object] | None = None) -> FoundRules:
    optimizer = Optimizer(Prices(by_images), LIMITS, rounds=1, store=store)
    return optimizer.rules_of(convolution())


def test_what_is_kept_needs_no_search_and_becomes_the_same_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MutantStore("here", tmp_path)
    first = search(store)
    assert first.rules
    monkeypatch.setattr(Optimizer, "mutants", lambda *arguments: pytest.fail("searched again"))
    second = search(store)
    assert [each.rule.digest for each in second.rules] == [each.rule.digest for each in first.rules]
    assert [each.rule.certificate for each in second.rules] == [each.rule.certificate for each in first.rules]


def test_what_was_cut_short_is_not_complete_the_next_time(tmp_path: Path) -> None:
    """There is no more time than the earlier search had, so nothing is looked for."""
    store, sub = MutantStore("here", tmp_path), the_subprogram()
    store.put(sub, StoredPrograms(((WIDE, ()),), 2.0 * LIMITS.seconds))
    found = search(store)
    assert (len(found.rules), found.cut, found.complete) == (1, 1, False)
    store.put(sub, StoredPrograms(((WIDE, ()),), float("inf")))
    found = search(store)
    assert (len(found.rules), found.cut, found.complete) == (1, 0, True)


def test_another_context_or_more_time_searches_again(tmp_path: Path) -> None:
    store, sub = MutantStore("here", tmp_path), the_subprogram()
    store.put(sub, StoredPrograms((), 10.0))
    assert MutantStore("there", tmp_path).get(sub) is None
    assert store.get(sub) == StoredPrograms((), 10.0)
    assert search(store).rules  # it has more than ten seconds
    assert store.get(sub) != StoredPrograms((), 10.0)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 3, "programs": [{"program": {}}]}', "\x00"]
)
def test_a_corrupt_file_is_moved_aside(text: str, tmp_path: Path) -> None:
    store, sub = MutantStore("here", tmp_path), the_subprogram()
    store.path(sub).write_text(text)
    with pytest.warns(RuntimeWarning, match="corrupt"):
        assert store.get(sub) is None
    assert not store.path(sub).exists()
    assert len(list(tmp_path.glob("*.corrupt"))) == 1


def test_a_program_that_is_not_equal_becomes_no_rule(tmp_path: Path) -> None:
    """Whoever can write the folder can make a mutant wrong: the proof finds it."""
    store, sub = MutantStore("here", tmp_path), the_subprogram()
    store.put(sub, StoredPrograms(((WIDE, ()),), float("inf")))
    assert len(search(store).rules) == 1
    data = json.loads(store.path(sub).read_text())
    wrong = program_to_json(WIDE)
    wrong["steps"][2][2]["chain"][0][2] = "inner" if wrong["steps"][2][2]["chain"][0][2] == "outer" else "outer"
    data["programs"][0]["program"] = wrong
    store.path(sub).write_text(json.dumps(data))
    assert not search(store).rules


def test_a_folder_that_cannot_be_written_turns_the_store_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = MutantStore("here", tmp_path / "file" / "folder")
    with pytest.warns(RuntimeWarning, match="not kept"):
        store.put(the_subprogram(), StoredPrograms((), 1.0))
    store.put(the_subprogram(), StoredPrograms((), 1.0))
