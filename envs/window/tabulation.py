"""Tables of windows out of experience: recorded chains are replayed in their windows, and every state is observed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envs.graph_rewrite.details import context_features, full_entries
from envs.graph_rewrite.meta_graph import MetaGraphObserver, ObservationLimitError
from envs.observation import Observation, ObservationLimits
from envs.window.rows import TableRows
from envs.window.table import FEATURES, WindowRecord, WindowTable
from graph_rewrite.errors import UserError
from graph_rewrite.experience.means import shape_class, share
from graph_rewrite.experience.rebuilding import graph_of
from graph_rewrite.experience.records import Label, SharedPart
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.replay.evidence import SiteRecord
from graph_rewrite.replay.finding import find_sites
from graph_rewrite.replay.fingerprint import fingerprint
from graph_rewrite.replay.steps import TracedGraph
from graph_rewrite.rewriting.candidates import Candidate, Candidates
from graph_rewrite.rewriting.enumerator import Enumerator
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.site_windows import further_steps

LIMITS = ObservationLimits(256, 4096, 16384)
"""Sizes of states that a table takes: larger windows and steps are left out."""

MANY_CHAINS = 8
"""Chains of a window from which on it is looked at whether all possible ones were timed: that takes long to tell, and
says little of smaller windows."""

Chain = tuple[str, ...]
"""Ids of the steps of a chain."""


class NoWindowError(UserError):
    """No window of some experience can be made again."""


@dataclass(slots=True)
class _Outcome:
    """The best label of a chain; `low` and `high` shares of the window's time."""

    label: Label
    share: float
    half: float


@dataclass(slots=True)
class _RecordedWindow:
    """A window and the chains that were timed in it, by machine and deployment."""

    label: Label
    steps: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    chains: dict[Chain, _Outcome] = field(default_factory=dict)
    labels: dict[str, Chain] = field(default_factory=dict)
    """Chains of the labels, by the labels' ids."""
    weight: float = 0.0

    def add(self, label: Label) -> None:
        chain = tuple(label.body["steps"])
        self.steps |= dict(zip(chain, label.steps, strict=True))
        self.labels[label.id] = chain
        half = 0.0
        if label.ok:
            scale = int(label.body["sites"]) * label.window_s
            half = label.half_of_window
            self.weight = max(self.weight, min(1.0, scale / float(label.body["model_s"])))
        known = self.chains.get(chain)
        if known is None or (label.ok, -half) > (known.label.ok, -known.half):
            self.chains[chain] = _Outcome(label, share(label) if label.ok else 0.0, half)

    def children(self) -> dict[Chain, list[str]]:
        """Return the steps of timed chains that follow each beginning of them, timed itself or not, in the order of
        their rules' names."""
        found: dict[Chain, set[str]] = {}
        for chain in self.chains:
            for length, step in enumerate(chain):
                found.setdefault(chain[:length], set()).add(step)
        return {chain: sorted(ids, key=lambda one: (self.steps[one]["rule"], one)) for chain, ids in found.items()}


@dataclass(slots=True)
class Tabulation:
    """A table, and the numbers of labels whose chain is in it and of those that could not be replayed."""

    table: WindowTable
    used: int
    left_out: int
    step_of: dict[str, int]
    """Number of the step in the table that each label is of, by the label's id, where its chain is in the table."""


def tabulate(
    labels: Iterable[Label],
    rewriter: Enumerator,
    limits: ObservationLimits = LIMITS,
    progress: Callable[[int, int], None] | None = None,
) -> Tabulation:
    """Make a table of windows.

    Of several timings of a chain in a window, under one deployment on one machine, the one with the narrowest interval
    counts: those of a quiet machine outweigh others. A chain is left out where a rule is missing or does something else
    now, or where its states do not fit. A chain that was timed as a whole brings its beginnings with it; their steps
    are marked as not measured.

    Args:
        labels: of a store or an export.
        rewriter: its rules replay the chains.
        limits: sizes of states that are taken.
        progress: told of the windows that are done, and of their number.

    Raises:
        NoWindowError: no window can be made again.
    """
    windows: dict[tuple[str, str], _RecordedWindow] = {}
    ids: dict[int, str] = {}
    step_of: dict[str, int] = {}
    for label in labels:
        known = ids.get(id(label.window))
        if known is None:
            known = ids[id(label.window)] = SharedPart.of("window", label.window).id
        windows.setdefault((known, label.circumstances), _RecordedWindow(label)).add(label)
    rows, used, chains = TableRows(), 0, 0
    for number, (_, window) in enumerate(sorted(windows.items())):
        built = _WindowBuilder(window, rewriter, limits, rows).build()
        used, chains = used + len(built), chains + len(window.chains)
        step_of |= {label: built[chain] for label, chain in window.labels.items() if chain in built}
        if progress is not None:
            progress(number + 1, len(windows))
    if not rows.states:
        raise NoWindowError("no window of this experience can be made again: its rules have changed, or it is empty")
    return Tabulation(rows.table(), used, chains - used, step_of)


