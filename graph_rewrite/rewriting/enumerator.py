"""Enumeration of candidates: every rule at every node, incrementally after a rewrite, in a deterministic order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from graph_rewrite.ir.graph import Graph, GraphDelta
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.body_sites import BodySite, refusals_inside, sites_inside
from graph_rewrite.rewriting.building import build_site
from graph_rewrite.rewriting.candidates import Candidate, Candidates
from graph_rewrite.rewriting.deployment_choices import deployment_candidates
from graph_rewrite.rewriting.earlier_graphs import known_before
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rewriting.listing import Listing, listing_of
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.matching import Matcher
from graph_rewrite.rewriting.prefilter import index_of
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rewriting.sites import Site, makes_cycle, site_name
from graph_rewrite.system.deadline import check_time
from graph_rewrite.system.garbage_collector import no_garbage_collection

Granularity = Literal["site", "class", "both"]


@dataclass(frozen=True, slots=True)
class _Tried:
    """The sites of a rule at an anchor, and the values that were read to find them."""

    sites: tuple[Site, ...]
    reads: frozenset[int]


@dataclass(slots=True)
class _State:
    """All that is known of one graph: what the plausible rules gave at each anchor, the anchors whose matching read a
    value, and the list of all sites."""

    tried: dict[int, dict[int, _Tried]]
    readers: dict[int, frozenset[int]]
    listing: Listing

    def sites(self, anchor: int) -> tuple[Site, ...]:
        """Sites at an anchor, in the order of the rules."""
        return tuple(site for tried in self.tried.get(anchor, {}).values() for site in tried.sites)


class Enumerator:
    """Enumerates the candidates of graphs by given rules; `graph_rewrite.Rewriter` knows default rules.

    Args:
        rules: the rules, in the order in which candidates are listed.
        granularity: offer a rule per `site`, per `class` of sites (same rule, same local structure and shapes), or
            `both`.
        deployment: offer to refuse or to keep ONNX Runtime's optimisers.
        domains: domains of operators that a rewrite may bring in; any by default.
        faults: collects exceptions that rules raise; by default they go through.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        granularity: Granularity = "both",
        deployment: bool = True,
        domains: frozenset[str] | None = None,
        faults: RuleFaults | None = None,
    ) -> None:
        if granularity not in ("site", "class", "both"):
            raise ValueError(f"granularity must be 'site', 'class' or 'both', not {granularity!r}")
        self._listed = MemoKey[Candidates]("candidates")
        self._matched = MemoKey[_State]("sites")
        self.rules: tuple[Rule, ...] = tuple(rules)
        self.granularity: Granularity = granularity
        self.deployment = deployment
        self.domains = domains
        self.faults = faults
        self._index = index_of(tuple(rule.pattern for rule in self.rules))
        self._narrowed: dict[frozenset[str], Enumerator] = {}
        self._hidden: dict[str, bool] = {}

    def candidates(self, graph: Graph) -> Candidates:
        """Return all valid candidates, without duplicates: deployment choices, then classes, then sites; each in the
        order of the rules, and along the graph.

        Raises:
            OutOfTime: the time limit of the run is reached (`graph_rewrite.system.deadline`).
        """
        found = graph.memo.get(self._listed)
        return graph.memo.put(self._listed, self._candidates(graph)) if found is None else found

    def sites(self, graph: Graph) -> list[Site]:
        """Return all valid applications of single rules, in the order of the rules and along the graph."""
        listing = self._state(graph).listing
        cyclic = listing.cyclic(graph)
        return [site for site in listing.sites if site not in cyclic] if cyclic else listing.sites

    def sites_at(self, graph: Graph, anchor: Node) -> tuple[tuple[Site, ...], frozenset[int]]:
        """Return the valid applications of single rules at one node, in the order of the rules and also where `sites`
        lists another that leads to the same graph; and the values whose producer or readers were read."""
        reads = set[int]()
        tried = [self._try(graph, anchor, *rule) for rule in self._plausible(graph, anchor, reads)]
        inside = [site for sites in self._inside(graph, anchor).values() for site in sites]
        found = tuple(inside or (site for one in tried for site in one.sites))
        return found, frozenset(reads.union(*(one.reads for one in tried)))

    def candidates_by(self, graph: Graph, rules: Collection[str]) -> list[Candidate]:
        """Return the candidates among `candidates(graph)` that are by one of these rules, in their order.

        No other candidates are listed, so that many steps by few rules take the time of these alone. Where a rule that
        comes earlier leads to the same graph, its candidate is the one that `candidates` lists, and this one is left
        out; one site of a class decides for the class.
        """
        wanted = frozenset(rules)
        narrowed = self._narrowed.get(wanted)
        if narrowed is None:
            kept = [rule for rule in self.rules if rule.name in wanted]
            narrowed = self._narrowed[wanted] = Enumerator(kept, self.granularity, False, self.domains, self.faults)
        return [c for c in narrowed.candidates(graph) if not self._is_hidden(graph, c.site)]

    def _is_hidden(self, graph: Graph, site: Site) -> bool:
        """Tell whether a rule that comes before the site's leads to the same graph."""
        if isinstance(site, BodySite):
            return self._is_hidden(site.inner.graph, site.inner.site)
        known = self._hidden.get(site.class_key)
        if known is None:
            last = max(site.removed, key=lambda node: graph.ranks[node.id])
            anchors = sorted(site.removed, key=lambda node: node.id)
            known = self._hidden[site.class_key] = any(self._has_twin(graph, node, site, last) for node in anchors)
        return known

    def _has_twin(self, graph: Graph, anchor: Node, site: Site, last: Node) -> bool:
        """Tell whether an earlier rule leads to the same graph from this anchor. It would have to match the `last` of
        the nodes that the site removes, since nothing below a match dies."""
        for index, rule in self._plausible(graph, anchor, set()):
            if rule is site.rule:
                return False
            if anchor is not last and len(rule.pattern.roots) == 1:
                continue
            for match in Matcher(graph, rule.pattern, set(), rule.symmetric).at(anchor):
                if any(node is last for node in match.nodes):
                    twin = self._built(rule, index, match)
                    if twin is not None and twin.key == site.key:
                        return True
        return False

    def explain(self, graph: Graph) -> list[Refusal]:
        """Return the near misses, with reasons: nodes where a rule's pattern occurs but the rule does not apply."""
        refusals: list[Refusal] = []
        for node in graph.order():
            refusals += refusals_inside(graph, node, self.explain)
            for index, rule in self._plausible(graph, node, set()):
                for match in Matcher(graph, rule.pattern, set(), rule.symmetric).at(node):
                    built = build_site(rule, index, match, self.faults)
                    if isinstance(built, Site) and not self._allows(built):
                        built = Refusal("it brings in operators of a domain that is not allowed")
                    elif isinstance(built, Site) and built.several_roots and makes_cycle(graph, built):
                        built = Refusal("one of the values depends on another: merging them would make a cycle")
                    if isinstance(built, Refusal):
                        refusals.append(Refusal(built.reason, rule.name, site_name(graph, match)))
        return refusals

    def _candidates(self, graph: Graph) -> Candidates:
        head: list[Candidate] = []
        if self.deployment:
            head.extend(deployment_candidates(graph))
        if self.granularity != "site":
            head.extend(self._classes(graph, 2 if self.granularity == "both" else 1))
        return Candidates(graph, head, [] if self.granularity == "class" else self.sites(graph))

    def _classes(self, graph: Graph, least: int) -> Iterator[Candidate]:
        """Yield classes of at least so many sites, in the order of their first."""
        listing = self._state(graph).listing
        cyclic = listing.cyclic(graph)
        for group in listing.ordered_classes():
            legal = tuple(site for site in group if site not in cyclic) if cyclic else group
            if len(legal) >= least:
                yield Candidate("class", graph, legal)

    def _inside(self, graph: Graph, node: Node) -> dict[int, tuple[BodySite, ...]]:
        """Return the rewrites inside the bodies of a node, by the numbers of their rules."""
        return sites_inside(graph, node, self._rewrites) if node.opaque else {}

    def _rewrites(self, body: Graph) -> Iterator[Candidate]:
        """Yield the rewrites of a body: classes of several sites, then sites."""
        yield from self._classes(body, 2)
        yield from (Candidate("site", body, (site,)) for site in self.sites(body))

    def _state(self, graph: Graph) -> _State:
        state = graph.memo.get(self._matched)
        if state is not None:
            return state
        known = known_before(graph, self._matched)
        # Sites are many objects and no cycles: looking for those took up to half of the time.
        with no_garbage_collection():
            if known is None:
                state = _State({}, {}, Listing())
                for node in graph.order():
                    check_time()
                    self._match(graph, node, state, {}, frozenset())
                state.listing = self._listing(graph, state)
            else:
                state = self._updated(graph, *known)
        return graph.memo.put(self._matched, state)

    def _listing(self, graph: Graph, state: _State) -> Listing:
        return listing_of(graph, (state.sites(anchor) for anchor in state.tried))

    def _updated(self, graph: Graph, before: _State, delta: GraphDelta) -> _State:
        fresh = delta.rewired.union(delta.inserted)
        affected = set(fresh)
        readers = before.readers.copy()
        for value in delta.touched:
            affected |= readers.get(value, frozenset())
            if value not in graph.types:
                readers.pop(value, None)
        state = _State(before.tried.copy(), readers, before.listing)
        for node_id in affected | delta.removed:
            state.tried.pop(node_id, None)
        for node_id in sorted(affected):
            if node_id in graph.nodes:
                check_time()
                known = {} if node_id in fresh else before.tried.get(node_id, {})
                self._match(graph, graph.nodes[node_id], state, known, delta.touched)
        if delta.reranked:
            state.listing = self._listing(graph, state)
            return state
        state.listing = before.listing.copy()
        changes = [(before.sites(node_id), state.sites(node_id)) for node_id in sorted(affected | delta.removed)]
        changes = [(old, new) for old, new in changes if old != new]
        state.listing.update(
            graph,
            [site for old, _ in changes for site in old],
            [(site, number) for _, new in changes for number, site in enumerate(new)],
        )
        return state

    def _match(
        self, graph: Graph, node: Node, state: _State, known: Mapping[int, _Tried], touched: frozenset[int]
    ) -> None:
        """Try the plausible rules at a node. What is `known` of a rule holds as long as none of the values `touched`
        was read."""
        seen: set[int] = set()
        tried: dict[int, _Tried] = {}
        for index, rule in self._plausible(graph, node, seen):
            found = known.get(index)
            if found is None or not found.reads.isdisjoint(touched):
                found = self._try(graph, node, index, rule)
            tried[index] = found
            seen |= found.reads
        for index, sites in self._inside(graph, node).items():
            tried[index] = _Tried(sites, frozenset())
        if tried:
            state.tried[node.id] = tried
        for value in seen:
            readers = state.readers.get(value, frozenset())
            if node.id not in readers:
                state.readers[value] = readers | {node.id}

    def _try(self, graph: Graph, node: Node, index: int, rule: Rule) -> _Tried:
        reads: set[int] = set()
        found: list[Site] = []
        for match in Matcher(graph, rule.pattern, reads, rule.symmetric).at(node):
            built = self._built(rule, index, match)
            if built is not None:
                found.append(built)
                if built.several_roots:
                    # Whether the roots depend on each other is told from where these are computed.
                    reads |= built.replacement.externals() - graph.constants.keys()
        return _Tried(tuple(found), frozenset(reads))

    def _built(self, rule: Rule, index: int, match: Match) -> Site | None:
        """Return the site at a match; None where the rule does not apply there."""
        built = build_site(rule, index, match, self.faults)
        return built if isinstance(built, Site) and self._allows(built) else None

    def _allows(self, site: Site) -> bool:
        return self.domains is None or all(node.domain in self.domains for node in site.replacement.nodes)

    def _plausible(self, graph: Graph, anchor: Node, reads: set[int]) -> Iterator[tuple[int, Rule]]:
        """Yield the rules that the anchor's operator and the producers of its inputs do not rule out, in their
        order."""
        for index in self._index.plausible(graph, anchor, reads):
            yield index, self.rules[index]
