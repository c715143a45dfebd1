"""Gains of rewrites in the windows where they were tried, and the expectation for the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agents.effects.step_means import Forecast
from agents.effects.timed_steps import SearchedSteps
from agents.regional.options import RegionalOptions

FURTHER = "..."
"""Stands for the steps that a chain makes possible, before they are listed."""

TRUSTED = 2.0
"""Windows of the model at hand that a forecast out of other models counts as."""

Key = tuple[str, ...]
SiteOfChain = tuple[str, int]
"""The key of a class of sites, and the node at which a match begins."""


@dataclass
class Effects:
    """The gains of rewrites so far, as shares of their windows' time, under keys from special to general."""

    _gains: dict[Key, list[float]] = field(default_factory=dict)
    _ends: set[str] = field(default_factory=set)
    """Last parts of keys: the last rules of chains."""
    steps: SearchedSteps = field(default_factory=SearchedSteps)
    """All that was timed, for later searches."""

    def record(self, keys: Iterable[Key], gain: float) -> None:
        """Record the gain of a rewrite that goes by these keys."""
        for key in keys:
            self._gains.setdefault(key, []).append(gain)
            self._ends.add(key[-1])

    def knows(self, rule: str) -> bool:
        """Return whether a rule was tried anywhere, in whatever chain."""
        return rule in self._ends

    def expected(self, keys: Sequence[Key], before: float, hope: float, fading: float) -> float:
        """Return the share that a chain may save in another window, where it saves `before` without its last rewrite.

        That is the mean gain under the first key of which something is known, and `hope` on top; a loss before is
        forgiven. Of both only the part `fading` is left for every window that is known under the key; the third key is
        that of another chain, and counts as one window.
        """
        level = next((i for i, key in enumerate(keys) if key in self._gains), None)
        known = [] if level is None else self._gains[keys[level]]
        trust = fading ** (1 if level is not None and level >= 2 else len(known))
        mean = sum(known) / len(known) if known else 0.0
        return mean + hope * trust + (before if before > 0.0 else before * (1.0 - trust))

    def revised(self, chain: Key, before: float, forecast: Forecast, hope: float, fading: float) -> float:
        """Return the share that a chain may save in another window, where it saves `before` without its last rewrite
        and a forecast says what that adds.

        That is the mean of what the chain's last rewrite gained in this search, in which the forecast counts as
        `TRUSTED` windows, and `hope` on top, of which the part `fading` is left for every window.
        """
        known = self._gains.get(chain, ())
        mean = (TRUSTED * forecast.mean + sum(known)) / (TRUSTED + len(known))
        return before + mean + hope * fading ** len(known)


@dataclass
class KnownSavings:
    """The seconds per inference that the best chains known save, site by site: what saves something at all sites of its
    class says little of what may be saved at one of them."""

    _at: dict[int, SiteOfChain] = field(default_factory=dict)
    """The sites by the nodes of the whole graph that are removed there."""
    _seconds: dict[SiteOfChain, float] = field(default_factory=dict)

    def add(self, key: str, sites: Iterable[tuple[int, frozenset[int]]], seconds: float) -> None:
        """Note what a chain saves at all its sites together. It takes the place of others where it saves more than
        these do, at single sites or at all the sites that are left then.

        Args:
            key: of the class of sites; a later chain there takes the place of an earlier one likewise.
            sites: where matches begin, and the nodes that are removed there. A site that overlaps with an earlier one
                is left out, since it is not rewritten beside that.
        """
        apart: dict[SiteOfChain, frozenset[int]] = {}
        covered = set[int]()
        for anchor, nodes in sites:
            if not nodes & covered:
                apart[key, anchor] = nodes
                covered |= nodes
        each = seconds / max(len(apart), 1)
        left = {site: nodes for site, nodes in apart.items() if not self._put({site: nodes}, each)}
        self._put(left, each)

    def at(self, nodes: Iterable[int]) -> float:
        """Return the seconds that are saved at all sites which remove one of these nodes."""
        return sum(self._seconds[site] for site in self._touching(nodes))

    def clear(self) -> None:
        """Forget everything."""
        self._at.clear()
        self._seconds.clear()

    def _touching(self, nodes: Iterable[int]) -> set[SiteOfChain]:
        return {self._at[node] for node in nodes if node in self._at}

    def _put(self, sites: Mapping[SiteOfChain, frozenset[int]], each: float) -> bool:
        """Put sites in the place of those that they overlap with; return whether that saves more."""
        rivals = self._touching(node for nodes in sites.values() for node in nodes)
        if each * len(sites) <= sum(self._seconds[site] for site in rivals):
            return False
        self._at = {node: site for node, site in self._at.items() if site not in rivals}
        for site in rivals:
            del self._seconds[site]
        for site, nodes in sites.items():
            self._seconds[site] = each
            self._at.update(dict.fromkeys(nodes, site))
        return True


@dataclass(frozen=True, slots=True)
class NextMove:
    """A possible next move in a window, by what is known of it before it is taken: a step, or to list the steps that
    the last one made possible. All shares are of the window's time."""

    keys: Sequence[Key]
    """Of a step: its chain of rules, the families of the last two, and the last rule; of a listing: the last rule and
    `FURTHER`."""
    depth: int
    """Rewrites of the chain before it."""
    before: float
    """Share that this chain saves."""
    guess: float = 0.0
    """Share that the step saves by arithmetic and memory traffic."""
    predicted: float | None = None
    """Share that a prior hopes the step to save; None where nothing is predicted."""
    forecast: Forecast | None = None
    """What other models say of the step; None where they say nothing."""

    @property
    def is_listing(self) -> bool:
        """Return whether steps are listed, and none is taken."""
        return self.keys[0][-1] == FURTHER

    def promise(self, effects: Effects, options: RegionalOptions, hopeful: float, curious: bool) -> float:
        """Return the share of the window's time that the chain may save with this move.

        Args:
            effects: what the search knows of rules.
            options: of the search.
            hopeful: standard deviations above its mean that a forecast is hoped to reach.
            curious: a rule that was never tried may save what `options` hope of any, whatever is predicted, or its
                family did elsewhere.
        """
        untried = curious and self._is_untried(effects, options)
        keys = self.keys[:1] if untried else self.keys
        fading = options.fading[min(self.depth, 1)]
        if self.forecast is not None and not untried:
            hope = hopeful * self.forecast.deviation
            share = effects.revised(keys[0], self.before, self.forecast, hope, fading)
        else:
            # What a loss makes possible is looked at whatever the loss: that is what chains are for.
            before = max(self.before, 0.0) if self.is_listing else self.before
            share = effects.expected(keys, before, self._hope(options, untried), fading)
        return min(share, options.most_saved)

    def _is_untried(self, effects: Effects, options: RegionalOptions) -> bool:
        """Return whether next to nothing is known of a step's rule, here or elsewhere."""
        known_elsewhere = self.forecast is not None and self.forecast.labels >= options.few
        return not self.is_listing and not known_elsewhere and not effects.knows(self.keys[0][-1])

    def _hope(self, options: RegionalOptions, constant: bool) -> float:
        """Return the share that the move may save as long as nothing is known of it: the prior's, else the estimate,
        and something on top, since a change of layout or a fusion saves what no count of operations shows."""
        if self.predicted is not None and not constant:
            return self.predicted
        hope = options.optimism[min(self.depth, len(options.optimism) - 1)]
        return hope + max(self.guess, -options.doubt * hope)
