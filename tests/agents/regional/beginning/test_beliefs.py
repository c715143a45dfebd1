"""Beliefs about drafted chains: forecasts, timings, and which chain takes the place of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.base import Search
from agents.core.records import supposed
from agents.regional.assembly import best_of
from agents.regional.beginning.beliefs import FORECAST_ERROR, Beliefs
from agents.regional.beginning.proved_drafts import ProvedDrafts
from agents.regional.chains import RewriteChain
from agents.regional.gains import Effects
from agents.regional.options import RegionalOptions
from agents.regional.screen import Screen
from graph_rewrite import Rewriter, Rule
from graph_rewrite.experience import ExperienceLog
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.site_windows import site_classes
from tests.agents.regional.exact_timer import BUDGET, ExactTimer
from tests.agents.regional.test_drafting import CHAIN, Told
from tests.agents.toys import RULES, chain_problem

SECONDS = 7e-3


class ReluAsClip(Rule):
    """Relu(x) = Clip(x, 0), which saves 4 ms; the rules of the toys get there through forms that cost more"""

    family = "toy"

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Clip(x, op.constant(np.zeros((), np.float32)))


class SlowTimer(ExactTimer):
    """Knows nothing within a scan."""

    def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        timed = super().time(cut, budget_s, anew=anew)
        return timed if anew else replace(timed, ci95=(timed.seconds - 1.0, timed.seconds + 1.0))


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    found = chain_problem(tmp_path, 1)
    found.rewriter = Rewriter([RULES[0], ReluAsClip()], "site", deployment=False)
    return found


def drafted(problem: Problem, timer: ExactTimer, **options: float) -> list[str]:
    """Draft two rewrites of one node: the one that costs 1 ms is forecast to save more."""
    told = Told({CHAIN[:1]: 0.05, ("ReluAsClip",): 0.03})
    settings = RegionalOptions(margin=1, **options)  # type: ignore[arg-type]
    drafts = ProvedDrafts(Search(problem, BUDGET), timer, told, settings, ExperienceLog(None))
    draft = drafts.draft(supposed(problem.model.graph, 1e3 * SECONDS))
    return [] if draft is None else [action.rule for action in draft.actions]


def test_where_a_chain_loses_by_timing_another_takes_its_place(problem: Problem) -> None:
    timer = ExactTimer()
    assert drafted(problem, timer) == ["ReluAsClip"]
    assert len(timer.asked) == 2
    assert drafted(problem, timer, doubting_share=0.0) == [CHAIN[0]]
    assert len(timer.asked) == 2


def test_what_a_scan_leaves_open_is_timed_longer(problem: Problem) -> None:
    timer = SlowTimer()
    assert drafted(problem, timer) == ["ReluAsClip"]
    assert len(timer.asked) > 2


def test_there_must_be_time_for_timing_longer(problem: Problem) -> None:
    """A hundredth of a minute."""
    timer = SlowTimer()
    assert drafted(problem, timer, doubting_share=0.008) == [CHAIN[0]]
    assert len(timer.asked) == 1


def forecast(problem: Problem) -> tuple[Screen, list[RewriteChain]]:
    """Return the chains of one class, with the screen that they are from."""
    graph = problem.model.graph
    screen = Screen(
        Search(problem, BUDGET), ExactTimer(), Effects(), graph, SECONDS, RegionalOptions(margin=1), None,
        Told({CHAIN[:1]: 0.05, ("ReluAsClip",): 0.03}),
    )  # fmt: skip
    return screen, screen.forecast(site_classes(problem.rewriter, graph, margin=1), lambda: False)


@given(saved=st.floats(0.1, 0.5), half=st.floats(1e-4, 10.0))
def test_a_belief_lies_between_forecast_and_timing(tmp_path_factory: Any, saved: float, half: float) -> None:
    """All windows take 7 ms, whatever is estimated of them."""
    problem = chain_problem(tmp_path_factory.mktemp("chain"), 1)
    screen, chains = forecast(problem)
    chain = chains[0]
    beliefs = Beliefs(chains, screen.scale, -1.0)
    share = beliefs.share(chain)
    assert not beliefs.is_timed(chain)
    timed = Difference(
        saved * SECONDS, ((saved - half) * SECONDS, (saved + half) * SECONDS), 1, 1, 1, window_seconds=SECONDS
    )
    beliefs.tell(chain, timed, 1.0)
    assert beliefs.is_timed(chain)
    believed = beliefs.share(beliefs.chains()[0])
    assert min(share, saved) - 1e-9 <= believed <= max(share, saved) + 1e-9
    if not 0.99 < half / 1.96 / FORECAST_ERROR < 1.01:
        assert (abs(believed - saved) < abs(believed - share)) == (half / 1.96 < FORECAST_ERROR)
    assert 0.0 <= beliefs.error(chain) <= 1.01 * min(half, 1.96 * FORECAST_ERROR) * chain.saved / share


def test_what_cannot_be_timed_is_left_out(problem: Problem) -> None:
    screen, chains = forecast(problem)
    beliefs = Beliefs(chains, screen.scale, 0.0)
    (first,) = best_of(beliefs.chains())
    beliefs.tell(first, None, 1.0)
    (second,) = best_of(beliefs.chains())
    assert (str(first), str(second)) == (CHAIN[0], "ReluAsClip")
    beliefs.tell(second, None, 1.0)
    assert beliefs.chains() == []
