"""The interface of a pass of the normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from graph_rewrite.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Outcome:
    """The graph after a pass, the number of nodes that the pass took away, and notes for the user."""

    graph: Graph
    count: int = 0
    notes: tuple[str, ...] = ()


class Pass(Protocol):
    """A step of the normalisation. It keeps what the graph computes, and does not change the graph it is given."""

    @property
    def name(self) -> str: ...

    def run(self, graph: Graph) -> Outcome:
        """Return the graph after this pass."""
        ...
