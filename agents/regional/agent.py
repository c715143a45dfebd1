"""The agent `regional`: chains of rewrites chosen by region, put together, judged and refined end to end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agents.core.base import Budget, OptimizationResult, Search, Visit
from agents.core.conclude import check_outputs, conclude
from agents.core.deployment_search import search_deployment
from agents.greedy import GreedyAgent, Step
from agents.regional.assembly import Built, build, choose, within_limits
from agents.regional.gains import Effects
from agents.regional.joint_rewrites import sweep, tidy
from agents.regional.retiming import finals
from agents.regional.screen import Screen, Timer, time_cut
from agents.regional.sites import spots
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import MeasurementCache, Plan
from graph_rewrite.latency.windows.cut import Cut
from graph_rewrite.latency.windows.window_meter import RegionalMeter
from graph_rewrite.task.problem import Problem

SCAN = Plan(instances=1, min_instances=1, min_pairs=3, max_pairs=8, warmup=2, target_ci_width=0.02, budget_s=0.15)
"""How a window is timed: one pair of sessions. The best are timed again, and the choice end to end."""
FINAL = Plan(instances=2, min_instances=2, min_pairs=3, max_pairs=10, warmup=1, target_ci_width=0.01, budget_s=0.4)
"""How the best forms of a window are timed again."""
RETIMED = 0.3
"""Share of the seconds that are left after a screen for timing its best forms again."""
REFINED = 0.2
"""Share of the seconds that are left after a round's judgement for taking forms out again: each of these compares whole
models, and finds less than what the next round's screen does."""
SURE = 0.02
"""What a deployment choice must gain for the search to begin with it: windows are timed under it ever after, and what
noise refused there is missing in all of them. The end of the search goes over the choices again, with a smaller
margin."""
TIMEOUT_S = 120.0
"""Seconds without progress after which a window counts as hanging: on a busy machine large ones take long."""


