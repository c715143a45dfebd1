"""Which chains of rewrites make a region faster: best-first search in windows, by what the same rules gained before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from agents.core.base import Search
from agents.core.sites import enables
from agents.regional.gains import FADING, FURTHER, OPTIMISM, Effects, Key
from agents.regional.roofline import estimated_seconds
from agents.regional.sites import Spot, Step, apply_all, classes
from agents.regional.synthetic_weights import with_stand_ins
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency import MeasurementError
from graph_rewrite.latency.windows.cut import Cut, shape_key
from graph_rewrite.latency.windows.thin import thin
from graph_rewrite.latency.windows.window_meter import Difference
from graph_rewrite.rewriting.sites import Site

WORTH = 0.002
"""Share of the model's latency below which what a region may still gain is not looked for."""
WRITTEN = 2e8
"""Bytes of weights that are written, read and packed in a second."""
LEAST = 0.01
"""Share of its window's time that a form must save to be looked at again."""
DOUBT = 0.8
"""Share of what is hoped of an unknown step that a bad guess may take away: guesses are wrong about layouts."""
CURIOUS = 0.1
"""Share of the seconds left, once nothing promises enough any more, for rules that were never tried: what others of
their families gained is not the last word."""
WIDEST = 160
"""Operators that a chain may have brought in for it to be gone on with: what is larger was taken apart already."""


class Timer(Protocol):
    """Times a window, as `RegionalMeter` does. Raises NotTimed where ONNX Runtime cannot run it."""

    def time(self, cut: Cut, budget_s: float | None = None, *, anew: bool = False) -> Difference: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Form:
    """A chain of rewrites that makes a window faster, and what it gains at all sites of its class together."""

    steps: tuple[Step, ...]
    anchors: frozenset[int]
    """Nodes of the whole graph at which the first step's matches begin."""
    nodes: frozenset[int]
    """Nodes of the whole graph that go with it."""
    saved: float
    """Seconds per inference."""
    half: float
    """Half-width of the 95% interval of `saved`."""
    growth: int
    """Bytes of weights that it adds."""
    error: float
    """Largest `error_growth` of its rules."""
    cut: Cut = field(compare=False)
    """The window before and after."""

    @property
    def lower_bound(self) -> float:
        """The lower bound of the 95% confidence interval of `saved`, by which forms are ranked: of many, the one that
        seems to save most is the one with the widest interval."""
        return self.saved - self.half

    @property
    def is_certain(self) -> bool:
        """Whether more is saved than timing is wrong by."""
        return self.saved > 2.0 * self.half

    def __str__(self) -> str:
        return " > ".join(step.rule for step in self.steps)


@dataclass(frozen=True, slots=True)
class _State:
    """A window after some steps."""

    spot: Spot
    graph: Graph
    steps: tuple[Step, ...] = ()
    share: float = 0.0
    """Share of the window's time that is saved."""
    error: float = 0.0
    """Largest `error_growth` of its rules."""


@dataclass(frozen=True, slots=True)
class _Try:
    """What may be done next: a step from a state, or (without sites) to list the steps that a state made possible."""

    state: _State
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

    @property
    def keys(self) -> list[Key]:
        """By the chain of rules; by the families of the last two; to read only, by the last rule. To go on, by the
        last rule: what it makes possible no other rule of its family shows."""
        steps = self.state.steps
        if not self.sites:
            return [(steps[-1].rule, FURTHER)]
        rule = self.sites[0].rule
        chain = (*(step.rule for step in steps), rule.name)
        return [chain, (steps[-1].family, rule.family), (rule.name,)] if steps else [chain]

    @property
    def hope(self) -> float:
        """Share of the window's time that the step may save, as long as nothing is known of it: what the guess says,
        and something on top, since a change of layout or a fusion saves what no count of operations shows."""
        hope = OPTIMISM[min(len(self.state.steps), len(OPTIMISM) - 1)]
        return hope + max(self.guess, -DOUBT * hope)


