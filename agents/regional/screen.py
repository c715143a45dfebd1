"""Best-first search for chains of rewrites that make windows faster, by what the same rules gained before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from agents.core.base import Search
from agents.effects.timed_steps import StepInSearch
from agents.regional.attempts import Attempt, AttemptLists, WindowState, reached
from agents.regional.chains import RewriteChain, Timer, time_cut
from agents.regional.drafting import Drafter
from agents.regional.experience import LoggedChain, LoggedRound
from agents.regional.gains import Effects, KnownSavings
from agents.regional.options import RegionalOptions
from agents.regional.prior import ChainPolicy, Prior, StepPrior
from agents.regional.proposals import Proposer
from agents.regional.sites import removed_by_site
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.latency.windows.trial import trial_pair
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.task.site_windows import SiteClass


class Screen:
    """Best-first search over chains of up to `depth` rewrites in the windows of a graph.

    The next attempt is the one that is expected to gain most over the best chain known at its nodes, per second of
    search: an unknown rule is expected to save what a count of its operations says and a share of the window, a known
    one what it saved in other windows, by itself or after the same rules. Where the prior is a policy that proposes
    chains, these are timed first, each as a whole.

    Args:
        search: its applications and seconds are spent.
        timer: times windows.
        effects: what is known of rules; it learns.
        graph: the whole model.
        latency_s: of the whole model, in seconds; guesses for windows are scaled so that they add up to it.
        options: settings of the search.
        logged: logs what is timed; by default nothing is.
        prior: predicts what steps save that are not known yet; by default constants of `options` do.
    """

    def __init__(
        self, search: Search, timer: Timer, effects: Effects, graph: Graph, latency_s: float, options: RegionalOptions,
        logged: LoggedRound | None = None, prior: Prior | None = None,
    ) -> None:  # fmt: skip
        self.search, self.timer, self.effects = search, timer, effects
        self._lists, self._prior = AttemptLists(search, logged, prior), prior
        self.scale = latency_s / estimated_seconds(graph)
        """What estimated seconds are multiplied by in what chains save."""
        self.latency_s, self.options, self._graph = latency_s, options, graph
        self._weights = weight_bytes(search.problem.model.original)
        best = search.best
        self._original_s = latency_s if best is None or not best.latency.ok else best.latency.baseline_ms / 1e3
        self._hopeful = 0.0
        """Standard deviations above its mean that a forecast is hoped to reach."""
        self.tried: set[str] = set()
        """Keys of the classes of sites whose first step was timed."""
        self._seconds: dict[str, float] = {}
        self._known = KnownSavings()
        self._proved: list[RewriteChain] = []
        self._drafted = KnownSavings()
        """What drafted chains are forecast to save, as long as these stand in for known ones."""
        self._removed: dict[str, frozenset[int]] = {}
        """Nodes that the sites of classes remove, by the classes' keys."""

    def run(
        self,
        found: Iterable[SiteClass],
        until: Callable[[], bool],
        drafted: Sequence[RewriteChain] = (),
    ) -> list[RewriteChain]:
        """Return the chains that gain, until nothing promises enough or `until` says that time is up.

        Args:
            found: the classes of sites to look at.
            until: says that time is up.
            drafted: chains that are known to save together: at their nodes what promises more is timed first.
        """
        first = self._first(found, until)
        self._proved = list(drafted)
        for chain in drafted:
            self._drafted.add(chain.cut.key, chain.sites, chain.net)
        if isinstance(self._prior, ChainPolicy):  # forecasts of steps that it does not propose follow then
            chains, open_attempts = self._proposed(first, self._prior, until)
        else:
            chains, open_attempts = [], self._told(first)
        if drafted:
            self._hopeful = self.options.hopeful[0]
            chains += self._explore(open_attempts, until, curious=False)
            self._drafted.clear()
        for hopeful in self.options.hopeful:
            self._hopeful = hopeful
            chains += self._explore(open_attempts, until, curious=False)
        last = self.search.after(self.options.curiosity_share)
        return chains + self._explore(open_attempts, lambda: until() or self.search.seconds >= last, curious=True)

    @property
    def standing(self) -> list[RewriteChain]:
        """The drafted chains that were proved and in whose windows nothing was timed since: they are still the best
        that is known there."""
        return [chain for chain in self._proved if chain.cut.key not in self.tried]

    def forecast(self, found: Iterable[SiteClass], until: Callable[[], bool]) -> list[RewriteChain]:
        """Return chains that are forecast to save, which may overlap, and time nothing.

        Args:
            found: the classes of sites to look at.
            until: says that time is up.
        """
        first = self._told(self._first(found, until))
        last = self.search.after(self.options.drafting_share)
        worth = self.options.worth * self.latency_s
        drafter = Drafter(self._lists, self.options, self._seconds_of_all, self._forecast_chain, worth)
        return drafter.chains(first, lambda: until() or self.search.seconds >= last)

    def _first(self, found: Iterable[SiteClass], until: Callable[[], bool]) -> list[Attempt]:
        return [step for site_class in found for step in self._lists.first(site_class, until)]

    def _told(self, first: list[Attempt]) -> list[Attempt]:
        """Return first steps with what the prior says of them; a policy alone predicts as it proposes."""
        if isinstance(self._prior, ChainPolicy) and not isinstance(self._prior, StepPrior):
            return first
        return [one for step in first for one in self._lists.predicted([step])]

    def _forecast_chain(self, state: WindowState, seconds: float) -> RewriteChain | None:
        """Return a chain that is not timed, neither as a whole nor by its steps; its cut bears the key of its class."""
        site_class = state.site_class
        cut = WindowPair(site_class.window, state.graph, len(site_class.sites), site_class.key)
        chain = self._chain(state, seconds, 0.0, cut)
        return None if chain is None else replace(chain, parts=())

    def _proposed(
        self, first: list[Attempt], policy: ChainPolicy, until: Callable[[], bool]
    ) -> tuple[list[RewriteChain], list[Attempt]]:
        """Time the chains that a policy proposes, in the order of what they are predicted to save per second of search.
        Return those that gain, and the attempts that stay open."""
        last = self.search.after(self.options.proposing_share)
        proposer = Proposer(
            self._lists, policy, self.options, self._seconds_of_all, self.options.worth * self.latency_s
        )
        proposals, open_attempts = proposer.propose(first, lambda: until() or self.search.seconds >= last)
        open_attempts = [self._opened(one) for one in open_attempts]
        chains: list[RewriteChain] = []
        last = self.search.after(self.options.proposing_share)
        for attempt in sorted(proposals, key=lambda one: -self._promise(one, False) / self._cost(one)):
            # By now another chain may have been found there, or what the rule saved elsewhere may say otherwise.
            promising = self._promise(attempt, False) >= self.options.worth * self.latency_s
            if promising and not until() and self.search.can_apply and self.search.seconds < last:
                self._take(attempt, open_attempts, chains, until)
            elif not attempt.state.steps:
                open_attempts.append(self._opened(attempt))
        return chains, open_attempts

    def _opened(self, attempt: Attempt) -> Attempt:
        """Return a first step that is not timed as proposed: where means forecast steps, they do, as without a
        policy."""
        if not isinstance(self._prior, StepPrior):
            return attempt
        return self._lists.predicted([replace(attempt, predicted=None)])[0]

    def _explore(self, open_attempts: list[Attempt], until: Callable[[], bool], curious: bool) -> list[RewriteChain]:
        """Return the chains that gain, by the attempts that promise enough and those that they lead to; the others stay
        open."""
        chains: list[RewriteChain] = []
        while open_attempts and not until() and self.search.can_apply:
            promising = [(self._promise(attempt, curious), i) for i, attempt in enumerate(open_attempts)]
            promising = [(gain, i) for gain, i in promising if gain >= self.options.worth * self.latency_s]
            if not promising:
                break
            # What is gained per second of search: windows with large weights take long to write and to open.
            attempt = open_attempts.pop(
                max(promising, key=lambda p: (p[0] / self._cost(open_attempts[p[1]]), -p[1]))[1]
            )
            if not attempt.sites:
                open_attempts += self._children(attempt, until)
            else:
                self._take(attempt, open_attempts, chains, until)
        return chains

    def _take(
        self, attempt: Attempt, open_attempts: list[Attempt], chains: list[RewriteChain], until: Callable[[], bool]
    ) -> None:
        """Take a step and time it, and what follows it; add the chains that these make where they gain, and the listing
        of further steps."""
        following: Attempt | None = attempt
        while following is not None:
            attempt = following
            state, chain = self._advance(attempt)
            if chain is not None:
                chains.append(chain)
            if state is None:
                break
            following = self._lists.following(state, until)
            if following is None and state.may_go_on(self.options):
                open_attempts.append(Attempt(state, before=attempt.state.graph))

    def _cost(self, attempt: Attempt) -> float:
        """Return the seconds that an attempt may take, roughly; to list further steps costs little."""
        options, seconds = self.options, attempt.part * self._seconds_of(attempt.state.site_class)
        timing = options.attempt_runs * seconds + attempt.weights / options.written_bytes_s
        return options.attempt_s + (timing if attempt.sites else 0.0)

    def _seconds_of(self, site_class: SiteClass) -> float:
        """Return the seconds that a window takes, timed or estimated."""
        return self._seconds.get(site_class.key.partition(":")[2], self.scale * site_class.seconds)

    def _seconds_of_all(self, site_class: SiteClass) -> float:
        """Return the seconds per inference that all windows of a class take."""
        return len(site_class.sites) * self._seconds_of(site_class)

    def _promise(self, attempt: Attempt, curious: bool) -> float:
        """Return the seconds that an attempt may save at all sites of its class, beyond what is known to be saved
        there. To the curious, a rule that was never tried may do so, whatever is predicted or its family did
        elsewhere."""
        site_class = attempt.state.site_class
        share = attempt.move.promise(self.effects, self.options, self._hopeful, curious)
        nodes = self._removed.get(site_class.key)
        if nodes is None:
            by_site = (removed for _, removed in removed_by_site(site_class, self._graph))
            nodes = self._removed[site_class.key] = frozenset().union(*by_site)
        known = max(self._known.at(nodes), self._drafted.at(nodes))
        return self._seconds_of_all(site_class) * share - known

    def _children(self, attempt: Attempt, until: Callable[[], bool]) -> list[Attempt]:
        """Return the steps that the last one made possible."""
        assert attempt.before is not None
        groups = self._lists.groups(attempt.state, attempt.before)
        if not groups:
            self.effects.record(attempt.keys, 0.0)
        return self._lists.predicted(self._lists.steps(attempt.state, groups, until))

    def _advance(self, attempt: Attempt) -> tuple[WindowState | None, RewriteChain | None]:
        """Take a step in its window and time it. Return the state after it, and the chain it makes where that gains."""
        state, site_class = attempt.state, attempt.state.site_class
        first = not state.steps
        after = attempt.after
        assert after is not None
        cut = trial_pair(site_class.window, after, len(site_class.sites))
        logged = self._lists.chain_of(attempt)
        timed = time_cut(self.search, self.timer, cut, note=logged.noting("scan", self.options.scan))
        self.tried.add(site_class.key)
        if timed is None:
            self.effects.record(attempt.keys[:2], -1.0)
            self._learn(attempt, None, 0.0)
            return None, None
        window_seconds = self._seconds[site_class.key.partition(":")[2]] = timed.window_seconds / attempt.part
        all_seconds = len(site_class.sites) * window_seconds
        share, half = timed.seconds / all_seconds, timed.half
        saved = timed.seconds - self._price(self._growth(site_class, after))
        self._known.add(site_class.key, removed_by_site(site_class, self._graph), saved)
        self.effects.record(attempt.keys[:2], share - state.share)
        if not first:
            self.effects.record(Attempt(state).keys, max(share - max(state.share, 0.0), 0.0))
        learnt = self._learn(attempt, share, half / all_seconds)
        after_it = replace(reached(attempt, share, timed.seconds, logged), timed=learnt)
        return after_it, self._chain(after_it, timed.seconds, half, cut)

    def _learn(self, attempt: Attempt, share: float | None, half: float) -> StepInSearch | None:
        """Learn what the chain with a step saves of its window's time, within `half`; nothing of the step where the
        chain before it was not timed."""
        state = attempt.state
        if state.steps and state.timed is None:
            return None
        return self.effects.steps.add(self._lists.chain_step(attempt), share, half, state.timed)

    def _chain(self, state: WindowState, seconds: float, half: float, cut: WindowPair) -> RewriteChain | None:
        if state.share < self.options.least_saved:
            return None
        site_class = state.site_class
        gone = site_class.window.nodes.keys() - state.graph.nodes.keys()
        sites = removed_by_site(site_class, self._graph, gone)
        growth = self._growth(site_class, state.graph)
        return RewriteChain(
            state.steps,
            frozenset(anchor for anchor, _ in sites),
            frozenset().union(*(removed for _, removed in sites)),
            seconds,
            half,
            growth,
            state.error,
            cut,
            self._price(growth),
            state.parts,
            state.logged or LoggedChain(),
            sites,
        )

    @staticmethod
    def _growth(site_class: SiteClass, after: Graph) -> int:
        """Return the bytes of weights that a chain adds at all sites of its class."""
        return len(site_class.sites) * (weight_bytes(after) - weight_bytes(site_class.window))

    def _price(self, growth: int) -> float:
        """Return the seconds per inference that added weights must save."""
        return self.search.problem.limits.price_of(self._weights, growth) * self._original_s
