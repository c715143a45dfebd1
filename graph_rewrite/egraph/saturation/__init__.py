"""Equality saturation: one application of a rule at all its matches, and all rules until nothing changes."""

from graph_rewrite.egraph.saturation.application import (
    MATCH_LIMIT,
    Application,
    Cycles,
    LimitKind,
    MatchRound,
    apply_rule,
    can_match,
    find_matches,
    search_rule,
)
from graph_rewrite.egraph.saturation.saturate import (
    Matching,
    Saturation,
    Schedule,
    is_multi_pattern,
    multi_first,
    rounds,
    saturate,
)

__all__ = [
    "MATCH_LIMIT", "Application", "Cycles", "LimitKind", "MatchRound", "Matching", "Saturation", "Schedule",
    "apply_rule", "can_match", "find_matches", "is_multi_pattern", "multi_first", "rounds", "saturate", "search_rule",
]  # fmt: skip