class Screen:
    """Best-first search over chains of up to `depth` rewrites in the windows of a graph.

    Always tried next is what is expected to gain most over the best form known at its nodes: an unknown rule is
    expected to save what a count of its operations says and a share of the window, a known one what it saved in other
    windows, by itself or after the same rules.

    Args:
        search: its applications and seconds are spent.
        timer: times windows.
        effects: what is known of rules; it learns.
        graph: the whole model.
        latency_s: of the whole model, in seconds; guesses for windows are scaled so that they add up to it.
        depth: rewrites in a chain.
    """

    def __init__(
        self, search: Search, timer: Timer, effects: Effects, graph: Graph, latency_s: float, depth: int
    ) -> None:
        self.search, self.timer, self.effects = search, timer, effects
        self._scale = latency_s / max(estimated_seconds(graph, graph.nodes), 1e-12)
        self.latency_s, self.depth = latency_s, depth
        self.tried: set[str] = set()
        """Keys of the spots whose first step was timed."""
        self._seconds: dict[str, float] = {}
        self._best: dict[int, float] = {}
        """Seconds saved by the best form known, by node of the whole graph."""

    def run(self, found: Iterable[Spot], until: Callable[[], bool]) -> list[Form]:
        """Forms that gain, until nothing promises enough or `until` says that time is up."""
        open_tries = [
            entry for spot in found for entry in self._tries(_State(spot, spot.window), [spot.sites[:1]], until)
        ]
        forms = self._explore(open_tries, until, curious=False)
        last = self.search.after(CURIOUS)
        return forms + self._explore(open_tries, lambda: until() or self.search.seconds >= last, curious=True)

    def _explore(self, open_tries: list[_Try], until: Callable[[], bool], curious: bool) -> list[Form]:
        """Forms that gain, by the tries that promise enough and those that they lead to; the others stay open."""
        forms: list[Form] = []
        while open_tries and not until() and self.search.can_apply:
            promising = [(self._promise(entry, curious), i) for i, entry in enumerate(open_tries)]
            promising = [(gain, i) for gain, i in promising if gain >= WORTH * self.latency_s]
            if not promising:
                break
            # What is gained per second of search: windows with large weights take long to write and to open.
            entry = open_tries.pop(max(promising, key=lambda p: (p[0] / self._cost(open_tries[p[1]]), -p[1]))[1])
            if not entry.sites:
                open_tries += self._children(entry, until)
                continue
            state, form = self._advance(entry)
            if form is not None:
                forms.append(form)
            if state is not None and len(state.steps) < self.depth and len(state.graph.nodes) <= self._widest(state):
                open_tries.append(_Try(state, before=entry.state.graph))
        return forms

    def _cost(self, entry: _Try) -> float:
        """Seconds that a try may take, roughly; to list further steps costs little."""
        seconds = entry.part * self._seconds_of(entry.state.spot)
        return 0.2 + (10.0 * seconds + entry.weights / WRITTEN if entry.sites else 0.0)

    def _seconds_of(self, spot: Spot) -> float:
        """Seconds that a spot's window takes, timed or guessed."""
        return self._seconds.get(spot.key.partition(":")[2], self._scale * spot.seconds)

    def _widest(self, state: _State) -> int:
        return len(state.spot.window.nodes) + WIDEST

    def _promise(self, entry: _Try, curious: bool) -> float:
        """Seconds that a try may save at all its spot's sites, beyond what is known to be saved there. To the curious,
        a rule that was never tried may do so whatever its family did elsewhere."""
        spot, keys = entry.state.spot, entry.keys
        if curious and entry.sites and not self.effects.knows(entry.sites[0].rule.name):
            keys = keys[:1]
        fading = FADING[min(len(entry.state.steps), 1)]
        # What a loss makes possible is looked at whatever the loss: that is what chains are for.
        before = entry.state.share if entry.sites else max(entry.state.share, 0.0)
        share = self.effects.expected(keys, before, entry.hope, fading)
        known = max((self._best.get(node, 0.0) for node in spot.touched), default=0.0)
        return len(spot.sites) * self._seconds_of(spot) * min(share, 0.9) - known

    def _children(self, entry: _Try, until: Callable[[], bool]) -> list[_Try]:
        """Steps that the last one made possible, a rule at all its sites, where they touch what the chain brought in.
        What a neighbour gains by itself is its own window's business."""
        state, rewriter = entry.state, self.search.problem.rewriter
        assert entry.before is not None
        own = state.spot.window.nodes
        # Of several classes: the products of one Winograd form differ at their edges, and belong together.
        groups: dict[str, list[Site]] = {}
        is_enabled = enables(rewriter, entry.before)
        for sites in filter(is_enabled, classes(rewriter, state.graph).values()):
            touching = [site for site in sites if any(node.id not in own for node in site.match.nodes)]
            if touching:
                groups.setdefault(touching[0].rule.name, []).extend(touching)
        if not groups:
            self.effects.record(entry.keys, 0.0)
        return self._tries(state, map(tuple, groups.values()), until)

    def _tries(self, state: _State, groups: Iterable[tuple[Site, ...]], until: Callable[[], bool]) -> list[_Try]:
        """Steps from a state, each with what it leads to and saves by a count of its operations."""
        tries = []
        here, whole = estimated_seconds(state.graph, state.graph.nodes), max(state.spot.seconds, 1e-12)
        for group in groups:
            if until() or not self.search.can_apply:
                break
            after = apply_all(self.search, state.graph, group)
            if after is not None:
                guess = (here - estimated_seconds(after, after.nodes)) / whole
                before = thin(state.spot.window, after)[0]
                part = estimated_seconds(before, before.nodes) / whole
                tries.append(_Try(state, group, None, after, guess, part, weight_bytes(before)))
        return tries

    def _advance(self, entry: _Try) -> tuple[_State | None, Form | None]:
        """Take a step in its window and time it; the state after it, and the form it makes where that gains."""
        state, spot = entry.state, entry.state.spot
        first = not state.steps
        after = entry.after
        assert after is not None
        cut = _cut_of(spot, after)
        timed = time_cut(self.search, self.timer, cut)
        self.tried.add(spot.key)
        if timed is None:
            self.effects.record(entry.keys[:2], -1.0)
            return None, None
        window_seconds = self._seconds[spot.key.partition(":")[2]] = timed.region_seconds / entry.part
        share = timed.seconds / len(spot.sites) / window_seconds
        for node in spot.touched:
            self._best[node] = max(self._best.get(node, 0.0), timed.seconds)
        self.effects.record(entry.keys[:2], share - state.share)
        if not first:
            self.effects.record(_Try(state).keys, max(share - max(state.share, 0.0), 0.0))
        site = entry.sites[0]
        error = max(state.error, site.rule.error_growth)
        reached = _State(
            spot, after, (*state.steps, Step(site.class_key, site.rule.name, site.rule.family)), share, error
        )
        return reached, self._form(reached, timed, cut)

    def _form(self, state: _State, timed: Difference, cut: Cut) -> Form | None:
        if state.share < LEAST:
            return None
        spot = state.spot
        gone = spot.window.nodes.keys() - state.graph.nodes.keys()
        nodes = frozenset(node.id for site in spot.sites for node in site.removed) | gone
        growth = len(spot.sites) * (weight_bytes(state.graph) - weight_bytes(spot.window))
        return Form(
            state.steps,
            frozenset(site.anchor for site in spot.sites),
            nodes,
            timed.seconds,
            (timed.ci95[1] - timed.ci95[0]) / 2,
            growth,
            state.error,
            cut,
        )


def _cut_of(spot: Spot, after: Graph) -> Cut:
    before, after = map(with_stand_ins, thin(spot.window, after))
    return Cut(before, after, len(spot.sites), f"{shape_key(before)}:{shape_key(after)}")


def time_cut(search: Search, timer: Timer, cut: Cut, anew_s: float | None = None) -> Difference | None:
    """What a change saves, charged to the search as if it were timed now; None where it cannot be timed. With `anew_s`
    it is timed within so many seconds, whatever is known already."""
    begin = search.seconds
    try:
        timed = timer.time(cut, anew_s, anew=anew_s is not None)
    except (MeasurementError, InvalidRewriteError):
        return None
    search.charge(timed.cost_s - (search.seconds - begin))
    search.tell()
    return timed if timed.ok and timed.region_seconds > 0.0 else None
