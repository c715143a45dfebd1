"""All candidates of a graph: every rule at every place, incrementally after a rewrite, in a deterministic order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from graph_rewrite.candidates import Candidate, Site, build_site, edit_of, makes_cycle, site_name
from graph_rewrite.choices import deployment_choices
from graph_rewrite.ir import Graph, GraphDelta, Node
from graph_rewrite.listing import Candidates, Listing, listing_of
from graph_rewrite.matching import Matcher
from graph_rewrite.prefilter import PatternIndex
from graph_rewrite.rule import Refusal, Rule

Granularity = Literal["site", "class", "both"]


@dataclass(slots=True)
class _State:
    """Sites per anchor node, for each value the anchors whose matching looked at it, and all sites in order."""

    sites: dict[int, tuple[Site, ...]]
    readers: dict[int, frozenset[int]]
    listing: Listing


class Rewriter:
    """Enumerates candidates.

    Args:
        rules: the rules, in the order in which candidates are listed; all registered ones by default.
        granularity: offer a rule per `site`, per `class` of sites (same rule, same local structure and shapes), or
            `both`.
        deployment: offer to refuse or to keep ONNX Runtime's optimisers.
        domains: domains of operators that a rewrite may bring in; any by default.
    """

    def __init__(
        self,
        rules: Iterable[Rule] | None = None,
        granularity: Granularity = "both",
        deployment: bool = True,
        domains: frozenset[str] | None = None,
    ) -> None:
        if granularity not in ("site", "class", "both"):
            raise ValueError(f"granularity must be 'site', 'class' or 'both', not {granularity!r}")
        if rules is None:
            from graph_rewrite.rules import all_rules

            rules = all_rules()
        # Not id(self): what a dead Rewriter left in a graph's memo would pass for a new one's.
        self._identity = object()
        self.rules: tuple[Rule, ...] = tuple(rules)
        self.granularity: Granularity = granularity
        self.deployment = deployment
        self.domains = domains
        self._index = PatternIndex([rule.pattern for rule in self.rules])

    def candidates(self, graph: Graph) -> Sequence[Candidate]:
        """All valid candidates, without duplicates: deployment choices, then classes, then sites; each in the
        order of the rules, and along the graph."""
        key = ("candidates", self._identity)
        found: Candidates | None = graph.memo.get(key)
        if found is None:
            found = graph.memo[key] = self._candidates(graph)
        return found

    def sites(self, graph: Graph) -> list[Site]:
        """All valid applications of single rules, in the order of the rules and along the graph."""
        listing = self._state(graph).listing
        cyclic = listing.cyclic(graph)
        return [site for site in listing.sites if site not in cyclic] if cyclic else listing.sites

    def explain(self, graph: Graph) -> list[Refusal]:
        """Near misses: places where a rule's pattern occurs but the rule does not apply, with the reason."""
        refusals: list[Refusal] = []
        for node in graph.order():
            for index, rule in self._plausible(graph, node, set()):
                for match in Matcher(graph, rule.pattern, set(), rule.symmetric).at(node):
                    built = build_site(rule, index, match)
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
            head.extend(
                Candidate("deployment", graph, disabled_optimizers=names, label=label)
                for label, names in deployment_choices(graph)
            )
        if self.granularity != "site":
            head.extend(Candidate("class", graph, group) for group in self._classes(graph))
        return Candidates(graph, head, [] if self.granularity == "class" else self.sites(graph))

    def _classes(self, graph: Graph) -> Iterator[tuple[Site, ...]]:
        """Groups of sites, in the order of their first; single ones only where sites are not offered themselves."""
        listing = self._state(graph).listing
        least = 2 if self.granularity == "both" else 1
        cyclic = listing.cyclic(graph)
        for group in listing.ordered_classes():
            legal = tuple(site for site in group if site not in cyclic) if cyclic else group
            if len(legal) >= least:
                yield legal

    def _state(self, graph: Graph) -> _State:
        key = ("sites", self._identity)
        state: _State | None = graph.memo.get(key)
        if state is not None:
            return state
        edit = edit_of(graph)
        before: _State | None = None if edit is None else edit[0].memo.get(key)
        if edit is None or before is None:
            state = _State({}, {}, Listing())
            self._match(graph, graph.order(), state)
            state.listing = listing_of(graph, state.sites.values())
        else:
            state = self._updated(graph, edit[1], before)
        graph.memo[key] = state
        return state

    def _updated(self, graph: Graph, delta: GraphDelta, before: _State) -> _State:
        affected = set(delta.inserted) | delta.rewired
        readers = before.readers.copy()
        for value in delta.touched:
            affected |= readers.get(value, frozenset())
            if value not in graph.types:
                readers.pop(value, None)
        state = _State(before.sites.copy(), readers, before.listing)
        changed = affected | delta.removed
        gone = {node_id: state.sites.pop(node_id, ()) for node_id in changed}
        self._match(graph, [graph.nodes[n] for n in sorted(affected) if n in graph.nodes], state)
        if delta.reranked:
            state.listing = listing_of(graph, state.sites.values())
            return state
        state.listing = before.listing.copy()
        for sites in gone.values():
            for site in sites:
                state.listing.remove(graph, site)
        for node_id in sorted(affected):
            for number, site in enumerate(state.sites.get(node_id, ())):
                state.listing.add(graph, site, number)
        return state

    def _match(self, graph: Graph, anchors: Sequence[Node], state: _State) -> None:
        for node in anchors:
            reads: set[int] = set()
            found: list[Site] = []
            for index, rule in self._plausible(graph, node, reads):
                for match in Matcher(graph, rule.pattern, reads, rule.symmetric).at(node):
                    built = build_site(rule, index, match)
                    if isinstance(built, Site) and self._allows(built):
                        found.append(built)
                        if built.several_roots:
                            # Whether the roots depend on each other is told from where these are computed.
                            reads |= built.region.externals() - graph.constants.keys()
            if found:
                state.sites[node.id] = tuple(found)
            for value in reads:
                known = state.readers.get(value, frozenset())
                if node.id not in known:
                    state.readers[value] = known | {node.id}

    def _allows(self, site: Site) -> bool:
        return self.domains is None or all(node.domain in self.domains for node in site.region.nodes)

    def _plausible(self, graph: Graph, anchor: Node, reads: set[int]) -> Iterator[tuple[int, Rule]]:
        """Rules that the anchor's operator and what its inputs come from don't rule out, in their order."""
        for index in self._index.plausible(graph, anchor, reads):
            yield index, self.rules[index]
