"""Tables of windows against the labels that they are made of, and against windows that are timed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.observation import Observation, ObservationLimits
from envs.window import WindowRewriteEnv, WindowTable, WindowTableEnv
from envs.window.tabulation import Tabulation, tabulate
from graph_rewrite import Rewriter
from graph_rewrite.errors import UserError
from graph_rewrite.experience.means import share
from graph_rewrite.experience.records import Label
from graph_rewrite.replay import fingerprint
from graph_rewrite.task.problem import Problem
from tests.envs.window.drawn import DrawnTimer


def chains_of(table: WindowTable) -> Counter[tuple[Any, ...]]:
    """All chains of a table: fingerprint of the window, rules, and the share that is saved, None for a failure."""
    found: Counter[tuple[Any, ...]] = Counter()
    arrays = table.arrays

    def walk(state: int, rules: tuple[str, ...]) -> None:
        window = table.windows[arrays["state_window"][state]]
        for step in range(arrays["step_start"][state], arrays["step_start"][state + 1]):
            chain = (*rules, table.rules[arrays["step_rule"][step]])
            saved = None if arrays["step_failed"][step] else round(float(arrays["step_share"][step]), 5)
            found[window.fingerprint, chain, saved] += 1
            walk(arrays["step_next"][step], chain)

    for root in arrays["window_root"]:
        walk(root, ())
    return found


def test_every_chain_is_in_the_table_with_what_it_saved(tabulation: Tabulation, labels: list[Label]) -> None:
    by_chain: dict[Any, Label] = {
        (label.window["fingerprint"], tuple(label.body["steps"])): label for label in labels
    }  # a drawn window takes the same time again
    told = Counter(
        (label.window["fingerprint"], label.rules, round(share(label), 5) if label.ok else None)
        for label in by_chain.values()
    )
    assert chains_of(tabulation.table) == told
    assert tabulation.used == len(by_chain) > 20
    assert tabulation.left_out == 0
    assert {len(rules) for _, rules, _ in told} == {1, 2}
    assert any(saved is None for _, _, saved in told)


def test_windows_of_a_table_are_those_that_are_timed(problem: Problem, table: WindowTable) -> None:
    """Observations of roots and of what first steps lead to, and the rewards of steps, are those of the environment
    that times windows: the same rules, rows of numbers and shares."""
    live = WindowRewriteEnv(problem=problem, timer=DrawnTimer(failing=0.15))
    played = WindowTableEnv(table, least_chains=1)
    names: dict[str, str] = {}
    for name in live.models:
        live.reset(options={"model": name})
        names.setdefault(fingerprint(live.graph), name)
    compared = 0
    for number, window in enumerate(table.windows):
        here, _ = live.reset(options={"model": names[window.fingerprint]})
        there, _ = played.reset(options={"window": number})
        assert summary(here) == summary(there)
        ours = {candidate.rule: k for k, candidate in enumerate(live.candidates)}
        for k in range(int(there["sizes"][2])):
            played.reset(options={"window": number})
            live.reset(options={"model": names[window.fingerprint]})
            there, reward, ended, _, info = played.step(k)
            here, expected, live_ended, _, live_info = live.step(ours[info["rule"]])
            assert reward == pytest.approx(float(expected), abs=1e-5)
            assert bool(info["failure"]) == bool(live_info["failure"])
            if not info["failure"]:
                assert ended == live_ended
                assert summary(here) == summary(there)
                compared += 1
    assert compared > 5


def summary(observation: Observation) -> dict[str, Any]:
    """Return the content of an observation, whatever the order of nodes and candidates."""
    nodes, edges, count = (int(size) for size in observation["sizes"])
    columns = ("node_op", "node_features", "node_attributes")
    rows = [[np.asarray(observation[name][row]).tobytes() for name in columns] for row in range(nodes)]
    owner = observation["node_candidate"]
    own = Counter(b"".join(rows[row]) for row in range(nodes) if owner[row] == 0)
    columns = ("candidate_rule", "candidate_features", "candidate_family", "candidate_details")
    candidates = Counter(
        (
            *(np.round(observation[name][k].astype(float), 5).tobytes() for name in columns),
            tuple(sorted(b"".join(rows[row]) for row in range(nodes) if owner[row] == k + 1)),
        )
        for k in range(count)
    )
    ends = observation["edge_index"][:, :edges]
    shapes = observation["edge_shape"][:edges]
    joined = Counter(
        (b"".join(rows[source]), b"".join(rows[target]), shapes[edge].tobytes())
        for edge, (source, target) in enumerate(ends.T)
    )
    return {
        "own": own, "candidates": candidates, "edges": joined, "sizes": (nodes, edges, count),
        "globals": np.round(observation["globals"], 4).tolist(), "context": observation["context"].tolist(),
        "padding": all(not observation[name][nodes:].any() for name in ("node_op", "node_features")),
    }  # fmt: skip


def test_a_table_is_exhaustive_where_all_steps_were_timed(
    labels: list[Label], problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envs.window.tabulation.MANY_CHAINS", 2)
    whole = tabulate(labels, problem.rewriter).table
    assert all(window.exhaustive for window in whole.windows if window.chains > 1)
    second = next(label for label in labels if len(label.steps) == 2)
    fewer = [label for label in labels if label.rules != second.rules or label.window != second.window]
    found = {window.fingerprint: window for window in tabulate(fewer, problem.rewriter).table.windows}
    assert not found[second.window["fingerprint"]].exhaustive


def test_of_several_timings_the_narrowest_counts(labels: list[Label], problem: Problem) -> None:
    label = next(label for label in labels if label.ok and len(label.steps) == 1)
    again = replace(label, body={**label.body, "saved_s": 0.0, "low_s": -1e-9, "high_s": 1e-9})
    for order in ([label, again], [again, label]):
        table = tabulate(order, problem.rewriter).table
        assert table.arrays["step_share"].tolist() == [0.0]


def test_chains_that_cannot_be_replayed_are_left_out(labels: list[Label], problem: Problem) -> None:
    rewriter = Rewriter([rule for rule in problem.rewriter.rules if "Winograd" not in rule.name], deployment=False)
    found = tabulate(labels, rewriter)
    assert found.left_out > 0
    kept = chains_of(found.table)
    assert kept
    assert kept == Counter(
        {key: n for key, n in chains_of(tabulate(labels, problem.rewriter).table).items() if "Winograd" not in str(key)}
    )
    with pytest.raises(UserError, match="no window"):
        tabulate([], rewriter)


def test_states_that_do_not_fit_are_left_out(labels: list[Label], problem: Problem, table: WindowTable) -> None:
    limits = ObservationLimits(256, table.limits.max_nodes // 2, 16384)
    found = tabulate(labels, problem.rewriter, limits)
    assert 0 < found.used < table.steps
    assert found.table.limits.max_nodes <= limits.max_nodes


def test_a_table_is_read_as_it_was_written(table: WindowTable, tmp_path: Path) -> None:
    table.save(tmp_path / "one.npz")
    again = WindowTable.load(tmp_path / "one.npz")
    assert (again.windows, again.rules, again.families, again.limits) == (
        table.windows, table.rules, table.families, table.limits,
    )  # fmt: skip
    assert all(np.array_equal(again.arrays[name], table.arrays[name]) for name in table.arrays)
    again.save(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_other_files_are_refused(table: WindowTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npz"
    with pytest.raises(UserError, match="cannot be read"):
        WindowTable.load(path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match="no table of windows"):
        WindowTable.load(path)
    np.savez(path, other=np.zeros(1))
    with pytest.raises(UserError, match="no table of windows"):
        WindowTable.load(path)
    table.save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="no table of windows"):
        WindowTable.load(path)
    monkeypatch.setattr("envs.window.table.VERSION", 99)
    table.save(path)
    monkeypatch.undo()
    with pytest.raises(UserError, match="update RewriteGym"):
        WindowTable.load(path)


def test_the_best_of_every_state_is_that_of_all_chains_behind_it(table: WindowTable) -> None:
    arrays = table.arrays

    def best(state: int) -> float:
        found = [float(arrays["state_share"][state])]
        for step in range(arrays["step_start"][state], arrays["step_start"][state + 1]):
            if not arrays["step_failed"][step]:
                found.append(best(arrays["step_next"][step]))
        return max(found)

    assert table.best_shares().tolist() == [best(state) for state in range(table.states)]
