"""Windows whose times are drawn, not measured."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from agents.core.base import Budget, Search
from agents.regional.experience import LoggedRound
from agents.regional.gains import Effects
from agents.regional.options import RegionalOptions
from agents.regional.screen import Screen
from graph_rewrite import Rewriter, save
from graph_rewrite.experience import ExperienceLog, ExperienceStore
from graph_rewrite.experience.records import Label
from graph_rewrite.latency import MeasurementError
from graph_rewrite.latency.windows import Difference, WindowPair
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rules import find_rule
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.site_windows import site_classes
from tests.agents.toys import problem_on

RULES = (
    "DropIdentity", "FoldResidualIntoConv", "StridedConvAsDepth", "WinogradRows2", "WinogradRows2Relu",
    "WinogradColumns2", "WinogradColumns2Relu", "Winograd2x2", "MergeGroupPairs", "AddsAsSum", "Reassociate",
)  # fmt: skip
EXHAUSTIVE = RegionalOptions(worth=-1e9, depth=2, widest=10**6)
"""A search to which everything is worth a try."""


@dataclass
class DrawnTimer:
    """Windows take 1 ms; what they save is drawn by their content. A `failing` share of them cannot be run."""

    failing: float = 0.0
    asked: list[WindowPair] = field(default_factory=list)
    closed: int = 0

    def time(self, pair: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        self.asked.append(pair)
        drawn = random.Random(pair.key)
        if drawn.random() < self.failing:
            raise MeasurementError("it cannot be run")
        saved = pair.count * 1e-3 * drawn.uniform(-0.5, 0.5)
        return Difference(saved, (saved - 1e-5, saved + 1e-5), pair.count, 1, 4, 1e-3, 0.2)

    def close(self) -> None:
        self.closed += 1


def drawn_labels(problem: Problem, folder: Path, timer: DrawnTimer) -> list[Label]:
    """Time all chains of one and two steps in all windows of a model, and return what was logged."""
    store = ExperienceStore(folder / "drawn.sqlite3")
    log = ExperienceLog(store)
    search = Search(problem, Budget(measurements=1000, seconds=1e6))
    search.measure(problem.model.graph, ())
    assert search.best is not None
    round_ = LoggedRound(log, search, search.best)
    screen = Screen(search, timer, Effects(), problem.model.graph, 0.05, EXHAUSTIVE, round_)
    screen.run(site_classes(problem.rewriter, problem.model.graph), lambda: False)
    log.close()
    return list(store.labels())


def convolutions(folder: Path, last: str = "Identity") -> Problem:
    """Convolutions with what lies between them, under some rules of the library. `last` is the last operator."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((16, 16, 3, 3)).astype(np.float32) for name in "uvw"}
    graph = model(
        """(float[1,16,8,8] x) => (y) {
            a = Conv<pads=[1,1,1,1]>(x, u)  b = Relu(a)  c = Conv<pads=[1,1,1,1]>(b, v)  d = Add(c, b)  e = Relu(d)
            f = Conv<pads=[1,1,1,1], strides=[2,2]>(e, w)  y = LAST(f)
        }""".replace("LAST", last),
        **weights,
    )
    save(graph, folder / "convolutions.onnx")
    rewriter = Rewriter([find_rule(name) for name in RULES], "site", deployment=False)
    return problem_on(folder / "convolutions.onnx", folder, rewriter)
