"""Changes of an e-graph: the classes from which a pattern may match anew."""

from __future__ import annotations

from functools import cache

from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.rewriting.patterns import Pattern, PatternNode, PatternOutput


@cache
def depth_of(pattern: Pattern) -> int:
    """The largest number of operators on a path of the pattern."""
    depths: dict[PatternNode, int] = {}
    for node in pattern.nodes:
        below = (depths[i.node] for i in node.inputs if isinstance(i, PatternOutput))
        depths[node] = 1 + max(below, default=0)
    return max(depths.values())


@cache
def root_nodes(pattern: Pattern) -> tuple[PatternNode, ...]:
    """The distinct nodes that produce the roots."""
    return tuple(dict.fromkeys(root.node for root in pattern.roots))


def changed_since(egraph: EGraph, since: int, steps: int, mask: int) -> set[int]:
    """Return the classes in which something new can be found, and those above them by up to `steps` operators.

    Kept with the e-graph until it changes again. Do not change the set.

    Args:
        since: a length that the log had: what was logged from there on counts as new.
        mask: the operators that are looked for, as `Operator.mask`.
    """
    length, levels = egraph.dirty.get((since, mask), (-1, []))
    if length != len(egraph.log):
        news = zip(egraph.log[since:], egraph.log_masks[since:], strict=True)
        levels = [{egraph.find(cls) for cls, new in news if new & mask}]
        egraph.dirty[since, mask] = len(egraph.log), levels
    entries, operator = egraph.operators.entries, egraph.node_op
    while len(levels) <= steps:
        below = levels[-1] - levels[-2] if len(levels) > 1 else levels[-1]
        above = {
            egraph.find(node) for cls in below for node in egraph.readers_of(cls) if entries[operator[node]].mask & mask
        }
        levels.append(levels[-1] | above)
    return levels[steps]
