"""Carrying rewrites over: recorded rewrites are applied at the binding where they were found and, site by site, at
several others; sites that are not the same everywhere are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.sites import Site, makes_cycle
from graph_rewrite.symbolic.lanes import Lane, NotGeneralError
from graph_rewrite.symbolic.plans import Planner
from graph_rewrite.symbolic.twins import NoTwin, twins_of

DIFFERS = "with it the outputs differ from the original's at other shapes"
"""The reason why a rewrite is left out that holds in all lanes."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Sites of a recorded rewrite that do not hold at other bindings."""

    action: int
    """Position of the rewrite among the recorded ones."""
    rule: str
    where: str
    sites: int
    reason: str


@dataclass(frozen=True, slots=True)
class Carried:
    """The outcome of `carry`, which rewrites the graphs of the lanes in place."""

    sites: tuple[int, ...]
    """Number of sites carried over per recorded rewrite; 1 for a deployment choice."""
    left_out: tuple[LeftOut, ...]
    makers: Mapping[int, int]
    """The recorded rewrite that inserted a node, by the node's id in the first lane."""


def carry(candidates: Sequence[Candidate], lanes: Sequence[Lane], excluded: Collection[int] = ()) -> Carried:
    """Apply recorded rewrites to lanes, at the sites that hold in all of them.

    Args:
        candidates: the rewrites, each found in the graph that those before it lead to. The first of these graphs is the
            normalised model at the binding that was searched.
        lanes: the model at several bindings; their graphs are replaced by rewritten ones. The first lane has the
            binding that was searched.
        excluded: positions of rewrites that are left out in the lanes.

    Raises:
        NotGeneralError: the lanes came out of step, which no rule should make them.
    """
    carrier = _Carrier(lanes, Planner(lanes))
    done, left_out = [], []
    for number, candidate in enumerate(candidates):
        sites = carrier.step(candidate, number, number in excluded)
        done.append(sites)
        if missing := candidate.count - sites - carrier.superfluous:
            reason = max(carrier.reasons, key=lambda text: carrier.reasons[text])
            left_out.append(LeftOut(number, candidate.rule, candidate.description, missing, reason))
    return Carried(tuple(done), tuple(left_out), carrier.makers)


@dataclass(slots=True)
class _Carrier:
    """Applies candidates. The lanes' maps lead from nodes and values of the searched graph to theirs."""

    lanes: Sequence[Lane]
    planner: Planner
    makers: dict[int, int] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    """Number of sites of the last candidate that were left out, by reason."""
    superfluous: int = 0
    """Sites of the last candidate that an earlier one of it took away, at the binding that was searched too."""

    def step(self, candidate: Candidate, number: int, excluded: bool) -> int:
        """Apply the sites of a candidate that hold everywhere to all lanes; return their number."""
        self.reasons, self.superfluous = Counter(), 0
        editor, editors = GraphEditor(candidate.graph), [GraphEditor(lane.graph) for lane in self.lanes]
        done = 0
        if candidate.kind == "deployment":
            done = int(not excluded)
            for other in editors if done else ():
                other.disabled_optimizers = candidate.disabled_optimizers
                other.session_settings = candidate.session_settings
        if excluded:
            self.reasons[DIFFERS] += candidate.count
        twins = {site: None if excluded else self._twins(site) for site in candidate.sites}
        for site in candidate.sites:
            if not _holds(editor, site):
                self.superfluous += 1
                continue
            done += self._apply(site, twins[site], editor, editors, number)
        for lane, other in zip(self.lanes, editors, strict=True):
            lane.graph = other.finish()[0]
        return done

    def _twins(self, site: Site) -> list[Site] | None:
        """Return the site in each lane; None where some lane does not have it."""
        try:
            return twins_of(site, self.lanes, self.planner)
        except NoTwin as error:
            self.reasons[str(error)] += 1
            return None

    def _apply(
        self, site: Site, twins: list[Site] | None, editor: GraphEditor, editors: Sequence[GraphEditor], number: int
    ) -> bool:
        """Apply a site to the searched graph, and its twins where all of them still hold."""
        holds = twins is not None and all(_holds(o, twin) for o, twin in zip(editors, twins, strict=True))
        if twins is not None and not holds:
            self.reasons["it overlaps with another site at other shapes"] += 1
        before = editor.next_id
        site.apply_to(editor)
        inserted = _inserted(editor, before)
        if twins is None or not holds:
            return False
        for lane, other, twin in zip(self.lanes, editors, twins, strict=True):
            start = other.next_id
            twin.apply_to(other)
            made = _inserted(other, start)
            _follow(lane, inserted, made)
            if lane is self.lanes[0]:
                self.makers.update((node.id, number) for node in made)
        return True


def _holds(editor: GraphEditor, site: Site) -> bool:
    """Tell whether a site can still be applied within an edit."""
    nodes, types = editor.nodes, editor.types
    return (
        all(nodes.get(node.id) is node for node in site.match.nodes)
        and all(value in types for value in site.replacement.externals())
        and not (site.several_roots and makes_cycle(editor, site))
    )


def _inserted(editor: GraphEditor, since: int) -> list[Node]:
    return [editor.nodes[i] for i in range(since, editor.next_id) if i in editor.nodes]


def _follow(lane: Lane, inserted: Sequence[Node], twins: Sequence[Node]) -> None:
    """Record which nodes of a lane are those that the same site inserted into the searched graph."""
    if [(n.op, n.signature) for n in inserted] != [(n.op, n.signature) for n in twins]:
        raise NotGeneralError(f"at {lane.describe()} a rewrite inserted other operators than at the bound shape")
    for node, twin in zip(inserted, twins, strict=True):
        lane.nodes[node.id] = twin.id
        lane.values.update(zip(node.outputs, twin.outputs, strict=True))
