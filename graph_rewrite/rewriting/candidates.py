"""Candidates: valid rewrites of one graph, for one site or for all sites of a class, built lazily."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, overload

from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph, record_edit
from graph_rewrite.ir.hashing import digest
from graph_rewrite.rewriting.sites import Site, makes_cycle


@dataclass(eq=False, slots=True)
class Candidate:
    """A valid action: a rewrite of one site, of all sites of a class, or another way to run
    the graph: refused runtime optimisers, or session settings."""

    kind: Literal["site", "class", "deployment"]
    graph: Graph
    sites: tuple[Site, ...] = ()
    disabled_optimizers: frozenset[str] = frozenset()
    session_settings: tuple[tuple[str, bool | int | str], ...] = ()
    label: str = ""
    _key: str | None = field(default=None, repr=False)

    @property
    def rule(self) -> str:
        """Return the rule's name; for a deployment choice the name of the choice."""
        return self.sites[0].rule.name if self.sites else self.label

    @property
    def site(self) -> Site:
        """Return the representative site."""
        return self.sites[0]

    @property
    def count(self) -> int:
        """Return the number of sites; 1 for a deployment choice."""
        return max(1, len(self.sites))

    @property
    def description(self) -> str:
        if self.kind == "deployment":
            return self.label
        if self.kind == "class":
            return f"{self.site.description} (all {len(self.sites)} sites of this kind)"
        return self.site.description

    @property
    def key(self) -> str:
        """Return a key that identifies the action among the candidates of its graph; it is stable over replays."""
        if self._key is None:
            if self.kind == "deployment":
                settings = [("settings", self.session_settings)] if self.session_settings else []
                self._key = digest("deployment", sorted(self.disabled_optimizers), *settings)
            else:
                self._key = digest(self.kind, *((sorted(site.key[0]), site.key[1]) for site in self.sites))
        return self._key

    def apply(self, applied: Callable[[Site, range], None] | None = None) -> Graph:
        """Return the graph after this rewrite; the graph before is not changed.

        Sites of a class that overlap with an earlier one are left out. Each call makes a new graph: candidates of a
        model's first graph live as long as the model, and would hold all that was ever tried.

        Args:
            applied: told of every site that is rewritten, with the ids that its nodes and values come from.

        Raises:
            InvalidRewriteError: the new graph would be invalid.
        """
        editor = GraphEditor(self.graph)
        if self.kind == "deployment":
            editor.disabled_optimizers = self.disabled_optimizers
            editor.session_settings = self.session_settings
        for site in self.sites:
            if editor.nodes.get(site.anchor) is site.match.anchor and not (
                site.several_roots and makes_cycle(editor, site)
            ):
                first = editor.next_id
                if site.apply_to(editor) and applied is not None:
                    applied(site, range(first, editor.next_id))
        graph, delta = editor.finish()
        record_edit(graph, self.graph, delta)
        return graph


class Candidates(Sequence[Candidate]):
    """The candidates of a graph. Deployment choices and classes are made already; sites become candidates when asked
    for.

    Args:
        graph: the graph that they are candidates of.
        head: the candidates that come first.
        sites: the sites that follow, one candidate each.
    """

    def __init__(self, graph: Graph, head: Sequence[Candidate], sites: Sequence[Site] = ()) -> None:
        self._graph, self._head, self._sites = graph, head, sites
        self._made: dict[int, Candidate] = {}
        self._all: list[Candidate] | None = None

    @property
    def head(self) -> Sequence[Candidate]:
        """Return the candidates that come first: deployment choices and classes."""
        return self._head

    @property
    def sites(self) -> Sequence[Site]:
        """Return the sites of the candidates after those."""
        return self._sites

    @property
    def rules(self) -> list[str]:
        """Return the name of the rule or deployment choice of each candidate."""
        return [candidate.rule for candidate in self._head] + [site.rule.name for site in self._sites]

    def __len__(self) -> int:
        return len(self._head) + len(self._sites)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> list[Candidate]: ...

    def __getitem__(self, index: int | slice) -> Candidate | list[Candidate]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if 0 <= index < len(self._head):
            return self._head[index]
        made = self._made.get(index)
        if made is None:
            if not 0 <= index < len(self):
                raise IndexError(f"there are {len(self)} candidates")
            made = self._made[index] = Candidate("site", self._graph, (self._sites[index - len(self._head)],))
        return made

    def __iter__(self) -> Iterator[Candidate]:
        if self._all is None:
            self._all = [self[i] for i in range(len(self))]
        return iter(self._all)

    def __repr__(self) -> str:
        return f"<{len(self)} candidates>"
