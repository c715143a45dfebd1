"""Attempts: possible next moves in windows, and the listing of those that a state offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from agents.core.base import Search
from agents.effects.step_means import ChainStep, Forecast
from agents.effects.timed_steps import StepInSearch
from agents.regional.experience import LoggedChain, LoggedRound
from agents.regional.gains import FURTHER, Key, NextMove
from agents.regional.options import RegionalOptions
from agents.regional.prior import Prior, StepPrior
from agents.regional.sites import RewriteStep, apply_all, is_near
from graph_rewrite.experience.describing import shape_class_at
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.latency.windows.thinning import thin
from graph_rewrite.latency.windows.trial import timed_part
from graph_rewrite.replay import fingerprint
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.task.site_windows import SiteClass, further_steps


def candidate_of(graph: Graph, sites: tuple[Site, ...]) -> Candidate:
    """Return a step as a candidate of its window."""
    return Candidate("class" if len(sites) > 1 else "site", graph, sites)


@dataclass(frozen=True, slots=True)
class WindowState:
    """A window after some steps."""

    site_class: SiteClass
    graph: Graph
    steps: tuple[RewriteStep, ...] = ()
    share: float = 0.0
    """Share of the window's time that is saved; predicted where the steps were not timed."""
    error: float = 0.0
    """Largest `error_growth` of its rules."""
    parts: tuple[float, ...] = ()
    """Seconds per inference that each step saved, after those before it; predicted where it was not timed."""
    logged: LoggedChain | None = None
    """The steps as they are logged; None before the first."""
    passed: frozenset[str] = frozenset()
    """Fingerprints of the graphs before each step."""
    timed: StepInSearch | None = None
    """The last step; None before the first, and where it was not timed by itself."""
    following: tuple[str, ...] = ()
    """Names of the rules that follow those of its steps (`Rule.followed_by`)."""

    def may_go_on(self, options: RegionalOptions) -> bool:
        """Return whether further steps are looked for. Those that followed others do not count."""
        depth = sum(not step.follows for step in self.steps)
        widest = len(self.site_class.window.nodes) + options.widest
        return depth < options.depth and len(self.graph.nodes) <= widest

    def was(self, graph: Graph) -> bool:
        """Return whether a graph is like one before a step: a step there takes back what others did, and saves what was
        saved then."""
        return bool(self.passed) and fingerprint(graph) in self.passed


@dataclass(frozen=True, slots=True)
class Attempt:
    """A possible next move: a step from a state, or (without sites) to list the steps that a state made possible."""

    state: WindowState
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
    forecast: Forecast | None = None
    """What is known of the step from other models; None where nothing is."""

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

    @property
    def candidate(self) -> Candidate:
        """The step as a candidate of its window."""
        return candidate_of(self.state.graph, self.sites)

    @property
    def move(self) -> NextMove:
        """The attempt by what is known of it."""
        state = self.state
        return NextMove(self.keys, len(state.steps), state.share, self.guess, self.predicted, self.forecast)


