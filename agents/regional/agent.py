"""The agent `regional`: chains of rewrites chosen in windows, put together, judged and refined end to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from agents.conclusion.conclude import conclude
from agents.conclusion.last_look import roofline_seconds
from agents.conclusion.stopping import lead_needs_time
from agents.core.base import Budget, OptimizationResult, Search, Visit
from agents.core.records import supposed
from agents.effects.own_means import remember
from agents.greedy import GreedyAgent, MeasuredGraph
from agents.regional.assembly import AssembledGraph, best_of
from agents.regional.beginning.fitting import fitted
from agents.regional.beginning.proved_drafts import ProvedDrafts, classes_of
from agents.regional.beginning.refusals import refusing, sure_refusals
from agents.regional.chains import RewriteChain, Timer
from agents.regional.drafting import NO_DRAFT, MeasuredDraft
from agents.regional.experience import LoggedRound
from agents.regional.finishing import Finishing, keeps_promise
from agents.regional.gains import Effects
from agents.regional.joint_rewrites import is_small, sweep, sweep_is_short, sweep_on, tidy
from agents.regional.judgement import fastest_of, judge, judging_seconds, refine, within_bounds
from agents.regional.options import DEFAULTS, RegionalOptions
from agents.regional.prior import Prior, prior_of
from agents.regional.retiming import retime
from agents.regional.screen import Screen
from agents.searching.deployment_search import search_deployment
from agents.searching.known_starts import Start, measure_starts
from agents.searching.session_search import search_session, start_under_settings
from graph_rewrite.experience.log import ExperienceLog
from graph_rewrite.latency import MeasurementCache, Plan
from graph_rewrite.latency.windows import WindowMeter, traffic_of
from graph_rewrite.rewriting.deployment_choices import LOCAL_CHOICES
from graph_rewrite.task.problem import Problem


class RegionalAgent:
    """Search by windows. Measuring a whole model for every candidate takes seconds each; a window around one site of
    a class takes a fraction of one, and resolves more.

    In rounds, while the model gains:

    0. *Draft*, before the first round: the chains that other models say will save are put together, the doubtful ones
       after a timing in their windows, and measured end to end; then finished, as in 5. Where a rule gains that others
       carry on (see below), the draft begins with what that gives. Else optimisers of ONNX Runtime that surely cost
       more than they save, by windows around what they fuse, are refused first, in the draft and in the first round.
    1. *Screen*: in the window of each class of sites, chains of up to `depth` rewrites are tried and timed
       (`WindowMeter`), best first by what the same rules gained in other windows. A chain may begin with a loss.
    2. *Choose*: for each class the chain that saves most, classes that overlap by what they save, within the limits.
    3. *Judge*: the chains are applied to the whole graph, which is measured end to end.
    4. *Refine*: each chain is taken out again, the most doubtful first, and stays out where that is faster end to
       end; then operators that cancel between neighbours are taken out.
    5. *Finish*: rules that cover parts of the model are applied to the result, which is measured again (`Finishing`);
       also to the original, before the first round.

    Before all this, rules that others carry on are tried at all their sites at once (`sweep`), where something cancels
    between them. Where a round gains nothing, so are all others, and another round follows where that gains. Where no
    draft gains and that takes little time, they are tried before the first round too.
    The session settings of the best graph are then chosen (`search_session`). What is left of the budget goes into
    climbing by whole models (`GreedyAgent`, with a beam and look-ahead), which finds what no window shows, and in the
    end into the deployment choices. Windows are timed on the threads of the deployment; their times are kept on disk by
    the windows' content.

    Args:
        options: settings of the search.
        timer: makes what times windows; by default a `WindowMeter` of the problem's deployment.
        log: logs what is timed; by default the user's store of experience, as the options say. Then what was timed on
            the CPU also corrects the forecasts of later searches (`agents.effects.own_means`). It is
            flushed and closed at the end of a search, and may be used for the next.
        cache: keeps times of windows by their content; by default the user's, as the options say.
    """

    name = "regional"

    def __init__(
        self,
        options: RegionalOptions = DEFAULTS,
        *,
        timer: Callable[[Problem], Timer] | None = None,
        log: ExperienceLog | None = None,
        cache: MeasurementCache | None = None,
    ) -> None:
        self.options, self.timer = options, timer
        self._cache = cache
        self.log = log or (ExperienceLog.default() if options.experience else ExperienceLog(None))
        self._is_users = log is None
        self.starts: Sequence[Start] = ()
        """Graphs to begin with, beside the problem's own; those found elsewhere are fitted to this machine."""
        self.prior_for: Callable[[Problem], Prior] | None = None
        """Makes the prior of the screen for a problem, in place of the one that the options name."""
        self._prior: Prior | None = None
        self._own: Start
        self._refused: dict[str, frozenset[int]]

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        """Search within the budget; only the climb by whole models draws at random."""
        search = Search(problem, budget, progress)
        with search.running():
            self.explore(search, seed)
        return conclude(search, self.name)

    def explore(self, search: Search, seed: int = 0) -> None:
        """Search without confirming what was found: `search` has the best graph."""
        problem, options = search.problem, self.options
        scan, careful = self._timer(problem, options.scan), self._timer(problem, options.careful)
        made = self.prior_for
        self._prior = prior_of(options.prior, problem.deployment) if made is None else made(problem)
        self._own = own = start_under_settings(search)
        self._refused = {}
        effects, tried, finishing = Effects(), set[str](), Finishing(search, options.most_sites, own.graph, scan)
        try:
            if self.starts:
                measure_starts(search, self.starts, lambda start: fitted(search, careful, start))
            joined, draft = self._joined(search, effects), NO_DRAFT
            # What other models say was timed on CPUs.
            if options.draft and problem.deployment.facts.is_cpu and not (self.starts or search.proposed):
                if joined:
                    ProvedDrafts(search, scan, self._prior, options, self.log).measure_further()
                else:
                    draft = self._draft(search, scan, finishing)
            if draft.is_last or search.proposed or lead_needs_time(search):
                return
            search.measure(problem.model.graph, ())
            if own.actions and search.can_measure and self._settings_lead(search):
                draft = NO_DRAFT
            known = LOCAL_CHOICES if draft.chains else frozenset[str]()
            search_deployment(search, margin=options.beginning_margin, share=options.deployment_share, without=known)
            finishing.finish(finishing.start)
            if finishing.original_leads():
                draft = NO_DRAFT
            if self._sweeps_first(search, effects, drafted=bool(draft.chains)):
                draft = NO_DRAFT
            if not problem.deployment.facts.is_cpu:  # there settings gain more than rewrites, and decide which ones pay
                search_session(search, options.session_share, options.beginning_margin)
            for _ in range(options.rounds):
                gained = not search.exhausted and self._round(
                    search, scan, careful, effects, tried, draft.chains, finishing
                )
                if lead_needs_time(search):
                    return
                if gained or finishing.goes_on_from_finished():
                    continue
                if not sweep_on(search, search.best, effects, options, search.after(options.share)):
                    break
        finally:
            scan.close()
            careful.close()
            self.log.close()
            if self._is_users and self.log.is_on:
                remember(effects.steps.timed, problem.deployment)
        search_session(search, options.session_share)
        if options.climb:
            self._climb(search, seed)
        search_deployment(search)

    def _timer(self, problem: Problem, plan: Plan) -> Timer:
        if self.timer is not None:
            return self.timer(problem)
        return WindowMeter(
            problem.deployment, workspace=problem.workspace, plan=plan, budget_s=0.0,
            exchange=plan is not self.options.scan, traffic=traffic_of(problem.model.graph),
            timeout_s=self.options.timeout_s,
            cache=self._cache or (MeasurementCache() if self.options.cache else None),
        )  # fmt: skip

    def _draft(self, search: Search, scan: Timer, finishing: Finishing) -> MeasuredDraft:
        """Measure a draft before anything else, as it is and finished."""
        own, options = self._own, self.options
        seconds = roofline_seconds(search.problem)
        start = supposed(own.graph, 1e3 * seconds, own.actions)
        self._refused = sure_refusals(search, scan, own.graph, seconds)
        start = refusing(search, start, self._refused)
        wary = frozenset[int]().union(*self._refused.values())
        drafts = ProvedDrafts(search, scan, self._prior, options, self.log, wary)
        assembly = drafts.draft(start)
        if assembly is None:
            return NO_DRAFT
        draft = finishing.measured_draft(assembly, seconds)
        if not draft.is_last and len(assembly.chains) > 1:
            draft = finishing.measured_part(start, assembly, draft, options)
            draft = self._sure_part(start, drafts, assembly, draft, finishing)
        drafts.tell()
        return draft

    def _sure_part(
        self, start: Visit, drafts: ProvedDrafts, assembly: AssembledGraph, draft: MeasuredDraft, finishing: Finishing
    ) -> MeasuredDraft:
        """Measure the chains that surely save by themselves of a draft that keeps little of its promise, as they are
        and finished, if there is time. Return the better draft."""
        search, options, seconds = drafts.search, self.options, start.latency.ms / 1e3
        if any(keeps_promise(visit, assembly, seconds) for visit in search.visits.values()):
            return draft
        if search.seconds + judging_seconds(search) >= search.allowed or not search.can_measure:
            return draft
        last = search.after(options.doubting_share)
        sure = drafts.surely_save(start, assembly, lambda: search.seconds >= last)
        sure = sure or [max(assembly.chains, key=lambda chain: chain.lower_bound)]
        if len(sure) == len(assembly.chains):
            return draft
        found = fastest_of(search)
        part = finishing.measured_draft(within_bounds(search, start, sure, options), seconds)
        return part if fastest_of(search) > found else draft

    def _settings_lead(self, search: Search) -> bool:
        """Measure the graph that the search begins with. Return whether its session settings alone give the best
        graph, so that what was drafted under them gains nothing."""
        search.measure(self._own.graph, self._own.actions)
        return search.best is search.visits[self._own.graph.hash]

    def _round(
        self, search: Search, scan: Timer, careful: Timer, effects: Effects, tried: set[str],
        drafted: Sequence[RewriteChain], finishing: Finishing,
    ) -> bool:  # fmt: skip
        """Screen, choose, judge, refine and finish, from the best graph so far; in the first round from the original,
        where drafted chains are known to save. Return whether that gained."""
        options, drafted = self.options, () if tried else drafted
        start = finishing.start
        if drafted:
            start = refusing(search, search.visits[self._own.graph.hash], self._refused)
        if start is None or not start.latency.ok:
            return False
        found = [site_class for site_class in classes_of(search, start.graph, options) if site_class.key not in tried]
        logged = LoggedRound(self.log, search, start) if self.log.is_on else None
        screen = Screen(search, scan, effects, start.graph, start.latency.ms / 1e3, options, logged, self._prior)
        latest = search.allowed - judging_seconds(search)  # what no graph is put together of was timed for nothing
        deadline = min(search.after(options.share), latest)
        chains = screen.run(found, lambda: search.seconds >= deadline, drafted)
        tried |= screen.tried
        last = min(search.after(options.retiming_share), latest)
        chains = retime(search, careful, chains, lambda: search.seconds >= last, options)
        chosen = best_of([*chains, *screen.standing])
        if chosen and not search.exhausted:
            assembly = judge(search, start, chosen, options)
            refine(search, careful, start, assembly, options, finishing.seconds)
            self._tidy(search, start, finishing.start)
        best = finishing.start
        finishing.finish(best)
        if best is None:
            return False
        return search.worth(best.graph, best.latency) > search.worth(start.graph, start.latency) * (1.0 + options.gain)

    def _joined(self, search: Search, effects: Effects) -> bool:
        """Try the rules that others carry on, each at all its sites: what they gain shows in no window. Return whether
        one gained."""
        own, options = self._own, self.options
        best = search.best or supposed(own.graph, 1e3 * roofline_seconds(search.problem), own.actions)
        if not best.latency.ok:
            return False
        clear, last = replace(options, gain=options.beginning_margin), search.after(options.joining_share)
        return sweep(search, best, effects, clear, lambda: search.seconds >= last, carried_only=True) is not None

    def _sweeps_first(self, search: Search, effects: Effects, *, drafted: bool) -> bool:
        """Sweep the original before the first round, if that takes little time; beside a draft that gains only where
        the model is small, under the deployment choices that gain without the draft. Return whether that gave the best
        graph."""
        options, own, before = self.options, self._own.graph, search.best
        if not drafted and sweep_is_short(search, own, effects, options):
            sweep_on(search, before, effects, options, search.after(options.share))
        elif drafted and own.hash in search.visits and is_small(search, options):
            last, margin = search.after(options.small_sweep_share), options.beginning_margin
            start = search_deployment(search, search.visits[own.hash], margin, options.deployment_share)
            sweep_on(search, start, effects, options, last)
        return search.best is not before

    def _climb(self, search: Search, seed: int) -> None:
        """Go on from the best graph so far by measuring whole models."""
        best = search.best
        if best is not None and best.latency.ok and not search.exhausted:
            start = MeasuredGraph(best.graph, best.actions, best.latency.speedup)
            options = self.options
            climber = GreedyAgent(
                beam=options.climb_beam, depth=options.climb_depth, lookahead=options.climb_lookahead, racing=True
            )
            climber.climb(search, start, np.random.default_rng(seed))

    def _tidy(self, search: Search, start: Visit, best: Visit | None) -> None:
        """Take out what cancels between neighbours of the best graph so far."""
        if best is None or not search.can_measure:
            return
        graph, actions = tidy(search, best.graph, best.actions, start.graph.next_id, self.options.most_sites)
        if graph is not best.graph:
            search.measure(graph, actions)
