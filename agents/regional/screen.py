"""Best-first search for chains of rewrites that make windows faster, by what the same rules gained before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from agents.core.base import Search
from agents.regional.chains import RewriteChain, Timer, time_cut
from agents.regional.experience import LoggedChain, LoggedRound
from agents.regional.gains import FURTHER, Effects, Key
from agents.regional.options import RegionalOptions
from agents.regional.prior import EffectPrior
from agents.regional.sites import RewriteStep, apply_all
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.latency.windows.thinning import thin
from graph_rewrite.latency.windows.trial import timed_part, trial_pair
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.task.site_windows import SiteClass, further_steps


@dataclass(frozen=True, slots=True)
class _WindowState:
    """A window after some steps."""

    site_class: SiteClass
    graph: Graph
    steps: tuple[RewriteStep, ...] = ()
    share: float = 0.0
    """Share of the window's time that is saved."""
    error: float = 0.0
    """Largest `error_growth` of its rules."""
    parts: tuple[float, ...] = ()
    """Seconds per inference that each step saved, after those before it."""
    logged: LoggedChain | None = None
    """The steps as they are logged; None before the first."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A possible next move: a step from a state, or (without sites) to list the steps that a state made possible."""

    state: _WindowState
    sites: tuple[Site, ...] = ()
    before: Graph | None = None
    after: Graph | None = None
    """The window after the step."""
    guess: float = 0.0
    """Share of the window's time that the step saves by arithmetic and memory traffic."""
    part: float = 1.0
    """Share of the window's time that is timed: what both sides have at its borders is mostly left out."""
    weights: int = 0
    """Bytes of weights that are written to time it."""
    insertions: tuple[tuple[Site, range], ...] = ()
    """The sites that the step rewrites, with the ids that their nodes and values come from."""
    predicted: float | None = None
    """Share of the window's time that a prior hopes the step to save; None where nothing is predicted."""

    @property
    def keys(self) -> list[Key]:
        """The keys of a step: the chain of rules, the families of the last two, and (to read only) the last rule. The
        key of a listing is the last rule: what it makes possible no other rule of its family shows."""
        steps = self.state.steps
        if not self.sites:
            return [(steps[-1].rule, FURTHER)]
        rule = self.sites[0].rule
        chain = (*(step.rule for step in steps), rule.name)
        return [chain, (steps[-1].family, rule.family), (rule.name,)] if steps else [chain]

    def hope(self, options: RegionalOptions, constant: bool = False) -> float:
        """Return the share of the window's time that the step may save, as long as nothing is known of it: the
        prior's, else the estimate, and something on top, since a change of layout or a fusion saves what no count of
        operations shows."""
        if self.predicted is not None and not constant:
            return self.predicted
        hope = options.optimism[min(len(self.state.steps), len(options.optimism) - 1)]
        return hope + max(self.guess, -options.doubt * hope)