class RegionalAgent:
    """Search by regions. Measuring a whole model for every candidate takes seconds each; a window around one site of
    a class takes a fraction of one, and resolves more.

    In rounds, while the model gains:

    1. *Screen*: in the window of each class of sites, chains of up to `depth` rewrites are tried and timed
       (`RegionalMeter`), best first by what the same rules gained in other windows. A chain may begin with a loss.
    2. *Choose*: for each class the chain that saves most, classes that overlap by what they save, within the limits.
    3. *Judge*: the chains are put into effect in the whole graph and measured end to end.
    4. *Refine*: each choice is taken out again, the most doubtful first, and stays out where that is faster end to
       end; then operators that cancel between neighbours are taken out.

    Where a round gains nothing, single rules at all their sites at once, with those that carry them on, where something
    cancels between them (`sweep`), and another round where that gains. What is left of the budget then goes into
    climbing by whole models (`GreedyAgent`, with a beam and look-ahead), which finds what no window shows, and in the
    end into the deployment choices. Windows are timed on the threads of the deployment; their times are kept on disk by
    the windows' content.

    Args:
        depth: rewrites in a chain.
        margin: neighbours of a site that its window takes in, in each direction.
        share: part of what is left of the budget's seconds that a round's screen may take.
        rounds: most rounds.
        gain: relative gain, end to end, that a round or a refinement must bring.
        climb: climb by whole models with what the rounds leave of the budget.
        cache: keep times of windows on disk.
        timer: makes what times windows; by default a `RegionalMeter` of the problem's deployment.

    Raises:
        UserError: an option out of range.
    """

    name = "regional"

    def __init__(
        self,
        depth: int = 3,
        margin: int = 3,
        share: float = 0.5,
        rounds: int = 6,
        gain: float = 0.002,
        climb: bool = True,
        cache: bool = True,
        timer: Callable[[Problem], Timer] | None = None,
    ) -> None:
        if depth < 1 or margin < 1 or rounds < 1:
            raise UserError(f"regional: depth, margin and rounds must be 1 or more, got {depth}, {margin}, {rounds}")
        if not 0.0 < share < 1.0 or gain < 0.0:
            raise UserError(f"regional: share must lie between 0 and 1 and gain be 0 or more, got {share} and {gain}")
        self.depth, self.margin, self.share, self.rounds, self.gain = depth, margin, share, rounds, gain
        self.climb, self.cache, self.timer = climb, cache, timer

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        """At random, by `seed`, is drawn only what is climbed on."""
        search = Search(problem, budget, progress)
        search.measure(problem.model.graph, ())
        search_deployment(search, margin=SURE, share=0.1)
        scan, careful = self._timer(problem, SCAN), self._timer(problem, FINAL)
        try:
            effects, tried = Effects(), set[str]()
            for _ in range(self.rounds):
                gained = not search.exhausted and self._round(search, scan, careful, effects, tried)
                if not gained and not self._sweep(search, effects):
                    break
        finally:
            scan.close()
            careful.close()
        if self.climb:
            self._climb(search, seed)
        search_deployment(search)
        return conclude(search, self.name)

    def _timer(self, problem: Problem, plan: Plan) -> Timer:
        if self.timer is not None:
            return self.timer(problem)
        return RegionalMeter(
            problem.deployment, workspace=problem.workspace, plan=plan, budget_s=0.0, exchange=plan is not SCAN,
            timeout_s=TIMEOUT_S, cache=MeasurementCache() if self.cache else None,
        )  # fmt: skip

    def _round(self, search: Search, scan: Timer, careful: Timer, effects: Effects, tried: set[str]) -> bool:
        """Screen, choose, judge and refine from the best graph so far; whether that gained."""
        start = search.best
        if start is None or not start.latency.ok:
            return False
        problem = search.problem
        found = [s for s in spots(problem.rewriter, start.graph, self.margin) if s.key not in tried]
        screen = Screen(search, scan, effects, start.graph, start.latency.ms / 1e3, self.depth)
        deadline = search.after(self.share)
        forms = screen.run(found, lambda: search.seconds >= deadline)
        tried |= screen.tried
        last = search.after(RETIMED)
        plan = choose(finals(search, careful, forms, lambda: search.seconds >= last))
        if not plan or search.exhausted:
            return False
        built = self._accurate(search, start, within_limits(search, start.graph, start.actions, plan))
        whole = _visit(search, built)
        sure = [form for form in built.forms if form.is_certain]
        if whole.latency.ok and len(sure) < len(built.forms) and search.can_measure:
            other = build(search, start.graph, start.actions, sure)
            if search.beats(_visit(search, other), whole):
                built = other
        self._refine(search, careful, start, built)
        self._tidy(search, start)
        best = search.best
        return best is not None and best.latency.lower_bound > start.latency.lower_bound * (1.0 + self.gain)

    def _accurate(self, search: Search, start: Visit, built: Built) -> Built:
        """Without the forms that round most, until the outputs stay within the error budget. Where rounding errors of
        single layers add up to little, the check at the end of the search is enough."""
        problem = search.problem
        tolerance = problem.limits.tolerance(problem.model.original, problem.deployment)
        while sum(form.error for form in built.forms) > tolerance / 2 and not search.exhausted:
            visit = Visit(built.graph, start.latency, built.actions)
            worst = max(form.error for form in built.forms)
            if check_outputs(search, visit).ok:
                break
            built = build(search, start.graph, start.actions, [f for f in built.forms if f.error < worst])
        return built

    def _sweep(self, search: Search, effects: Effects) -> bool:
        """Rules that pay only at all their sites together, from the best graph on; whether that gained."""
        best, gained = search.best, False
        last = search.after(self.share)
        while best is not None and best.latency.ok and search.seconds < last:
            best = sweep(search, best, effects, self.gain, lambda: search.seconds >= last)
            gained = gained or best is not None
        return gained

    def _climb(self, search: Search, seed: int) -> None:
        """Go on from the best graph so far by measuring whole models."""
        best = search.best
        if best is not None and best.latency.ok and not search.exhausted:
            start = Step(best.graph, best.actions, best.latency.speedup)
            GreedyAgent(beam=2, lookahead=2).climb(search, start, np.random.default_rng(seed))

    def _tidy(self, search: Search, start: Visit) -> None:
        """Take out what cancels between neighbours of the best graph so far."""
        best = search.best
        if best is None or not search.can_measure:
            return
        graph, actions = tidy(search, best.graph, best.actions, start.graph.next_id)
        if graph is not best.graph:
            search.measure(graph, actions)

    def _refine(self, search: Search, timer: Timer, start: Visit, built: Built) -> None:
        """Take choices out one by one, those that save least beside their interval first, and leave out those without
        which the model is faster."""
        deadline = search.after(REFINED)
        changed = False
        for form in sorted(built.forms, key=lambda form: form.lower_bound):
            if search.seconds >= deadline or len(built.forms) < 2:
                break
            without = build(search, start.graph, start.actions, [f for f in built.forms if f is not form])
            if without.graph.hash == built.graph.hash:
                continue
            timed = time_cut(search, timer, _whole(built.graph, without.graph))
            if timed is not None and timed.ci95[0] > 0.0:
                built, changed = without, True
        if changed and search.can_measure:
            search.measure(built.graph, built.actions)


def _visit(search: Search, built: Built) -> Visit:
    return Visit(built.graph, search.measure(built.graph, built.actions), built.actions)


def _whole(before: Graph, after: Graph) -> Cut:
    return Cut(before, after, 1, f"{before.hash}:{after.hash}")
