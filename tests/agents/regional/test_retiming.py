"""The best chains are timed again with care."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agents.core.base import Search
from agents.regional.assembly import choose
from agents.regional.retiming import FIRST_LOOK_S, retime
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window import WindowPair
from tests.agents.regional.exact_timer import BUDGET, OPTIONS, ExactTimer, chain
from tests.agents.toys import chain_problem


def test_what_is_timed_badly_does_not_lead_by_luck(tmp_path: Path) -> None:
    chains = [chain(5.0, {1, 2}, half=4.5), chain(3.0, {2, 3}, half=0.5)]
    assert [f.saved for f in choose(chains)] == [3.0]
    # Nor does it stand for other chains that begin with the same step.
    chains = [chain(9.0, {1}, half=9.5, rules=("A", "B")), chain(3.0, {1}, half=0.5, rules=("A",))]
    assert [f.saved for f in retime(Search.__new__(Search), ExactTimer(), chains, lambda: True, OPTIONS)] == [3.0]


def test_no_seconds_for_timing_again_leave_doubtful_chains_out(tmp_path: Path) -> None:
    search = Search(chain_problem(tmp_path, 1), BUDGET)
    options = replace(OPTIONS, again_s=())
    assert retime(search, ExactTimer(), [chain(5.0, {1}, half=9.0)], lambda: True, options) == []


def test_finals_take_lead_from_luck(tmp_path: Path) -> None:
    class Careful(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            saved = {"5.0": 1.0, "4.0": 2.0, "3.0": -1.0}[cut.key]
            return Difference(saved, (saved - 0.1, saved + 0.1), 1, 1, 1, 10.0)

    search = Search(chain_problem(tmp_path, 1), BUDGET)
    chains = [chain(5.0, {1}, rules=("A", "B")), chain(4.0, {1}, rules=("C",)), chain(3.0, {2})]
    kept = retime(search, Careful(), chains, lambda: False, OPTIONS)
    assert [(f.saved, f.steps[0].rule) for f in kept] == [(2.0, "C")]
    # Out of time, the first timing stands.
    assert {f.saved for f in retime(search, Careful(), chains, lambda: True, OPTIONS)} == {5.0, 3.0}


def test_finalists_that_do_not_overlap_the_chosen_one_stand_as_they_were_timed_with_care(tmp_path: Path) -> None:
    careful = {"6.0": 3.0, "5.0": -1.0, "4.0": 4.0}

    class Careful(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            return Difference(careful[cut.key], (careful[cut.key] - 0.1, careful[cut.key] + 0.1), 1, 1, 1, 10.0)

    # One chain over four nodes has a rival in each half of them.
    chains = [
        chain(6.0, {1, 2, 3, 4}, rules=("A",)),
        chain(5.0, {1, 2}, rules=("B",)),
        chain(4.0, {3, 4}, rules=("C",)),
    ]
    search = Search(chain_problem(tmp_path, 1), BUDGET)
    assert [(one.saved, one.steps[0].rule) for one in retime(search, Careful(), chains, lambda: False, OPTIONS)] == [
        (4.0, "C")
    ]  # fmt: skip
    careful["5.0"] = 0.5
    kept = retime(search, Careful(), chains, lambda: False, OPTIONS)
    assert sorted((one.saved, one.steps[0].rule) for one in kept) == [(0.5, "B"), (4.0, "C")]


def test_what_cannot_be_told_apart_is_timed_again_where_it_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"5.0": [(1.0, 0.6), (2.4, 0.3), (2.5, 0.1)], "4.0": [(2.0, 0.6), (2.2, 0.3), (2.1, 0.1)]}

    class Noisy(ExactTimer):
        def __init__(self) -> None:
            self.asked: list[tuple[str, float | None, bool]] = []

        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            before = sum(key == cut.key for key, _, _ in self.asked)
            saved, half = answers.get(cut.key, [(-3.0, 0.6)])[before]
            self.asked.append((cut.key, budget_s, anew))
            return Difference(saved, (saved - half, saved + half), 1, 1, 1, 10.0)

    search = Search(chain_problem(tmp_path, 1), BUDGET)
    chains = [chain(5.0, {1}, rules=("A",)), chain(4.0, {1}, rules=("C",)), chain(3.0, {1}, rules=("D",))]
    timer = Noisy()
    (kept,) = retime(search, timer, chains, lambda: False, OPTIONS)
    # The first look has C ahead by no more than noise, and D nowhere.
    assert (kept.steps[0].rule, kept.saved, kept.half) == ("A", 2.5, pytest.approx(0.1))
    assert [asked[1:] for asked in timer.asked if asked[0] == "4.0"] == [
        (None, False), *((seconds, True) for seconds in OPTIONS.again_s)
    ]  # fmt: skip
    assert sum(key == "3.0" for key, _, _ in timer.asked) == 1
    monkeypatch.setattr("agents.regional.retiming._seconds", lambda search: 0.7 / OPTIONS.matters)
    timer = Noisy()
    assert retime(search, timer, chains, lambda: False, OPTIONS)[0].steps[0].rule == "C"
    assert len(timer.asked) == 3


@pytest.mark.parametrize(("seconds", "chosen"), [(0.5 / OPTIONS.matters, "A"), (2.0 / OPTIONS.matters, "C")])
def test_fewer_steps_lead_only_where_as_much_seems_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, chosen: str
) -> None:
    """Prefer fewer steps although the longer chain is one second ahead, because noise makes both intervals overlap."""
    monkeypatch.setattr("agents.regional.retiming._seconds", lambda search: seconds)
    chains = [chain(3.0, {1}, half=1.5, rules=("A", "B")), chain(2.0, {1}, half=0.4, rules=("C",))]
    kept = retime(Search(chain_problem(tmp_path, 1), BUDGET), ExactTimer(), chains, lambda: True, OPTIONS)
    assert [f.steps[0].rule for f in kept] == [chosen]


def test_what_may_save_nothing_is_timed_longer_before_it_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One second is enough where it tells whether a chain saves."""
    longer = {"5.0": [(0.8, 0.1)], "4.0": [(0.05, 0.1), (0.02, 0.05)], "4.5": [(0.2, 0.3), (0.3, 0.1)]}
    asked: list[tuple[str, float | None]] = []

    class Hasty(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            if not anew:
                return Difference(float(cut.key) / 4, (-1.0, 4.0), 1, 1, 1, 10.0)
            saved, half = longer[cut.key][sum(key == cut.key for key, _ in asked)]
            asked.append((cut.key, budget_s))
            return Difference(saved, (saved - half, saved + half), 1, 1, 1, 10.0)

    search = Search(chain_problem(tmp_path, 1), BUDGET)
    monkeypatch.setattr("agents.regional.retiming._seconds", lambda search: 0.6 / OPTIONS.doubted)
    chains = [chain(5.0, {1}), chain(4.0, {2}), chain(2.0, {3}), chain(4.5, {4})]
    kept = retime(search, Hasty(), chains, lambda: False, OPTIONS)
    assert [(one.saved, one.nodes) for one in kept] == [(0.8, {1}), (0.3, {4})]
    first, longest = FIRST_LOOK_S, OPTIONS.again_s[0]
    # That of 2.0 promises too little.
    assert asked == [("5.0", first), ("4.5", first), ("4.5", longest), ("4.0", first), ("4.0", longest)]
