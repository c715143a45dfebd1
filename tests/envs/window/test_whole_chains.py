"""Chains that were timed as a whole: their beginnings are in the table, without measurements of their own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import envs.window.table as tables
from agents.effects.samples import samples_of, state_of
from agents.tabular.game import WindowGame
from agents.universal.decisions import believed_shares, decisions_of
from envs.feature_sets import CONTEXT, INSTRUCTIONS
from envs.window import WindowTable, WindowTableEnv
from envs.window.tabulation import tabulate
from graph_rewrite.experience.means import share
from graph_rewrite.experience.records import Label
from graph_rewrite.task.problem import Problem


def alike(one: Label, other: Label) -> bool:
    return one.window["fingerprint"] == other.window["fingerprint"]


@pytest.fixture(scope="module")
def whole(labels: list[Label]) -> Label:
    """A chain of two steps that could be run."""
    return next(label for label in labels if label.ok and len(label.steps) == 2)


@pytest.fixture(scope="module")
def alone(labels: list[Label], whole: Label, problem: Problem) -> WindowTable:
    """The table of a window in which a chain was timed, but not its first step."""
    without = [one for one in labels if alike(one, whole) and one.body["steps"][0] != whole.body["steps"][0]]
    return tabulate([*without, whole], problem.rewriter).table


def path_through(table: WindowTable, whole: Label) -> tuple[int, int, int, int]:
    """The numbers of both steps of the chain, and of the states that they lead to."""
    arrays = table.arrays
    for root in arrays["window_root"].tolist():
        for first in range(arrays["step_start"][root], arrays["step_start"][root + 1]):
            middle = int(arrays["step_next"][first])
            for second in range(arrays["step_start"][middle], arrays["step_start"][middle + 1]):
                rules = tuple(table.rules[arrays["step_rule"][step]] for step in (first, second))
                if rules == whole.rules:
                    return first, second, middle, int(arrays["step_next"][second])
    raise AssertionError("the chain is not in the table")


def test_a_chain_timed_as_a_whole_is_in_the_table(alone: WindowTable, whole: Label) -> None:
    first, second, middle, end = path_through(alone, whole)
    arrays = alone.arrays
    assert arrays["step_measured"][[first, second]].tolist() == [False, True]
    assert not arrays["step_failed"][first]
    assert arrays["state_share"][middle] == arrays["step_share"][first] == 0.0
    assert arrays["state_share"][end] == pytest.approx(share(whole))
    assert alone.measured_states().sum() == alone.states - 1
    assert not alone.measured_states()[middle]
    assert alone.parents()[[middle, end]].tolist() == [alone.arrays["window_root"][0], middle]


def test_every_timing_is_used_and_counted(labels: list[Label], whole: Label, problem: Problem) -> None:
    made = tabulate([whole], problem.rewriter)
    assert (made.used, made.left_out) == (1, 0)
    assert list(made.step_of) == [whole.id]
    assert made.table.steps == 2
    assert made.table.windows[0].chains == 1
    assert not made.table.windows[0].exhaustive


def test_the_saving_falls_due_at_the_next_timed_state(alone: WindowTable, whole: Label) -> None:
    first, second, middle, _ = path_through(alone, whole)
    env = WindowTableEnv(alone, least_chains=1)
    _, info = env.reset(options={"window": 0})
    assert info["measured"]
    root = env.state_number
    _, reward, terminated, _, info = env.step(first - int(alone.arrays["step_start"][root]))
    assert (float(reward), terminated, info["measured"], info["share"]) == (0.0, False, False, 0.0)
    fork = env.fork()
    _, reward, terminated, _, info = fork.step(fork.no_op)
    assert (float(reward), terminated, info["share"]) == (0.0, True, 0.0)
    observation, reward, *_, info = env.step(second - int(alone.arrays["step_start"][middle]))
    assert float(reward) == pytest.approx(share(whole), abs=1e-6) == info["share"]
    assert info["measured"]
    # Nothing is said of what single steps saved.
    assert not observation["candidate_details"][:, 2:].any()


def test_the_game_of_numbers_pays_the_same(alone: WindowTable, whole: Label) -> None:
    first, second, middle, end = path_through(alone, whole)
    game, start = WindowGame(alone), alone.arrays["step_start"]
    root = int(alone.arrays["window_root"][0])
    assert game.rewards[root, first - start[root]] == 0.0
    assert game.rewards[middle, second - start[middle]] == pytest.approx(share(whole), abs=1e-6)
    assert game.after[middle, second - start[middle]] == end


def test_single_effects_of_such_steps_are_unknown(alone: WindowTable, whole: Label) -> None:
    first, second, *_ = path_through(alone, whole)
    effects = {
        sample.first_step + number: float(one)
        for sample in samples_of(alone)
        for number, one in enumerate(sample.effects)
    }
    assert np.isnan([effects[first], effects[second]]).all()
    failed = set(np.flatnonzero(alone.arrays["step_failed"]).tolist())
    assert {step for step, one in effects.items() if np.isnan(one)} == {first, second} | failed


def test_the_best_chain_is_imitated_through_them(alone: WindowTable, whole: Label) -> None:
    """A first step that leads to the best chain is worth what that saves."""
    arrays = {name: array.copy() for name, array in alone.arrays.items()}
    first, second, middle, end = path_through(alone, whole)
    for name in ("step_share", "step_half"):
        arrays[name][:] = 0.0
    arrays["state_share"][:] = 0.0
    arrays["step_share"][second] = arrays["state_share"][end] = 0.4
    table = replace(alone, arrays=arrays)
    assert believed_shares(table)[[middle, end]].tolist() == pytest.approx([0.0, 0.4])
    root = int(arrays["window_root"][0])
    (decision,) = (one for one in decisions_of(table, [0]) if state_of(table, one.sample) == root)
    assert decision.gains[first - int(arrays["step_start"][root])] == pytest.approx(0.4)
    assert decision.target(0.0, 0.01).argmax() == first - int(arrays["step_start"][root])


def test_timings_of_other_versions_are_of_the_same_window(labels: list[Label], problem: Problem) -> None:
    label = next(label for label in labels if label.ok and len(label.steps) == 1)
    later = replace(label, context={**label.context, "commit": "another", "rewritegym": "9"}, id="later")
    narrow = {**label.body, "context": "another", "saved_s": 0.0, "low_s": -1e-9, "high_s": 1e-9}
    table = tabulate([label, replace(later, body=narrow)], problem.rewriter).table
    assert table.arrays["step_share"].tolist() == [0.0]
    elsewhere = replace(later, context={**label.context, "device": "another"})
    assert len(tabulate([label, elsewhere], problem.rewriter).table.windows) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_tables_of_earlier_versions_are_read(
    version: int, alone: WindowTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = ("step_measured", "step_guess", "step_class", "step_cost") if version == 1 else ()
    sets = [CONTEXT.index(name) for name in INSTRUCTIONS]
    windows = tuple(replace(window, device="Some CPU, cpu family 6 [avx2 avx512_fp16]") for window in alone.windows)
    old = replace(
        alone, windows=windows, arrays={**alone.arrays, "context": np.delete(alone.arrays["context"], sets, 1)}
    )
    with monkeypatch.context() as older:
        older.setattr(tables, "VERSION", version)
        older.setattr(tables, "ARRAYS", {name: kind for name, kind in tables.ARRAYS.items() if name not in new})
        older.setattr(tables, "_widths", partial(tables._widths, version))
        old.save(tmp_path / "old.npz")
    again = WindowTable.load(tmp_path / "old.npz")
    if version == 1:
        assert again.measured_states().all()
    assert again.steps == alone.steps
    assert np.array_equal(again.arrays["step_share"], alone.arrays["step_share"])
    contexts = again.arrays["context"][again.arrays["window_context"]]
    assert contexts[:, sets].tolist() == [[0.0, 1.0, 0.0]] * len(windows)
    before = alone.arrays["context"][alone.arrays["window_context"]]
    assert np.array_equal(np.delete(contexts, sets, 1), np.delete(before, sets, 1))


def test_a_step_is_told_with_its_estimate_its_class_and_its_cost(table: WindowTable, labels: list[Label]) -> None:
    arrays = table.arrays
    timed = ~arrays["step_failed"]
    assert arrays["step_cost"][timed] == pytest.approx(np.full(timed.sum(), 0.2))
    assert not arrays["step_cost"][~timed].any()
    assert np.isfinite(arrays["step_guess"]).all()
    assert len(np.unique(arrays["step_guess"])) > 5
    assert any(text.startswith("Conv strides=[2, 2]") for text in table.classes)