class Screen:
    """Best-first search over chains of up to `depth` rewrites in the windows of a graph.

    The next attempt is the one that is expected to gain most over the best chain known at its nodes, per second of
    search: an unknown rule is expected to save what a count of its operations says and a share of the window, a known
    one what it saved in other windows, by itself or after the same rules.

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
        self,
        search: Search,
        timer: Timer,
        effects: Effects,
        graph: Graph,
        latency_s: float,
        options: RegionalOptions,
        logged: LoggedRound | None = None,
        prior: EffectPrior | None = None,
    ) -> None:
        self.search, self.timer, self.effects, self._logged, self._prior = search, timer, effects, logged, prior
        self._scale = latency_s / max(estimated_seconds(graph, graph.nodes), 1e-12)
        self.latency_s, self.options = latency_s, options
        self._weights = weight_bytes(search.problem.model.original)
        best = search.best
        self._original_s = latency_s if best is None or not best.latency.ok else best.latency.baseline_ms / 1e3
        self.tried: set[str] = set()
        """Keys of the classes of sites whose first step was timed."""
        self._seconds: dict[str, float] = {}
        self._best: dict[int, float] = {}
        """Seconds saved by the best chain known, by node of the whole graph."""

    def run(self, found: Iterable[SiteClass], until: Callable[[], bool]) -> list[RewriteChain]:
        """Return the chains that gain, until nothing promises enough or `until` says that time is up."""
        open_attempts = [
            attempt
            for site_class in found
            for attempt in self._attempts(_WindowState(site_class, site_class.window), [site_class.sites[:1]], until)
        ]
        chains = self._explore(open_attempts, until, curious=False)
        last = self.search.after(self.options.curiosity_share)
        return chains + self._explore(open_attempts, lambda: until() or self.search.seconds >= last, curious=True)

    def _explore(self, open_attempts: list[_Attempt], until: Callable[[], bool], curious: bool) -> list[RewriteChain]:
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
                continue
            state, chain = self._advance(attempt)
            if chain is not None:
                chains.append(chain)
            if (
                state is not None
                and len(state.steps) < self.options.depth
                and len(state.graph.nodes) <= self._widest(state)
            ):
                open_attempts.append(_Attempt(state, before=attempt.state.graph))
        return chains

    def _cost(self, attempt: _Attempt) -> float:
        """Return the seconds that an attempt may take, roughly; to list further steps costs little."""
        options, seconds = self.options, attempt.part * self._seconds_of(attempt.state.site_class)
        timing = options.attempt_runs * seconds + attempt.weights / options.written_bytes_s
        return options.attempt_s + (timing if attempt.sites else 0.0)

    def _seconds_of(self, site_class: SiteClass) -> float:
        """Return the seconds that a window takes, timed or estimated."""
        return self._seconds.get(site_class.key.partition(":")[2], self._scale * site_class.seconds)

    def _widest(self, state: _WindowState) -> int:
        return len(state.site_class.window.nodes) + self.options.widest

    def _promise(self, attempt: _Attempt, curious: bool) -> float:
        """Return the seconds that an attempt may save at all sites of its class, beyond what is known to be saved
        there. To the curious, a rule that was never tried may do so, whatever is predicted or its family did
        elsewhere."""
        site_class, keys = attempt.state.site_class, attempt.keys
        untried = curious and bool(attempt.sites) and not self.effects.knows(attempt.sites[0].rule.name)
        if untried:
            keys = keys[:1]
        fading = self.options.fading[min(len(attempt.state.steps), 1)]
        # What a loss makes possible is looked at whatever the loss: that is what chains are for.
        before = attempt.state.share if attempt.sites else max(attempt.state.share, 0.0)
        share = self.effects.expected(keys, before, attempt.hope(self.options, untried), fading)
        known = max((self._best.get(node, 0.0) for node in site_class.touched), default=0.0)
        return len(site_class.sites) * self._seconds_of(site_class) * min(share, self.options.most_saved) - known

    def _children(self, attempt: _Attempt, until: Callable[[], bool]) -> list[_Attempt]:
        """Return the steps that the last one made possible, a rule at all its sites, where they touch what the chain
        brought in. What a neighbour gains by itself is its own window's business."""
        state, rewriter = attempt.state, self.search.problem.rewriter
        assert attempt.before is not None
        groups = further_steps(rewriter, state.site_class.window, attempt.before, state.graph)
        if not groups:
            self.effects.record(attempt.keys, 0.0)
        return self._attempts(state, groups.values(), until)

    def _attempts(
        self, state: _WindowState, groups: Iterable[tuple[Site, ...]], until: Callable[[], bool]
    ) -> list[_Attempt]:
        """Return steps from a state, each with the graph it leads to and what it saves by a count of its operations."""
        attempts = []
        here, whole = estimated_seconds(state.graph, state.graph.nodes), max(state.site_class.seconds, 1e-12)
        for group in groups:
            if until() or not self.search.can_apply:
                break
            insertions: list[tuple[Site, range]] = []
            after = apply_all(self.search, state.graph, group, lambda *site, into=insertions: into.append(site))
            if after is not None:
                guess = (here - estimated_seconds(after, after.nodes)) / whole
                before = thin(state.site_class.window, after)[0]
                part = timed_part(state.site_class.window, before)
                weights = weight_bytes(before)
                attempts.append(_Attempt(state, group, None, after, guess, part, weights, tuple(insertions)))
        if self._prior is None:
            return attempts
        steps = [Candidate("class" if len(one.sites) > 1 else "site", state.graph, one.sites) for one in attempts]
        hopes = self._prior.hopes(steps, state.share, len(state.steps))
        return [replace(one, predicted=hope) for one, hope in zip(attempts, hopes, strict=True)]

    def _advance(self, attempt: _Attempt) -> tuple[_WindowState | None, RewriteChain | None]:
        """Take a step in its window and time it. Return the state after it, and the chain it makes where that gains."""
        state, site_class = attempt.state, attempt.state.site_class
        first = not state.steps
        after = attempt.after
        assert after is not None
        cut = trial_pair(site_class.window, after, len(site_class.sites))
        logged = self._logged_chain(attempt)
        timed = time_cut(self.search, self.timer, cut, note=logged.noting("scan", self.options.scan))
        self.tried.add(site_class.key)
        if timed is None:
            self.effects.record(attempt.keys[:2], -1.0)
            return None, None
        window_seconds = self._seconds[site_class.key.partition(":")[2]] = timed.window_seconds / attempt.part
        share = timed.seconds / len(site_class.sites) / window_seconds
        for node in site_class.touched:
            self._best[node] = max(
                self._best.get(node, 0.0), timed.seconds - self._price(self._growth(site_class, after))
            )
        self.effects.record(attempt.keys[:2], share - state.share)
        if not first:
            self.effects.record(_Attempt(state).keys, max(share - max(state.share, 0.0), 0.0))
        site = attempt.sites[0]
        error = max(state.error, site.rule.error_growth)
        reached = _WindowState(
            site_class,
            after,
            (*state.steps, RewriteStep(site.class_key, site.rule.name, site.rule.family)),
            share,
            error,
            (*state.parts, timed.seconds - sum(state.parts)),
            logged,
        )
        return reached, self._chain(reached, timed, cut)

    def _chain(self, state: _WindowState, timed: Difference, cut: WindowPair) -> RewriteChain | None:
        if state.share < self.options.least_saved:
            return None
        site_class = state.site_class
        gone = site_class.window.nodes.keys() - state.graph.nodes.keys()
        nodes = frozenset(node.id for site in site_class.sites for node in site.removed) | gone
        growth = self._growth(site_class, state.graph)
        return RewriteChain(
            state.steps,
            frozenset(site.anchor for site in site_class.sites),
            nodes,
            timed.seconds,
            (timed.ci95[1] - timed.ci95[0]) / 2,
            growth,
            state.error,
            cut,
            self._price(growth),
            state.parts,
            state.logged or LoggedChain(),
        )

    def _logged_chain(self, attempt: _Attempt) -> LoggedChain:
        """Return the steps of an attempt as they are logged."""
        state, after = attempt.state, attempt.after
        if self._logged is None or after is None:
            return LoggedChain()
        before = state.logged or self._logged.window(state.site_class)
        return before.then(attempt.sites, attempt.insertions, after, attempt.part)

    @staticmethod
    def _growth(site_class: SiteClass, after: Graph) -> int:
        """Return the bytes of weights that a chain adds at all sites of its class."""
        return len(site_class.sites) * (weight_bytes(after) - weight_bytes(site_class.window))

    def _price(self, growth: int) -> float:
        """Return the seconds per inference that added weights must save."""
        return self.search.problem.limits.price_of(self._weights, growth) * self._original_s