class _WindowBuilder:
    """Replays the chains of one window, and adds its states to a table."""

    def __init__(
        self, window: _RecordedWindow, rewriter: Enumerator, limits: ObservationLimits, rows: TableRows
    ) -> None:
        self._window, self._rewriter, self._rows = window, rewriter, rows
        self._observer = MetaGraphObserver(limits, features=FEATURES)
        self._deployment = Deployment.from_json(window.label.context["deployment"])
        self._children = window.children()
        self._device = str(window.label.context["device"])
        self._root: Graph | None = None
        self._whole_s = 1.0
        """Estimated seconds of the window."""
        self._exhaustive = True
        self._built: dict[Chain, int] = {}
        self._classes: dict[str, str] = {}

    def build(self) -> dict[Chain, int]:
        """Add the window and return the numbers of the steps that its chains end with; none where it cannot be made
        again."""
        try:
            structure = graph_of(self._window.label.window)
        except UserError:
            return {}
        self._root = structure.with_disabled_optimizers(self._deployment.disabled_optimizers)
        traced = TracedGraph(self._root, self._rewriter)
        first = self._steps(traced, ())
        if not first:
            return {}
        label = self._window.label
        context = context_features(self._deployment, self._root, 1.0, 1.0, self._device)
        self._whole_s = estimated_seconds(self._root)
        many = len(self._window.chains) >= MANY_CHAINS
        self._exhaustive = many and all(self._is_exhaustive(id, after) for id, after, _ in first)
        seconds = label.window_s if label.ok else 0.0
        record = WindowRecord(
            label.family, str(label.model["uri"]), str(label.window["fingerprint"]), seconds,
            round(self._window.weight, 6), len(self._window.chains), self._exhaustive, self._device,
            label.provider,
        )  # fmt: skip
        try:
            observation, kept = self._observed(traced.graph, first)
        except ObservationLimitError:
            return {}
        self._rows.window(record, context)
        self._add(observation, kept, (), 0.0, (str(label.window["fingerprint"]),))
        return self._built

    def _add(
        self, observation: Observation, steps: Sequence[_Step], chain: Chain, share: float, visited: tuple[str, ...]
    ) -> int:
        """Add a state and all that lie behind it; return its number."""
        names = [(self._window.steps[id]["rule"], self._window.steps[id]["family"]) for id, _, _ in steps]
        number = self._rows.state(observation, names, len(chain), share)
        for index, (id, after, candidate) in enumerate(steps):
            taken = (*chain, id)
            outcome = self._window.chains.get(taken)
            ok = outcome is None or outcome.label.ok
            behind = [*self._steps(after, taken, visited)] if ok else []
            reached, kept = self._observed(after.graph, behind)
            where = (*visited, str(self._window.steps[id]["after"]))
            # Without a timing of its own a state passes on what was saved before it.
            saved = share if outcome is None else outcome.share
            state = self._add(reached, kept, taken, saved, where)
            told = self._told(outcome, taken, candidate.graph, after.graph)
            step = self._rows.outcome(number, index, state, saved, **told)
            if outcome is not None:
                self._built[taken] = step
        return number

    def _told(self, outcome: _Outcome | None, chain: Chain, before: Graph, after: Graph) -> dict[str, Any]:
        """Return what the table holds of a step beside its share."""
        here, then = (estimated_seconds(graph) for graph in (before, after))
        known = {"guess": (here - then) / self._whole_s, "shape_class": self._class(chain[0])}
        if outcome is None:
            return {"half": 0.0, "failed": False, "measured": False, **known}
        cost = float(outcome.label.body.get("cost_s", 0.0))
        return {"half": outcome.half, "failed": not outcome.label.ok, "cost": cost, **known}

    def _class(self, first: str) -> str:
        """Return the class of shapes of the chains that begin with a step."""
        if first not in self._classes:
            label = next(one.label for chain, one in self._window.chains.items() if chain[0] == first)
            self._classes[first] = shape_class(label)
        return self._classes[first]

    def _steps(self, traced: TracedGraph, chain: Chain, visited: tuple[str, ...] = ()) -> list[_Step]:
        """Return the recorded steps after a chain that can be taken again, with what they lead to."""
        found = []
        for id in self._children.get(chain, ()):
            step = self._window.steps[id]
            if step["after"] in visited or step["rule"] not in traced.rules:
                continue
            at = [SiteRecord.from_json(site) for site in step["at"]]
            sites = find_sites(at, traced.sites(step["rule"]), traced.around)
            if not at or any(site is None for site in sites):
                continue
            those = tuple(site for site in sites if site is not None)
            candidate = Candidate("class" if len(those) > 1 else "site", traced.graph, those)
            after = traced.fork()
            if after.take(candidate) and fingerprint(after.graph) == step["after"] and self._fits(after.graph):
                found.append((id, after, candidate))
        return found

    def _fits(self, graph: Graph) -> bool:
        limits = self._observer.limits
        edges = sum(len(node.inputs) for node in graph.nodes.values())
        return len(graph.nodes) <= limits.max_nodes and edges <= limits.max_edges

    def _observed(self, graph: Graph, steps: Sequence[_Step]) -> tuple[Observation, list[_Step]]:
        """Return the observation of a graph with those of these steps that fit into it."""
        choices = self._observer.choose(graph, Candidates(graph, [candidate for _, _, candidate in steps]))
        shown = {id(candidate) for candidate in choices.candidates.head}
        kept = [step for step in steps if id(step[2]) in shown]
        mask = np.zeros(self._observer.limits.max_candidates + 1, dtype=np.bool_)
        mask[: len(kept)] = mask[-1] = True
        observation = self._observer.observe(choices, mask, np.zeros(8).tolist())
        context = context_features(self._deployment, graph, 1.0, 1.0, self._device)
        return observation | full_entries(choices, self._observer.limits, {}, context), kept

    def _is_exhaustive(self, id: str, after: TracedGraph) -> bool:
        """Return whether every step that a first step makes possible was timed."""
        outcome = self._window.chains.get((id,))
        if outcome is None:
            return False
        if not outcome.label.ok or self._root is None:
            return True
        possible = further_steps(self._rewriter, self._root, self._root, after.graph)
        children = (one for one in self._children.get((id,), ()) if (id, one) in self._window.chains)
        timed = {self._window.steps[one]["rule"] for one in children}
        return possible.keys() <= timed


_Step = tuple[str, TracedGraph, Candidate]
"""A recorded step: its id, what it leads to, and what is rewritten."""
