"""E-matching: where rules match in an e-graph, what a rule sees of a match, and what it makes of it."""

from graph_rewrite.egraph.matching.changes import depth_of, root_nodes
from graph_rewrite.egraph.matching.ematching import EMatcher, MatchPosition, in_order
from graph_rewrite.egraph.matching.root_joining import FoundMatch
from graph_rewrite.egraph.matching.shared_matches import SharedMatches
from graph_rewrite.egraph.matching.targets import (
    MatchedClasses,
    RuleTarget,
    insert,
    matched_classes,
    missing,
    target_of,
)
from graph_rewrite.egraph.matching.view import Ambiguous, EMatch, GraphView

__all__ = [
    "Ambiguous", "EMatch", "EMatcher", "FoundMatch", "GraphView", "MatchPosition", "MatchedClasses", "RuleTarget",
    "SharedMatches", "depth_of", "in_order", "insert", "matched_classes", "missing", "root_nodes", "target_of",
]  # fmt: skip
