"""Searches of generated networks that are logged; what their windows save is drawn."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from agents.core.base import Budget, Search
from agents.regional.experience import LoggedRound
from agents.regional.gains import Effects
from agents.regional.options import RegionalOptions
from agents.regional.screen import Screen
from benchmarks.learning.generated.catalogue import generate
from graph_rewrite import Rewriter
from graph_rewrite.experience import ExperienceLog, ExperienceStore
from graph_rewrite.latency import MeasurementError
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.task.site_windows import site_classes
from tests.agents.regional.exact_timer import ExactTimer
from tests.agents.toys import problem_on


@dataclass
class DrawnTimer(ExactTimer):
    """Windows take 1 ms; what they save is drawn by their content. Every seventh cannot be run."""

    known: dict[str, Difference] = field(default_factory=dict)

    def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        self.asked.append(cut)
        drawn = random.Random(cut.key)
        if drawn.random() < 1 / 7:
            raise MeasurementError("it cannot be run")
        saved = cut.count * 1e-3 * drawn.uniform(-0.5, 0.5)
        return Difference(saved, (saved - 1e-5, saved + 1e-5), cut.count, 1, 4, 1e-3, 0.2)


def logged_search(store: ExperienceStore, family: str, folder: Path) -> tuple[ExperienceLog, DrawnTimer, Rewriter]:
    """Screen all windows of a generated network."""
    rewriter, timer, log = Rewriter(), DrawnTimer(), ExperienceLog(store)
    path = generate(family, 0, folder / f"{family}.onnx")
    problem = problem_on(path, folder, rewriter)
    search = Search(problem, Budget(measurements=1000, seconds=1e6))
    search.measure(problem.model.graph, ())
    assert search.best is not None
    options, graph = RegionalOptions(worth=0.0, depth=2), problem.model.graph
    round_ = LoggedRound(log, search, search.best)
    screen = Screen(search, timer, Effects(), graph, 0.05, options, round_)
    screen.run(site_classes(rewriter, graph), lambda: len(timer.asked) > 40)
    log.close()
    return log, timer, rewriter
