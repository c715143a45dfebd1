"""All candidates of a graph: every rule at every place, incrementally after a rewrite, in a deterministic order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from graph_rewrite.candidates import Candidate, Site, build_site, edit_of, makes_cycle, site_name
from graph_rewrite.choices import deployment_choices
from graph_rewrite.ir import Graph, GraphDelta, Node
from graph_rewrite.matching import AnchorFacts, Matcher, Need, anchor_needs
from graph_rewrite.rule import Refusal, Rule

Granularity = Literal["site", "class", "both"]


@dataclass(slots=True)
class _State:
    """Sites per anchor node, and for each value the anchors whose matching looked at it."""

    sites: dict[int, tuple[Site, ...]]
    readers: dict[int, frozenset[int]]


class Rewriter:
    """Enumerates candidates.

    Args:
        rules: the rules, in the order in which candidates are listed; all registered ones by default.
        granularity: offer a rule per `site`, per `class` of sites (same rule, same local structure and shapes), or
            `both`.
        deployment: offer to refuse or to keep ONNX Runtime's optimisers.
    """

    def __init__(
        self, rules: Iterable[Rule] | None = None, granularity: Granularity = "both", deployment: bool = True
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
        self._by_operator: dict[tuple[str, str], dict[frozenset[Need], list[tuple[int, Rule]]]] = {}
        for index, rule in enumerate(self.rules):
            anchor, needs = rule.pattern.anchor, anchor_needs(rule.pattern)
            for op in sorted(anchor.operators):
                groups = self._by_operator.setdefault((op, anchor.domain), {})
                groups.setdefault(needs, []).append((index, rule))

    def candidates(self, graph: Graph) -> list[Candidate]:
        """All valid candidates, without duplicates: deployment choices, then classes, then sites; each in the
        order of the rules, and along the graph."""
        key = ("candidates", self._identity)
        found: list[Candidate] | None = graph.memo.get(key)
        if found is None:
            found = graph.memo[key] = self._candidates(graph)
        return found

    def sites(self, graph: Graph) -> list[Site]:
        """All valid applications of single rules, in the order of the rules and along the graph."""
        ranks = graph.ranks
        found: list[Site] = []
        seen: set[tuple[frozenset[int], str]] = set()
        for anchor_sites in self._state(graph).sites.values():
            found.extend(anchor_sites)
        found.sort(key=lambda site: (site.rule_index, ranks[site.anchor], site.anchor))
        unique = []
        for site in found:
            if site.key not in seen and not (site.several_roots and makes_cycle(graph, site)):
                seen.add(site.key)
                unique.append(site)
        return unique

    def explain(self, graph: Graph) -> list[Refusal]:
        """Near misses: places where a rule's pattern occurs but the rule does not apply, with the reason."""
        refusals: list[Refusal] = []
        for node in graph.order():
            for index, rule in self._plausible(graph, node, set()):
                for match in Matcher(graph, rule.pattern, set(), rule.symmetric).at(node):
                    built = build_site(rule, index, match)
                    if isinstance(built, Site) and built.several_roots and makes_cycle(graph, built):
                        built = Refusal("one of the values depends on another: merging them would make a cycle")
                    if isinstance(built, Refusal):
                        refusals.append(Refusal(built.reason, rule.name, site_name(graph, match)))
        return refusals

    def _candidates(self, graph: Graph) -> list[Candidate]:
        sites = self.sites(graph)
        found: list[Candidate] = []
        if self.deployment:
            found.extend(
                Candidate("deployment", graph, disabled_optimizers=names, label=label)
                for label, names in deployment_choices(graph)
            )
        if self.granularity != "site":
            classes: dict[str, list[Site]] = {}
            for site in sites:
                classes.setdefault(site.class_key, []).append(site)
            least = 2 if self.granularity == "both" else 1
            found.extend(Candidate("class", graph, tuple(group)) for group in classes.values() if len(group) >= least)
        if self.granularity != "class":
            found.extend(Candidate("site", graph, (site,)) for site in sites)
        return found

    def _state(self, graph: Graph) -> _State:
        key = ("sites", self._identity)
        state: _State | None = graph.memo.get(key)
        if state is not None:
            return state
        edit = edit_of(graph)
        before: _State | None = None if edit is None else edit[0].memo.get(key)
        if edit is None or before is None:
            state = _State({}, {})
            self._match(graph, graph.order(), state)
        else:
            state = _State(dict(before.sites), dict(before.readers))
            self._update(graph, edit[1], state)
        graph.memo[key] = state
        return state

    def _update(self, graph: Graph, delta: GraphDelta, state: _State) -> None:
        for node_id in delta.removed:
            state.sites.pop(node_id, None)
        affected = set(delta.inserted) | delta.rewired
        for value in delta.touched:
            affected |= state.readers.get(value, frozenset())
            if value not in graph.types:
                state.readers.pop(value, None)
        self._match(graph, [graph.nodes[n] for n in sorted(affected) if n in graph.nodes], state)

    def _match(self, graph: Graph, anchors: Sequence[Node], state: _State) -> None:
        for node in anchors:
            reads: set[int] = set()
            found: list[Site] = []
            for index, rule in self._plausible(graph, node, reads):
                for match in Matcher(graph, rule.pattern, reads, rule.symmetric).at(node):
                    built = build_site(rule, index, match)
                    if isinstance(built, Site):
                        found.append(built)
            if found:
                state.sites[node.id] = tuple(found)
            else:
                state.sites.pop(node.id, None)
            for value in reads:
                known = state.readers.get(value, frozenset())
                if node.id not in known:
                    state.readers[value] = known | {node.id}

    def _plausible(self, graph: Graph, anchor: Node, reads: set[int]) -> Iterator[tuple[int, Rule]]:
        """Rules that the anchor's operator and what its inputs come from don't rule out."""
        groups = self._by_operator.get((anchor.op, anchor.domain))
        if not groups:
            return
        facts = AnchorFacts(graph, anchor, reads)
        for needs, rules in groups.items():
            if facts.meet(needs):
                yield from rules