class AttemptLists:
    """Lists the steps that states of windows offer, as attempts.

    Args:
        search: its applications and seconds are spent.
        logged: logs what is timed; by default nothing is.
        prior: predicts what steps save; by default nothing is predicted.
    """

    def __init__(self, search: Search, logged: LoggedRound | None = None, prior: Prior | None = None) -> None:
        self.search, self._logged, self._prior = search, logged, prior
        self._windows: dict[str, tuple[str, str]] = {}
        """Classes of shapes and fingerprints of windows, by the keys of classes of sites."""

    def first(self, site_class: SiteClass, until: Callable[[], bool]) -> list[Attempt]:
        """Return the step that the window of a class was cut out for; none where it cannot be taken."""
        return self.steps(WindowState(site_class, site_class.window), [site_class.sites[:1]], until)

    def groups(self, state: WindowState, before: Graph) -> list[tuple[Site, ...]]:
        """Return the steps that the last one made possible, a rule at all its sites, where they touch what the chain
        brought in. What a neighbour gains by itself is its own window's business.

        Args:
            state: the window after the last step.
            before: the window before it.
        """
        rewriter, window = self.search.problem.rewriter, state.site_class.window
        return list(further_steps(rewriter, window, before, state.graph).values())

    def following(self, state: WindowState, until: Callable[[], bool]) -> Attempt | None:
        """Return the step by the first of the rules that follow the steps so far, at all its sites where it matches or
        reads what these brought in; None where there are none, and where time is up."""
        brought_in = state.graph.nodes.keys() - state.site_class.window.nodes.keys()
        offered = self.search.problem.rewriter.sites(state.graph) if state.following and not until() else []
        for name in state.following:
            sites = tuple(
                site for site in offered
                if site.rule.name == name and is_near(state.graph, site, brought_in, or_reads=True)
            )  # fmt: skip
            if sites and (steps := self.steps(state, [sites], until)):
                return self.predicted(steps)[0]
        return None

    def steps(self, state: WindowState, groups: Iterable[tuple[Site, ...]], until: Callable[[], bool]) -> list[Attempt]:
        """Return steps from a state, each with the graph it leads to and what it saves by a count of its operations,
        until time is up."""
        attempts = []
        here, whole = estimated_seconds(state.graph), state.site_class.seconds
        for group in groups:
            if until() or not self.search.can_apply:
                break
            insertions: list[tuple[Site, range]] = []
            after = apply_all(self.search, state.graph, group, lambda *site, into=insertions: into.append(site))
            if after is not None and not state.was(after):
                guess = (here - estimated_seconds(after)) / whole
                before = thin(state.site_class.window, after)[0]
                part = timed_part(state.site_class.window, before)
                weights = weight_bytes(before)
                attempts.append(Attempt(state, group, None, after, guess, part, weights, tuple(insertions)))
        return attempts

    def predicted(self, attempts: list[Attempt]) -> list[Attempt]:
        """Return steps of one state with what the prior says that they save."""
        prior = self._prior
        if prior is None or not attempts:
            return attempts
        state, steps = attempts[0].state, [one.candidate for one in attempts]
        if isinstance(prior, StepPrior):
            found = prior.forecasts(steps, list(map(self.chain_step, attempts)), state.share, len(state.steps))
            return [replace(one, forecast=forecast) for one, forecast in zip(attempts, found, strict=True)]
        hopes = prior.hopes(steps, state.share, len(state.steps))
        return [replace(one, predicted=hope) for one, hope in zip(attempts, hopes, strict=True)]

    def chain_step(self, attempt: Attempt) -> ChainStep:
        """Return a step as means know it."""
        state, rule = attempt.state, attempt.sites[0].rule
        site_class = state.site_class
        known = self._windows.get(site_class.key)
        if known is None:
            window = site_class.window
            known = self._windows[site_class.key] = (shape_class_at(window, site_class.sites[0]), fingerprint(window))
        rules = (*(step.rule for step in state.steps), rule.name)
        families = (*(step.family for step in state.steps), rule.family)
        return ChainStep(rules, families, known[0], attempt.guess, known[1])

    def chain_of(self, attempt: Attempt) -> LoggedChain:
        """Return the steps of an attempt as they are logged."""
        state, after = attempt.state, attempt.after
        if self._logged is None or after is None:
            return LoggedChain()
        before = state.logged or self._logged.window(state.site_class)
        return before.then(attempt.sites, attempt.insertions, after, attempt.part)


def reached(attempt: Attempt, share: float, seconds: float, logged: LoggedChain) -> WindowState:
    """Return the state after a step.

    Args:
        attempt: the step.
        share: share of the window's time that is saved with it.
        seconds: seconds per inference that the whole chain saves.
        logged: the chain as it is logged.
    """
    state, site, after = attempt.state, attempt.sites[0], attempt.after
    assert after is not None
    follows = state.following if site.rule.name in state.following else ()
    step = RewriteStep(site.class_key, site.rule.name, site.rule.family, follows)
    error = max(state.error, site.rule.error_growth)
    parts = (*state.parts, seconds - sum(state.parts))
    passed = state.passed | {fingerprint(state.graph)}
    following = tuple(dict.fromkeys((*state.following, *site.rule.followed_by)))
    steps = (*state.steps, step)
    return WindowState(state.site_class, after, steps, share, error, parts, logged, passed, following=following)
