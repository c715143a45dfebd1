"""Sites that a rewrite makes possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.sites import Site


def enables(rewriter: Rewriter, before: Graph) -> Callable[[Iterable[Site]], bool]:
    """Return a test of sites in a later graph: whether any of them is a rewrite that `before` did not offer."""
    known = {site.key for site in rewriter.sites(before)}
    return lambda sites: any(site.key not in known for site in sites)
